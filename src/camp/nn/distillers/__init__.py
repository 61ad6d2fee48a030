"""Distillers phi: Z_t -> Z_t-1, projections of new features to the old feature space, new for each task."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.core.errors import CampError
from camp.nn.init import init_default_


class L2Normalize(nn.Module):
    """L2 normalisation, x / |x|."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (n, D) -> (n, D)."""
        return F.normalize(x, dim=-1)


def mlp(dim: int) -> nn.Module:
    """Two linear layers with batch norm and ReLU between them, the phi of CAMP."""
    return nn.Sequential(nn.Linear(dim, dim), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, dim))


def trex(dim: int) -> nn.Sequential:
    """T-ReX as in the authors' code: normalised input and output, one hidden layer of twice the width."""
    return nn.Sequential(
        L2Normalize(),
        nn.Linear(dim, 2 * dim),
        nn.BatchNorm1d(2 * dim),
        nn.GELU(),
        nn.Linear(2 * dim, dim),
        L2Normalize(),
    )


DISTILLERS: dict[str, Callable[[int], nn.Module] | None] = {
    "none": None,
    "fd": lambda dim: nn.Identity(),
    "linear": lambda dim: nn.Linear(dim, dim),
    "mlp": mlp,
    "trex": trex,
}


def make_distiller(name: str, dim: int, generator: torch.Generator) -> nn.Module | None:
    """Build the distiller `name` for features of length `dim`, initialized from `generator`."""
    if name not in DISTILLERS:
        raise CampError(f'There is no distiller "{name}"; the distillers are {", ".join(DISTILLERS)}.')
    network = DISTILLERS[name]
    return init_default_(network(dim), generator) if network is not None else None
