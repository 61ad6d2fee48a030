"""The networks that distillers and adapters are made of: (n, D) -> (n, D)."""

import torch.nn.functional as F
from torch import Tensor, nn


def linear(dim: int) -> nn.Module:
    """One affine map."""
    return nn.Linear(dim, dim)


def mlp(dim: int) -> nn.Module:
    """CAMP's phi: two layers with batch norm and ReLU between them."""
    return nn.Sequential(nn.Linear(dim, dim), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, dim))


def trex(dim: int) -> nn.Sequential:
    """T-ReX as the reference has it: on the unit sphere, one hidden layer of twice the width."""
    return nn.Sequential(
        UnitLength(),
        nn.Linear(dim, 2 * dim),
        nn.BatchNorm1d(2 * dim),
        nn.GELU(),
        nn.Linear(2 * dim, dim),
        UnitLength(),
    )


class UnitLength(nn.Module):
    """x / |x|."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, D) -> (n, D)."""
        return F.normalize(x, dim=-1)
