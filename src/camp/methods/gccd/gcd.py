"""GCD: Generalized Category Discovery (Vaze et al., CVPR 2022), fine-tuned from task to task.

    L_GCD = (1 - beta) L_SimCLR + beta L_SupCon

with a head of its own for each term, then semi-supervised k-means and the nearest centroid. Nothing holds on
to earlier tasks: old centroids stay where they were while the features move on.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.heads import gcd_projector
from camp.methods.settings import SupConSettings
from camp.methods.trainer import Objective, unlabelled
from camp.nn.backbones.base import Backbone
from camp.nn.losses import balanced, simclr, supcon


@dataclass(frozen=True)
class GcdSettings(SupConSettings):
    """GCD as the reference fine-tunes it."""


class GcdObjective(Objective):
    """SimCLR on the pictures of the task, SupCon on the labelled ones, with two heads."""

    def __init__(self, settings: GcdSettings, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.settings = settings
        self.unsupervised = gcd_projector(dim, settings.projector_width, generator)
        self.supervised = gcd_projector(dim, settings.projector_width, generator)

    def forward(self, z: Tensor, own: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """z (2, B, D); the pictures from `own` on have `labels`."""
        s = self.settings
        l_simclr = simclr(self.unsupervised(unlabelled(z, own)), s.simclr_temperature)
        l_supcon = supcon(self.supervised(z[:, own:]), labels, s.supcon_temperature)
        return {"simclr": l_simclr, "supcon": l_supcon, "loss": balanced(l_simclr, l_supcon, s.beta)}


def make_gcd(backbone: Backbone, settings: GcdSettings, seed: int, device: torch.device) -> CentroidMethod:
    """GCD as a composition: its objective and nothing against forgetting."""
    parts = Composition(
        objective=lambda sizes, generator: GcdObjective(settings, sizes.dim, generator),
        training=settings.training,
        discovery=settings.discovery,
    )
    return CentroidMethod(backbone, parts, seed, device)
