"""Layers in standard ONNX operators (opset 17), for any runtime."""

import math
from collections.abc import Mapping

import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from camp.nn.onnx.graph import FUSED, Graph


def inline_model(graph: Graph, model: bytes, inputs: Mapping[str, str]) -> dict[str, str]:
    """Add a serialized model to `graph`, with onnxruntime's fused operators replaced by standard ones.

    `inputs` are values of `graph` by input name of the model; returns values by its output names.
    """
    other = onnx.load_from_string(model).graph
    values = dict(inputs)
    for weight in other.initializer:
        values[weight.name] = graph.weight(torch.from_numpy(numpy_helper.to_array(weight).copy()))
    shapes = {weight.name: weight.dims for weight in other.initializer}
    for node in other.node:
        arguments = [values[name] for name in node.input]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        (result,) = node.output
        if node.domain != FUSED:
            values[result] = graph.node(node.op_type, *arguments, **attributes)
        elif node.op_type == "Attention":
            x, weight, bias = arguments
            values[result] = attention(
                graph, x, weight, bias, attributes["num_heads"], shapes[node.input[1]][0]
            )
        else:
            assert node.op_type == "BiasGelu"
            values[result] = gelu(graph, graph.node("Add", *arguments))
    return {output.name: values[output.name] for output in other.output}


def attention(graph: Graph, x: str, weight: str | Tensor, bias: str | Tensor, heads: int, dim: int) -> str:
    """Self-attention (B, N, D) -> (B, N, D) without output projection; `weight` (D, 3 D), `bias` (3 D,)."""
    size = dim // heads
    qkv = graph.node("Add", graph.node("MatMul", x, weight), bias)
    qkv = graph.node("Reshape", qkv, torch.tensor([0, 0, 3, heads, size]))
    qkv = graph.node("Transpose", qkv, perm=[2, 0, 3, 1, 4])  # (3, B, H, N, d)
    q, k, v = (graph.node("Gather", qkv, torch.tensor(part), axis=0) for part in range(3))
    q = graph.node("Mul", q, torch.tensor(size**-0.5))
    scores = graph.node("MatMul", q, graph.node("Transpose", k, perm=[0, 1, 3, 2]))
    mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), v)
    return graph.node("Reshape", graph.node("Transpose", mixed, perm=[0, 2, 1, 3]), torch.tensor([0, 0, dim]))


def gelu(graph: Graph, x: str) -> str:
    """Exact GELU, x * Phi(x)."""
    half = graph.node("Mul", x, torch.tensor(0.5))
    erf = graph.node("Erf", graph.node("Mul", x, torch.tensor(1 / math.sqrt(2))))
    return graph.node("Mul", half, graph.node("Add", erf, torch.tensor(1.0)))


def linear(graph: Graph, x: str, layer: nn.Linear) -> str:
    """Linear layer (..., D) -> (..., D')."""
    return graph.node("Add", graph.node("MatMul", x, layer.weight.T), layer.bias)


def layer_norm(graph: Graph, x: str, norm: nn.LayerNorm) -> str:
    """Layer norm (..., D) -> (..., D) with the gain and bias of `norm`."""
    return graph.node("LayerNormalization", x, norm.weight, norm.bias, epsilon=norm.eps)


def plain_norm(graph: Graph, x: str, dim: int, eps: float = 1e-5) -> str:
    """Layer norm (..., D) -> (..., D) without gain and bias."""
    return graph.node("LayerNormalization", x, torch.ones(dim), torch.zeros(dim), epsilon=eps)
