"""The frozen trunks as ONNX graphs, for engines other than torch.

Written out by hand rather than traced: the graphs are short, and this way use onnxruntime's fused operators
(its domain is com.microsoft). Batch norms and layer scales are folded into the matrices before them.
`onnx_standard` writes the fused operators out in standard ones.
"""

from collections.abc import Iterable
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from camp.nn.backbones import efficientnet, vit

FUSED = "com.microsoft"


class Graph:
    """Nodes and weights as they are added; values are known by their names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []

    def weight(self, tensor: Tensor) -> str:
        """A constant; its name."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(tensor.detach().cpu().contiguous().numpy(), name))
        return name

    def node(self, operator: str, *inputs: str | Tensor, domain: str = "", **attributes: Any) -> str:
        """One operation on values and constants; the name of its result."""
        names = [self.weight(value) if isinstance(value, Tensor) else value for value in inputs]
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [result], domain=domain, **attributes))
        return result

    def model(self, resolution: int, outputs: dict[str, str]) -> bytes:
        """The finished graph from "pixels" to the fields `outputs`, given as values by field name."""
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["B", 3, resolution, resolution])
        fields = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "trunk", [pixels], fields, self.weights)
        versions = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=8).SerializeToString()


def graph_of(trunk: torch.nn.Module, resolution: int) -> bytes:
    """The graph of a frozen trunk of either family."""
    with torch.no_grad():
        if isinstance(trunk, vit.VitTrunk):
            return vit_graph(trunk, resolution)
        assert isinstance(trunk, efficientnet.EfficientNetTrunk)
        return efficientnet_graph(trunk, resolution)


def vit_graph(trunk: vit.VitTrunk, resolution: int) -> bytes:
    """Patch embedding and frozen blocks."""
    graph = Graph()
    proj = trunk.patch_embed.proj
    assert proj.bias is not None
    dim, patch = proj.weight.shape[0], proj.weight.shape[2]
    x = graph.node("Conv", "pixels", proj.weight, proj.bias, strides=[patch, patch])
    x = graph.node("Reshape", x, torch.tensor([0, dim, -1]))
    x = graph.node("Transpose", x, perm=[0, 2, 1])
    # A row of zeros in front, onto which the class token comes with the positions.
    x = graph.node("Pad", x, torch.tensor([0, 1, 0, 0, 0, 0]))
    positions = trunk.pos_embed.clone()
    positions[:, :1] += trunk.cls_token
    x = graph.node("Add", x, positions)
    for block in trunk.blocks:
        assert isinstance(block, vit.Block)
        x = _block(graph, x, block)
    tokens = x
    if trunk.normalised:
        tokens = graph.node("LayerNormalization", x, torch.ones(dim), torch.zeros(dim), epsilon=vit.EPS)
    cls = graph.node("Gather", x, torch.tensor(0), axis=1)
    return graph.model(resolution, {"tokens": tokens, "cls": cls})


def _block(graph: Graph, x: str, block: vit.Block) -> str:
    def norm(x: str, norm: torch.nn.LayerNorm) -> str:
        return graph.node("LayerNormalization", x, norm.weight, norm.bias, epsilon=vit.EPS)

    def branch(y: str, linear: torch.nn.Linear, scale: torch.nn.Module) -> str:
        factor = scale.gamma if isinstance(scale, vit.LayerScale) else torch.ones(linear.out_features)
        y = graph.node("MatMul", y, (linear.weight * factor[:, None]).T)
        return graph.node("Add", y, linear.bias * factor)

    attn, mlp = block.attn, block.mlp
    y = norm(x, block.norm1)
    y = graph.node("Attention", y, attn.qkv.weight.T, attn.qkv.bias, domain=FUSED, num_heads=attn.heads)
    x = graph.node("Add", x, branch(y, attn.proj, block.ls1))
    y = graph.node("MatMul", norm(x, block.norm2), mlp.fc1.weight.T)
    y = graph.node("BiasGelu", y, mlp.fc1.bias, domain=FUSED)
    return graph.node("Add", x, branch(y, mlp.fc2, block.ls2))


def efficientnet_graph(trunk: efficientnet.EfficientNetTrunk, resolution: int) -> bytes:
    """Stem, frozen blocks, and the head where it belongs to the trunk."""
    graph = Graph()
    x = conv_norm(graph, "pixels", trunk.stem, clipped=True)
    x = inverted_bottlenecks(graph, x, trunk.blocks)
    if trunk.head is not None:
        return graph.model(resolution, {"vector": pooled_head(graph, x, trunk.head)})
    tokens = graph.node("Reshape", x, torch.tensor([0, 0, -1]))
    return graph.model(resolution, {"tokens": graph.node("Transpose", tokens, perm=[0, 2, 1])})


def conv_norm(graph: Graph, x: str, layer: efficientnet.ConvNorm, clipped: bool) -> str:
    """A convolution with its norm folded in, and the ReLU6 behind it if `clipped`."""
    weight, bias = layer.folded()
    x = graph.node(
        "Conv", x, weight, bias, strides=[layer.stride] * 2, group=layer.groups, auto_pad="SAME_UPPER"
    )
    return graph.node("Clip", x, torch.tensor(0.0), torch.tensor(6.0)) if clipped else x


def inverted_bottlenecks(graph: Graph, x: str, blocks: Iterable[torch.nn.Module]) -> str:
    """Blocks of EfficientNet on (B, C, H, W)."""
    for block in blocks:
        assert isinstance(block, efficientnet.MbConv)
        inner = x if block.expand is None else conv_norm(graph, x, block.expand, clipped=True)
        inner = conv_norm(graph, inner, block.depthwise, clipped=True)
        out = conv_norm(graph, inner, block.project, clipped=False)
        x = graph.node("Add", x, out) if block.residual else out
    return x


def pooled_head(graph: Graph, x: str, head: efficientnet.ConvNorm) -> str:
    """The head convolution and the mean over positions: (B, C, H, W) -> (B, 1280)."""
    return graph.node("Flatten", graph.node("GlobalAveragePool", conv_norm(graph, x, head, clipped=True)))
