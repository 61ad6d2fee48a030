"""GCD+EWC: GCD with a classifier in place of SupCon, and elastic weight consolidation (the paper's supplement C).

    L = (1 - beta) L_SimCLR + beta L_CE + lambda / 2 sum_i F_i (theta_i - theta*_i)^2

theta are the parameters of the tip, theta* their values after the task before, and F the diagonal
of the Fisher information of the labelled likelihood, summed over the tasks so far:

    F <- F + 1/n sum_(x, y) ( d log p(y | x) / d theta )^2          over the labelled images of the task

lambda is FACIL's 5000, from which the paper's code takes it, divided by the batch size. FACIL
squares the mean gradient of a batch of B images. Where the gradients of images are independent with
mean 0, this is on average F / B, so that 5000 / B with our F is the same penalty as 5000 with
theirs.

The paper's code differs from FACIL and from this file: gradients accumulate from batch to batch,
because they are never set to zero before they are squared; the class of an image is the largest
entry of its feature, as if the feature were the logits; F is 0.1 times the old plus 0.9 times the
new one; the penalty is added 1.1 times; L_CE is on one weakly augmented view instead of both views;
and its script sets a learning rate of 0.1. Training here has the paper's learning rate of 0.001.
"""

import torch
from torch import Tensor, nn

from camp.methods.base import BuildContext
from camp.methods.consolidation import Classifier, ElasticWeightConsolidation
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.gccd.settings import GcdEwcSettings
from camp.methods.heads import gcd_projector
from camp.methods.trainer import Objective
from camp.methods.two_views import TwoViewObjective, unlabelled
from camp.nn.init import init_default_
from camp.nn.losses import balanced, cross_entropy, simclr


class EwcObjective(TwoViewObjective):
    """SimCLR on the images of the task, cross-entropy over the known classes on the labelled ones."""

    def __init__(self, settings: GcdEwcSettings, dim: int, known: int, generator: torch.Generator) -> None:
        super().__init__()
        self.settings = settings
        self.projector = gcd_projector(dim, settings.projector_width, generator)
        self.classifier = init_default_(nn.Linear(dim, max(1, known)), generator)

    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return L_SimCLR, L_CE and their sum for features z (2, B, D)."""
        s = self.settings
        l_simclr = simclr(self.projector(unlabelled(z, num_task_images)), s.simclr_temperature)
        l_ce = cross_entropy(self.classifier(z[:, num_task_images:]), labels, temperature=1.0)
        return {"simclr": l_simclr, "ce": l_ce, "loss": balanced(l_simclr, l_ce, s.beta)}


def _classifier(objective: Objective) -> tuple[Classifier, int]:
    assert isinstance(objective, EwcObjective)
    return objective.classifier, 0


def make_gcd_ewc(context: BuildContext, settings: GcdEwcSettings) -> CentroidMethod:
    """Make GCD with a classifier and the penalty."""
    parts = Composition(
        objective=lambda sizes, generator: EwcObjective(settings, sizes.dim, sizes.known, generator),
        training=settings.training,
        discovery=settings.discovery,
        callbacks=[ElasticWeightConsolidation(settings.strength, _classifier)],
    )
    return CentroidMethod(context, parts)
