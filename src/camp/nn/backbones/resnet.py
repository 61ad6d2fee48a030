"""ResNet-18, trained from scratch, with a stem for small or for large images.

He et al., Deep Residual Learning for Image Recognition, https://arxiv.org/abs/1512.03385. The slim
variant has 20 instead of 64 base channels (Lopez-Paz and Ranzato, Gradient Episodic Memory, 2017).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.data.views import Batch
from camp.nn.backbones.batch_norm import BatchNorm

WIDTHS = {"resnet18": 64, "resnet18-slim": 20}
"""Channels after the stem; features have eight times as many entries."""
SMALL = 64
"""Largest image side for the small stem: a 3 x 3 convolution with stride 1, without pooling."""


class BasicBlock(nn.Module):
    """Residual block of two 3 x 3 convolutions."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.norm1 = BatchNorm(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.norm2 = BatchNorm(channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), BatchNorm(channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H / stride, W / stride)."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    """Network from the field "pixels" (B, 3, R, R) to features (B, 8 * width)."""

    def __init__(self, resolution: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        if resolution <= SMALL:
            self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), BatchNorm(width), nn.ReLU())
        else:
            self.stem = nn.Sequential(
                nn.Conv2d(3, width, 7, 2, 3, bias=False), BatchNorm(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
            )
        blocks, channels = [], width
        for channels_out, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
            blocks += [BasicBlock(channels, channels_out, stride), BasicBlock(channels_out, channels_out, 1)]
            channels = channels_out
        self.blocks = nn.Sequential(*blocks)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(
                    module.weight, mode="fan_out", nonlinearity="relu", generator=generator
                )
        # Faster on a CPU, and the format of tensor cores.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, batch: Batch) -> Tensor:
        """Compute features, pooled over the positions."""
        x = batch["pixels"].contiguous(memory_format=torch.channels_last)
        maps: Tensor = self.blocks(self.stem(x))
        return maps.mean(dim=(2, 3))
