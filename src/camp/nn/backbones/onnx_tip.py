"""ONNX graphs of the trained tips, in standard operators."""

import math
from collections.abc import Mapping

import torch
from torch import nn

from camp.core.errors import CampError
from camp.nn.backbones import vit
from camp.nn.backbones.conv_tiny import ConvTiny
from camp.nn.backbones.efficientnet import DIM, EfficientNetTip
from camp.nn.backbones.onnx_trunk import inverted_bottlenecks, pooled_head
from camp.nn.backbones.residual_mlp import ResidualMlp
from camp.nn.backbones.resnet import BasicBlock, ResNet18
from camp.nn.onnx.graph import Graph
from camp.nn.onnx.operators import attention, gelu, layer_norm, linear, plain_norm


@torch.no_grad()
def add_tip(graph: Graph, tip: nn.Module, fields: Mapping[str, str], resolution: int) -> str:
    """Add `tip` on the values `fields` by field name, and return the value of the features (B, D)."""
    if isinstance(tip, ResidualMlp):
        return _residual_mlp(graph, tip, fields["vector"])
    if isinstance(tip, vit.VitTip):
        return _vit(graph, tip, fields["tokens"], fields["cls"])
    if isinstance(tip, EfficientNetTip):
        return _efficientnet(graph, tip, fields["tokens"])
    if isinstance(tip, ConvTiny):
        return _conv_tiny(graph, tip, fields["pixels"], resolution)
    if isinstance(tip, ResNet18):
        return _resnet(graph, tip, fields["pixels"])
    raise CampError(
        f"A {type(tip).__name__} cannot be exported to ONNX; export a model with another backbone."
    )


def _residual_mlp(graph: Graph, tip: ResidualMlp, z: str) -> str:
    def norm(z: str) -> str:
        return plain_norm(graph, z, tip.fc1.in_features) if tip.normalised else z

    z = norm(graph.node("Div", z, tip.input_rms))
    z = graph.node("Add", z, linear(graph, gelu(graph, linear(graph, z, tip.fc1)), tip.fc2))
    return graph.node("Mul", norm(z), tip.gain)


def _vit(graph: Graph, tip: vit.VitTip, tokens: str, cls: str) -> str:
    """Add plain blocks and the last block, rearranged as in `vit`."""
    *before, last = tip.blocks
    dim = tip.norm.normalized_shape[0]
    for block in before:
        assert isinstance(block, vit.Block)
        qkv = block.attn.qkv
        y = layer_norm(graph, tokens, block.norm1)
        y = attention(graph, y, qkv.weight.T, qkv.bias, block.attn.heads, dim)
        tokens = _after_attention(graph, tokens, y, block)
    if before:
        cls = graph.node("Gather", tokens, torch.tensor(0), axis=1)
        tokens = plain_norm(graph, tokens, dim, vit.EPS)
    assert isinstance(last, vit.Block)
    y = _class_token_attention(graph, layer_norm(graph, cls, last.norm1), last, tokens)
    return layer_norm(graph, _after_attention(graph, cls, y, last), tip.norm)


def _after_attention(graph: Graph, x: str, y: str, block: vit.Block) -> str:
    """Add the part of a block after the heads: projection of y, residual connection to x, and MLP."""

    def scaled(y: str, scale: nn.Module) -> str:
        return graph.node("Mul", y, scale.gamma) if isinstance(scale, vit.LayerScale) else y

    x = graph.node("Add", x, scaled(linear(graph, y, block.attn.proj), block.ls1))
    y = gelu(graph, linear(graph, layer_norm(graph, x, block.norm2), block.mlp.fc1))
    return graph.node("Add", x, scaled(linear(graph, y, block.mlp.fc2), block.ls2))


def _class_token_attention(graph: Graph, y: str, block: vit.Block, tokens: str) -> str:
    """Attention of the class token alone: normalised y (B, D), x̂ `tokens` (B, N, D) -> (B, D)."""
    attn, norm = block.attn, block.norm1
    dim, heads = attn.proj.in_features, attn.heads
    w_q, w_k, w_v = attn.qkv.weight.view(3, dim, dim)
    b_q, _, b_v = attn.qkv.bias.view(3, dim)
    keys = (w_k * (norm.weight / math.sqrt(vit.HEAD_DIM))).view(heads, vit.HEAD_DIM, dim)
    values = (w_v * norm.weight).view(heads, vit.HEAD_DIM, dim)
    q = graph.node("Add", graph.node("MatMul", y, w_q.T), b_q)
    q = graph.node("Reshape", q, torch.tensor([0, heads, 1, vit.HEAD_DIM]))
    u = graph.node("Squeeze", graph.node("MatMul", q, keys), torch.tensor([2]))  # (B, H, D)
    scores = graph.node("MatMul", u, graph.node("Transpose", tokens, perm=[0, 2, 1]))
    m = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), tokens)
    m = graph.node("Unsqueeze", m, torch.tensor([2]))  # (B, H, 1, D)
    o = graph.node("MatMul", m, values.transpose(1, 2))
    o = graph.node("Reshape", o, torch.tensor([0, dim]))
    return graph.node("Add", o, b_v + w_v @ norm.bias)


def _efficientnet(graph: Graph, tip: EfficientNetTip, tokens: str) -> str:
    x = graph.node("Transpose", tokens, perm=[0, 2, 1])
    x = graph.node("Reshape", x, torch.tensor([0, 0, *tip.sides]))
    pooled = pooled_head(graph, inverted_bottlenecks(graph, x, tip.blocks), tip.head)
    return graph.node("Mul", plain_norm(graph, pooled, DIM), tip.gain)


def _conv_tiny(graph: Graph, tip: ConvTiny, x: str, side: int) -> str:
    for conv, norm in zip(tip.convs, tip.norms):
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.GroupNorm)
        x = graph.node("Conv", x, conv.weight, pads=[1] * 4)
        x = graph.node("Relu", _group_norm(graph, x, norm, side))
        if conv is tip.convs[-1]:
            # Adaptive pooling to 2 x 2: two windows per axis, which share a pixel if the side is odd.
            kernel, stride = -(-side // 2), side // 2
        else:
            kernel = stride = 2
            side //= 2
        x = graph.node("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2)
    return linear(graph, graph.node("Flatten", x), tip.out)


def _group_norm(graph: Graph, x: str, norm: nn.GroupNorm, side: int) -> str:
    """Group norm of (B, C, side, side) as an instance norm with each group as one channel."""
    groups = norm.num_groups
    x = graph.node("Reshape", x, torch.tensor([0, groups, -1]))
    x = graph.node("InstanceNormalization", x, torch.ones(groups), torch.zeros(groups), epsilon=norm.eps)
    x = graph.node("Reshape", x, torch.tensor([0, norm.num_channels, side, side]))
    x = graph.node("Mul", x, norm.weight[:, None, None])
    return graph.node("Add", x, norm.bias[:, None, None])


def _resnet(graph: Graph, tip: ResNet18, x: str) -> str:
    def conv_norm(x: str, conv: nn.Module, norm: nn.Module) -> str:
        """Add a convolution with its batch norm folded in."""
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        mean, variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
        factor = norm.weight * torch.rsqrt(variance + norm.eps)
        weight, bias = conv.weight * factor[:, None, None, None], norm.bias - mean * factor
        pad, stride = conv.kernel_size[0] // 2, conv.stride[0]
        return graph.node("Conv", x, weight, bias, strides=[stride] * 2, pads=[pad] * 4)

    x = graph.node("Relu", conv_norm(x, tip.stem[0], tip.stem[1]))
    if isinstance(tip.stem[-1], nn.MaxPool2d):
        x = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for block in tip.blocks:
        assert isinstance(block, BasicBlock)
        y = graph.node("Relu", conv_norm(x, block.conv1, block.norm1))
        y = conv_norm(y, block.conv2, block.norm2)
        if isinstance(block.shortcut, nn.Sequential):
            x = conv_norm(x, block.shortcut[0], block.shortcut[1])
        x = graph.node("Relu", graph.node("Add", y, x))
    return graph.node("Flatten", graph.node("GlobalAveragePool", x))
