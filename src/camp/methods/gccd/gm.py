"""GM: Grow and Merge (Zhang et al., NeurIPS 2022), under the protocol of the other methods.

Two branches: the static one, theta_s, is the frozen tip of the task before; the dynamic one, theta_d, starts as its
copy and learns the task.

    growing    L_SSL = L_SimCLR + L_pairs                        on the images of the task, treated as unlabelled
               L     = (1 - alpha) ((1 - beta) L_SSL + beta L_CE) + alpha |F_d(x) - F_s(x)|^2
    merging    theta = m theta_s + (1 - m) theta_d               from the second task on

    L_pairs = -1/B^2 sum_ij ( s_ij log p_i.p_j' + (1 - s_ij) log(1 - p_i.p_j') )

p and p' are the predictions of a head of K categories for the two views, and s_ij is 1 if images i and j are mutual
nearest neighbours. Then semi-supervised k-means and the nearest centroid, in the merged space.

Differences from the paper, whose equations and hyperparameters were not available: pairs are pseudo-labelled by
mutual neighbours instead of ranking statistics; L_CE and L_pairs share one head that is new in each task, since
earlier categories are represented by centroids; novel images are not detected before growing, since k-means separates
them. docs/results.md, "Defaults chosen by measurement", has the numbers.
"""

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.methods.base import BuildContext
from camp.methods.components import Callback, TaskRun
from camp.methods.distillation import Distillation
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.gccd.settings import GmSettings
from camp.methods.heads import CosinePrototypes, gcd_projector
from camp.methods.two_views import TwoViewObjective, unlabelled
from camp.nn.losses import balanced, cross_entropy, mutual_neighbours, pairwise, simclr


class GmObjective(TwoViewObjective):
    """The loss of the growing branch: L_SSL on the images of the task, L_CE on the labelled ones."""

    def __init__(self, settings: GmSettings, dim: int, categories: int, generator: torch.Generator) -> None:
        super().__init__()
        self.settings = settings
        self.projector = gcd_projector(dim, settings.projector_width, generator)
        self.prototypes = CosinePrototypes(dim, categories, generator)

    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return the terms of the loss for features z (2, B, D)."""
        s = self.settings
        logits = self.prototypes(z)
        alike = mutual_neighbours(unlabelled(z, num_task_images)[0].detach(), s.neighbours)
        terms = {
            "simclr": simclr(self.projector(unlabelled(z, num_task_images)), s.simclr_temperature),
            "pairs": pairwise(unlabelled(logits, num_task_images), alike),
            "ce": cross_entropy(logits[:, num_task_images:], labels),
        }
        terms["loss"] = balanced(terms["simclr"] + terms["pairs"], terms["ce"], s.beta)
        return terms


class BranchMerging(Callback):
    """Averages the tip with the one of the task before."""

    def __init__(self, weight: float | None) -> None:
        self.weight = weight

    @torch.no_grad()
    def after_training(self, run: TaskRun, progress: Progress) -> None:
        """theta = m theta_static + (1 - m) theta_dynamic, from the second task on."""
        if run.old_tip is None:
            return
        t = run.task.index
        m = self.weight if self.weight is not None else t / (t + 1)
        static = run.old_tip.state_dict()
        for name, dynamic in run.tip.state_dict().items():
            if dynamic.is_floating_point():
                dynamic.lerp_(static[name], m)


def make_gm(context: BuildContext, settings: GmSettings) -> CentroidMethod:
    """Make GM: its objective, distillation from the static branch, and merging."""
    parts = Composition(
        objective=lambda sizes, generator: GmObjective(settings, sizes.dim, sizes.total(), generator),
        training=settings.training,
        discovery=settings.discovery,
        distiller="fd" if settings.alpha else "none",
        distillation=Distillation(settings.alpha, "mse", data="all", views="mean"),
        exemplars=settings.exemplars,
        callbacks=[BranchMerging(settings.merge)],
    )
    return CentroidMethod(context, parts)
