"""Heads of methods: projection heads and cosine classifiers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.nn.init import init_default_, trunc_normal_


def camp_projector(dim: int, width: int, generator: torch.Generator) -> nn.Sequential:
    """Make g of CAMP and SimGCD: D -> width -> width -> 256 with GELU, weights from a normal of deviation 0.02."""
    network = nn.Sequential(
        nn.Linear(dim, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 256)
    )
    for layer in network:
        if isinstance(layer, nn.Linear):
            trunc_normal_(layer.weight, 0.02, generator)
            nn.init.zeros_(layer.bias)
    return network


def gcd_projector(dim: int, width: int, generator: torch.Generator) -> nn.Sequential:
    """Make a projection head of GCD: D -> width -> 128 with ReLU."""
    return init_default_(nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, 128)), generator)


class CosinePrototypes(nn.Module):
    """K prototypes, whose cosines with features are logits before the temperature."""

    def __init__(self, dim: int, count: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = dim**-0.5
        self.weight = nn.Parameter(torch.empty(count, dim).uniform_(-bound, bound, generator=generator))

    def forward(self, z: Tensor) -> Tensor:
        """Return the cosines (..., K) of features (..., D)."""
        return cosines(z, self.weight)


def cosines(z: Tensor, prototypes: Tensor) -> Tensor:
    """Return the cosines (..., K) of features (..., D) with prototypes (K, D)."""
    return F.normalize(z, dim=-1) @ F.normalize(prototypes, dim=-1).T
