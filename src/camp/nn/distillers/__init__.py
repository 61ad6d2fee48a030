"""Distillers phi: Z_t -> Z_t-1, from the new feature space back to the old one. Made anew for each task."""

from collections.abc import Callable

import torch
from torch import nn

from camp.core.errors import CampError
from camp.nn.distillers.networks import linear, mlp, trex
from camp.nn.init import init_default_

DISTILLERS: dict[str, Callable[[int], nn.Module] | None] = {
    "none": None,
    "fd": lambda dim: nn.Identity(),
    "linear": linear,
    "mlp": mlp,
    "trex": trex,
}


def make_distiller(name: str, dim: int, generator: torch.Generator) -> nn.Module | None:
    """The distiller `name` for features of length `dim`, with weights from `generator`; None for none."""
    if name not in DISTILLERS:
        raise CampError(f'There is no distiller "{name}"; the distillers are {", ".join(DISTILLERS)}.')
    network = DISTILLERS[name]
    return init_default_(network(dim), generator) if network is not None else None
