"""GCD: Generalized Category Discovery (Vaze et al., CVPR 2022), fine-tuned from task to task.

    L_GCD = (1 - beta) L_SimCLR + beta L_SupCon

with a projection head for each term, then semi-supervised k-means and the nearest centroid. Nothing is done against
forgetting: the features change, and the centroids of earlier tasks stay where they were.
"""

import torch
from torch import Tensor

from camp.methods.base import BuildContext
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.gccd.settings import GcdSettings
from camp.methods.heads import gcd_projector
from camp.methods.two_views import TwoViewObjective, unlabelled
from camp.nn.losses import balanced, simclr, supcon


class GcdObjective(TwoViewObjective):
    """SimCLR on the images of the task and SupCon on the labelled ones, with a projection head each."""

    def __init__(self, settings: GcdSettings, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.settings = settings
        self.unsupervised = gcd_projector(dim, settings.projector_width, generator)
        self.supervised = gcd_projector(dim, settings.projector_width, generator)

    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return L_SimCLR, L_SupCon and L_GCD of features z (2, B, D)."""
        s = self.settings
        l_simclr = simclr(self.unsupervised(unlabelled(z, num_task_images)), s.simclr_temperature)
        l_supcon = supcon(self.supervised(z[:, num_task_images:]), labels, s.supcon_temperature)
        return {"simclr": l_simclr, "supcon": l_supcon, "loss": balanced(l_simclr, l_supcon, s.beta)}


def gcd_parts(settings: GcdSettings) -> Composition:
    """Return the components of GCD: its objective, and nothing against forgetting."""
    return Composition(
        objective=lambda sizes, generator: GcdObjective(settings, sizes.dim, generator),
        training=settings.training,
        discovery=settings.discovery,
    )


def make_gcd(context: BuildContext, settings: GcdSettings) -> CentroidMethod:
    """Make GCD."""
    return CentroidMethod(context, gcd_parts(settings))
