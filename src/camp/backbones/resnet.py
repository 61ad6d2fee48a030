"""ResNet-18, trained from scratch, with the stem for small pictures or the one for large ones.

He et al., Deep Residual Learning for Image Recognition, https://arxiv.org/abs/1512.03385.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.views.base import Batch

DIM = 512
SMALL = 64
"""Up to this many pixels the small stem is used: 3 x 3 with stride 1, and no pooling behind it."""


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H / stride, W / stride)."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    """The field "pixels" (B, 3, R, R) -> features (B, 512)."""

    def __init__(self, resolution: int, generator: torch.Generator) -> None:
        super().__init__()
        if resolution <= SMALL:
            self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        else:
            self.stem = nn.Sequential(
                nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
            )
        blocks, channels = [], 64
        for channels_out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(channels, channels_out, stride), BasicBlock(channels_out, channels_out, 1)]
            channels = channels_out
        self.blocks = nn.Sequential(*blocks)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(
                    module.weight, mode="fan_out", nonlinearity="relu", generator=generator
                )

    def forward(self, batch: Batch) -> Tensor:
        """Features, pooled over the positions."""
        return self.blocks(self.stem(batch["pixels"])).mean(dim=(2, 3))
