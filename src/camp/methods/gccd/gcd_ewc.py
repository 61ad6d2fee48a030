"""GCD+EWC: GCD with a classifier in place of SupCon, and elastic weight consolidation (the paper's supplement C).

    L = (1 - beta) L_SimCLR + beta L_CE + lambda / 2 sum_i F_i (theta_i - theta*_i)^2

theta are the tip's parameters, theta* what they were after the task before, and F the diagonal of the Fisher
information of the labelled likelihood, summed over the tasks so far:

    F <- F + 1/n sum_(x, y) ( d log p(y | x) / d theta )^2          over the labelled pictures of the task

Where this differs from the reference, whose F is not a Fisher information: it squares gradients of whole batches,
that pile up because they are never zeroed, takes the strongest output of the backbone for a class in place of the
label, forgets nine tenths of F at each task, and counts the penalty 1.1 times. It also trains at a learning rate of
0.1 where its paper says 0.001; so do we.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.methods.consolidation import Consolidating, Consolidation, diagonal_fisher
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.heads import gcd_projector
from camp.methods.settings import ContrastiveSettings
from camp.methods.trainer import Objective, Phase1, unlabelled
from camp.nn.backbones.base import Backbone
from camp.nn.init import init_default_
from camp.nn.losses import balanced, cross_entropy, simclr


@dataclass(frozen=True)
class GcdEwcSettings(ContrastiveSettings):
    """GCD's settings without SupCon's, and the strength of consolidation."""

    ewc: float = 5000.0
    """lambda, the weight of the penalty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.ewc >= 0:
            raise CampError(f"ewc, the weight of the penalty, can not be negative, and {self.ewc} is.")


class EwcObjective(Objective):
    """SimCLR on the pictures of the task, cross-entropy over the known classes on the labelled ones."""

    def __init__(self, settings: GcdEwcSettings, dim: int, known: int, generator: torch.Generator) -> None:
        super().__init__()
        self.settings = settings
        self.projector = gcd_projector(dim, settings.projector_width, generator)
        self.classifier = nn.Linear(dim, max(1, known))
        init_default_(self.classifier, generator)

    def forward(self, z: Tensor, own: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """z (2, B, D); the pictures from `own` on have `labels`."""
        s = self.settings
        l_simclr = simclr(self.projector(unlabelled(z, own)), s.simclr_temperature)
        l_ce = cross_entropy(self.classifier(z[:, own:]), labels, temperature=1.0)
        return {"simclr": l_simclr, "ce": l_ce, "loss": balanced(l_simclr, l_ce, s.beta)}


class GcdEwc(Consolidating, CentroidMethod):
    """GCD that remembers which parameters mattered."""

    def __init__(
        self, backbone: Backbone, parts: Composition, strength: float, seed: int, device: torch.device
    ) -> None:
        super().__init__(backbone, parts, seed, device)
        self.consolidation = Consolidation(strength)

    def _phase(self, **parts: Any) -> Phase1:
        return Phase1(**parts, penalty=self.consolidation.penalty(self.tip, self._old_tip))

    def _trained(self, progress: Progress) -> None:
        """Add the task's Fisher information to that of earlier ones."""
        task, objective = self._current(), self._training().objective
        assert isinstance(objective, EwcObjective)
        rows = (task.labels >= 0).nonzero()[:, 0]
        if len(rows):
            views, labels = task.views.subset(rows), task.labels[rows].to(self.device)
            self.consolidation.gather(
                diagonal_fisher(self.tip, objective.classifier, views, labels, progress)
            )


def make_gcd_ewc(backbone: Backbone, settings: GcdEwcSettings, seed: int, device: torch.device) -> GcdEwc:
    """GCD with a classifier and a penalty."""
    parts = Composition(
        objective=lambda sizes, generator: EwcObjective(settings, sizes.dim, sizes.known, generator),
        training=settings.training,
        discovery=settings.discovery,
    )
    return GcdEwc(backbone, parts, settings.ewc, seed, device)
