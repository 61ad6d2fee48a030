"""Small convolutional network for digits of 16 pixels, trained from scratch."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.data.views import Batch
from camp.nn.init import init_default_

DIM = 128
MEAN = (0.5, 0.5, 0.5)
STD = (0.5, 0.5, 0.5)


class ConvTiny(nn.Module):
    """Network from the field "pixels" (B, 3, R, R) to features (B, 128).

    Group norms normalise each image by itself, so there are no running statistics of old tasks. The
    last 2 x 2 positions are not pooled, since digits differ in where their strokes are.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        widths = (3, 32, 64, 64)
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding=1, bias=False) for before, after in pairwise(widths)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(width // 8, width) for width in widths[1:])
        self.out = nn.Linear(4 * widths[-1], DIM)
        init_default_(self, generator)

    def forward(self, batch: Batch) -> Tensor:
        """Compute features (B, 128)."""
        x = batch["pixels"]
        for conv, norm in zip(self.convs, self.norms):
            x = F.relu(norm(conv(x)))
            # Halve the sides; the last layer pools to 2 x 2 at any resolution.
            x = F.max_pool2d(x, 2) if conv is not self.convs[-1] else F.adaptive_max_pool2d(x, 2)
        features: Tensor = self.out(x.flatten(1))
        return features
