"""ONNX graphs of the frozen trunks.

Built by hand rather than traced, to use onnxruntime's fused operators; batch norms and layer scales
are folded into the preceding matrices. `camp.nn.onnx.operators.inline_model` replaces the fused
operators by standard ones.
"""

from collections.abc import Iterable

import torch

from camp.nn.backbones import efficientnet, vit
from camp.nn.onnx.graph import FUSED, Graph
from camp.nn.onnx.operators import layer_norm, plain_norm


@torch.no_grad()
def trunk_graph(trunk: torch.nn.Module, resolution: int) -> bytes:
    """Return the serialized ONNX graph of a frozen trunk."""
    if isinstance(trunk, vit.VitTrunk):
        return _vit_graph(trunk, resolution)
    assert isinstance(trunk, efficientnet.EfficientNetTrunk)
    return _efficientnet_graph(trunk, resolution)


def _vit_graph(trunk: vit.VitTrunk, resolution: int) -> bytes:
    """Build patch embedding and frozen blocks."""
    graph = Graph()
    proj = trunk.patch_embed.proj
    assert proj.bias is not None
    dim, patch = proj.weight.shape[0], proj.weight.shape[2]
    x = graph.node("Conv", "pixels", proj.weight, proj.bias, strides=[patch, patch])
    x = graph.node("Reshape", x, torch.tensor([0, dim, -1]))
    x = graph.node("Transpose", x, perm=[0, 2, 1])
    # Prepend a row of zeros, to which the class token is added with the position embeddings.
    x = graph.node("Pad", x, torch.tensor([0, 1, 0, 0, 0, 0]))
    positions = trunk.pos_embed.clone()
    positions[:, :1] += trunk.cls_token
    x = graph.node("Add", x, positions)
    for block in trunk.blocks:
        assert isinstance(block, vit.Block)
        x = _block(graph, x, block)
    tokens = plain_norm(graph, x, dim, vit.EPS) if trunk.normalised else x
    cls = graph.node("Gather", x, torch.tensor(0), axis=1)
    return graph.model(resolution, {"tokens": tokens, "cls": cls})


def _block(graph: Graph, x: str, block: vit.Block) -> str:
    def branch(y: str, linear: torch.nn.Linear, scale: torch.nn.Module) -> str:
        factor = scale.gamma if isinstance(scale, vit.LayerScale) else torch.ones_like(linear.bias)
        y = graph.node("MatMul", y, (linear.weight * factor[:, None]).T)
        return graph.node("Add", y, linear.bias * factor)

    attn, mlp = block.attn, block.mlp
    y = layer_norm(graph, x, block.norm1)
    y = graph.node("Attention", y, attn.qkv.weight.T, attn.qkv.bias, domain=FUSED, num_heads=attn.heads)
    x = graph.node("Add", x, branch(y, attn.proj, block.ls1))
    y = graph.node("MatMul", layer_norm(graph, x, block.norm2), mlp.fc1.weight.T)
    y = graph.node("BiasGelu", y, mlp.fc1.bias, domain=FUSED)
    return graph.node("Add", x, branch(y, mlp.fc2, block.ls2))


def _efficientnet_graph(trunk: efficientnet.EfficientNetTrunk, resolution: int) -> bytes:
    """Build stem, frozen blocks, and the head if it belongs to the trunk."""
    graph = Graph()
    x = conv_norm(graph, "pixels", trunk.stem, clipped=True)
    x = inverted_bottlenecks(graph, x, trunk.blocks)
    if trunk.head is not None:
        return graph.model(resolution, {"vector": pooled_head(graph, x, trunk.head)})
    tokens = graph.node("Reshape", x, torch.tensor([0, 0, -1]))
    return graph.model(resolution, {"tokens": graph.node("Transpose", tokens, perm=[0, 2, 1])})


def conv_norm(graph: Graph, x: str, layer: efficientnet.ConvNorm, clipped: bool) -> str:
    """Add a convolution with its batch norm folded in, followed by ReLU6 if `clipped`."""
    weight, bias = layer.fold()
    x = graph.node(
        "Conv", x, weight, bias, strides=[layer.stride] * 2, group=layer.groups, auto_pad="SAME_UPPER"
    )
    return graph.node("Clip", x, torch.tensor(0.0), torch.tensor(6.0)) if clipped else x


def inverted_bottlenecks(graph: Graph, x: str, blocks: Iterable[torch.nn.Module]) -> str:
    """Add blocks of EfficientNet on (B, C, H, W)."""
    for block in blocks:
        assert isinstance(block, efficientnet.MbConv)
        inner = x if block.expand is None else conv_norm(graph, x, block.expand, clipped=True)
        inner = conv_norm(graph, inner, block.depthwise, clipped=True)
        out = conv_norm(graph, inner, block.project, clipped=False)
        x = graph.node("Add", x, out) if block.residual else out
    return x


def pooled_head(graph: Graph, x: str, head: efficientnet.ConvNorm) -> str:
    """Add the head convolution and the mean over positions: (B, C, H, W) -> (B, 1280)."""
    return graph.node("Flatten", graph.node("GlobalAveragePool", conv_norm(graph, x, head, clipped=True)))
