"""A small convolutional net for digits of 16 pixels, trained from scratch."""

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
    """The field "pixels" (B, 3, R, R) -> features (B, 128), by 89,000 weights.

    The norms look at one picture at a time: no statistics of old tasks have to be carried along, and training
    and evaluation compute the same. The last 2 x 2 positions stay apart, since a digit is where its strokes
    lie; pooled over all positions the same net needs batch norms, and more epochs, to do as well.
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
        """Features."""
        x = batch["pixels"]
        for conv, norm in zip(self.convs, self.norms):
            x = F.relu(norm(conv(x)))
            # Halves a side; the last one ends in 2 x 2 whatever the resolution.
            x = F.max_pool2d(x, 2) if conv is not self.convs[-1] else F.adaptive_max_pool2d(x, 2)
        return self.out(x.flatten(1))
