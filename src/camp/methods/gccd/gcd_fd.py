"""GCD+FD: GCD with feature distillation (the paper's supplement C).

    L = (1 - alpha) L_GCD + alpha L_FD,   L_FD = |F^t(x) - F^{t-1}(x)|^2      from the second task on

on the pictures of the task, without labels, summed over their two views as in the reference. Features are held
where they were; CAMP's distiller holds them only up to a learned map.
"""

from dataclasses import dataclass

import torch

from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.gccd.gcd import GcdObjective, GcdSettings
from camp.methods.settings import check_share
from camp.methods.trainer import Distillation
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class GcdFdSettings(GcdSettings):
    """GCD's settings, and the weight of distillation."""

    alpha: float = 0.5
    """Weight of feature distillation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("alpha", self.alpha)


def make_gcd_fd(
    backbone: Backbone, settings: GcdFdSettings, seed: int, device: torch.device
) -> CentroidMethod:
    """GCD with the distiller that changes nothing."""
    parts = Composition(
        objective=lambda sizes, generator: GcdObjective(settings, sizes.dim, generator),
        training=settings.training,
        discovery=settings.discovery,
        distiller="fd",
        distillation=Distillation(settings.alpha, kind="mse", data="task", views="sum"),
    )
    return CentroidMethod(backbone, parts, seed, device)
