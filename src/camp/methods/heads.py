"""Networks behind the features that live for one task: projectors and prototypes."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.nn.init import init_default_, trunc_normal_


def camp_projector(dim: int, width: int, generator: torch.Generator) -> nn.Sequential:
    """g of CAMP and SimGCD: D -> width -> width -> 256 with GELU, no batch norm, normal weights of 0.02."""
    network = nn.Sequential(
        nn.Linear(dim, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 256)
    )
    for layer in network:
        if isinstance(layer, nn.Linear):
            trunc_normal_(layer.weight, 0.02, generator)
            nn.init.zeros_(layer.bias)
    return network


def gcd_projector(dim: int, width: int, generator: torch.Generator) -> nn.Sequential:
    """One of GCD's two heads: D -> width -> 128 with ReLU."""
    return init_default_(nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, 128)), generator)


class Prototypes(nn.Module):
    """Cosines of features (..., D) with K prototypes: (..., K) logits before the temperature."""

    def __init__(self, dim: int, count: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = dim**-0.5
        self.weight = nn.Parameter(torch.empty(count, dim).uniform_(-bound, bound, generator=generator))

    def forward(self, z: Tensor) -> Tensor:
        """(..., D) -> (..., K)."""
        return cosines(z, self.weight)


def cosines(z: Tensor, prototypes: Tensor) -> Tensor:
    """(..., D) with (K, D): (..., K)."""
    return F.normalize(z, dim=-1) @ F.normalize(prototypes, dim=-1).T
