"""GCD+FD: GCD with feature distillation (the paper's supplement C).

    L = (1 - alpha) L_GCD + alpha L_FD,   L_FD = |F^t(x) - F^{t-1}(x)|^2      from the second task on

on the images of the task, treated as unlabelled, summed over their two views as in the paper's code. Features must
stay where they were; CAMP's distiller keeps them only up to a learned projection.
"""

from dataclasses import dataclass

import torch

from camp.methods.distillation import Distillation
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.gccd.gcd import GcdObjective, GcdSettings
from camp.methods.settings import check_share
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class GcdFdSettings(GcdSettings):
    """GCD with feature distillation."""

    alpha: float = 0.5
    """Weight of feature distillation, from 0 to 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("alpha", self.alpha)


def make_gcd_fd(
    backbone: Backbone, settings: GcdFdSettings, seed: int, device: torch.device
) -> CentroidMethod:
    """Make GCD with the identity as distiller."""
    parts = Composition(
        objective=lambda sizes, generator: GcdObjective(settings, sizes.dim, generator),
        training=settings.training,
        discovery=settings.discovery,
        distiller="fd",
        distillation=Distillation(settings.alpha, kind="mse", data="task", views="sum"),
    )
    return CentroidMethod(backbone, parts, seed, device)
