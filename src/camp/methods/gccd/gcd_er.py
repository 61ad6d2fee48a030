"""GCD+ER: GCD with experience replay (Riemer et al., ICLR 2019).

Random labelled images of each known class are kept and added to the labelled batches of later tasks, so that SupCon
continues to separate earlier classes. Nothing else is done against forgetting.
"""

from dataclasses import dataclass

import torch

from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.gccd.gcd import GcdObjective, GcdSettings
from camp.methods.settings import check_exemplars
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class GcdErSettings(GcdSettings):
    """GCD with an exemplar memory."""

    exemplars: int = 20
    """Number of labelled images of each known class that are kept for later tasks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exemplars(self.exemplars)


def make_gcd_er(
    backbone: Backbone, settings: GcdErSettings, seed: int, device: torch.device
) -> CentroidMethod:
    """Make GCD with an exemplar memory."""
    parts = Composition(
        objective=lambda sizes, generator: GcdObjective(settings, sizes.dim, generator),
        training=settings.training,
        discovery=settings.discovery,
        exemplars=settings.exemplars,
    )
    return CentroidMethod(backbone, parts, seed, device)
