"""GM: Grow and Merge (Zhang et al., NeurIPS 2022), under the protocol of the other methods.

Two branches: the static one, theta_s, is the tip after the task before and stays frozen; the dynamic one,
theta_d, begins as its copy and learns the task.

    growing    L_SSL = L_SimCLR + L_pairs                        on the task's pictures, taken as unlabelled
               L     = (1 - alpha) ((1 - beta) L_SSL + beta L_CE) + alpha |F_d(x) - F_s(x)|^2
    merging    theta = m theta_s + (1 - m) theta_d               from the second task on

    L_pairs = -1/B^2 sum_ij ( s_ij log p_i.p_j' + (1 - s_ij) log(1 - p_i.p_j') )

where p and p' are what a head of K categories makes of the two views, and s_ij says whether pictures i and j
are taken to be alike. Then semi-supervised k-means and the nearest centroid, in the merged space.

Of the paper its abstract, its overview and others' accounts of it could be read, not its equations or
numbers: two branches, self-supervision, pairs pseudo-labelled in the way of ranking statistics, distillation,
and a momentum update of the static branch. What is ours, with what was measured on CUB-200 (seed 0,
10 epochs, EfficientNet-Lite0, one run each, accuracy on the test pictures, no validation set):

- s_ij: mutual neighbours by cosine. Ranking statistics ask for the same 5 greatest of 1280 features, and
  before training not one of the first task's 718,201 pairs of pictures has them. In batches of 128 mutual
  neighbours among 5 are right in 33 % of the pairs and find 28 % of the true ones (2.4 % of all are true).
- alpha: accuracy over all tasks is 29.1 % with 0 and 45.3 % with 0.5 (m = 0.5 both times).
- m: t / (t + 1), the mean over the tasks, gives 45.5 %, 0.5 gives 45.3 % and 0.9 gives 43.1 %. The first two
  are too near to each other to be told apart by one run; the mean needs no number.
- L_CE and L_pairs share one head, made anew in each task. Earlier categories live on as centroids, so nothing
  stands for the paper's unification of old and new categories in one classifier.
- Nothing tells novel pictures from known ones before growing: in a task of ours both come together, and
  k-means tells them apart.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.heads import Prototypes, gcd_projector
from camp.methods.settings import ContrastiveSettings, check_exemplars, check_share
from camp.methods.trainer import Distillation, Objective, unlabelled
from camp.nn.backbones.base import Backbone
from camp.nn.losses import balanced, cross_entropy, mutual_neighbours, pairwise, simclr


@dataclass(frozen=True)
class GmSettings(ContrastiveSettings):
    """Grow and Merge under the protocol of the other methods."""

    merge: float | None = None
    """m, the weight of the static branch in the merged one; by default t / (t + 1), the mean over tasks."""
    alpha: float = 0.5
    """Weight of feature distillation from the static branch while growing."""
    neighbours: int = 5
    """Pictures of a step that a picture may be taken to be alike."""
    exemplars: int = 0
    """Labelled pictures of each known class kept for later tasks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("merge", self.merge)
        check_share("alpha", self.alpha)
        check_exemplars(self.exemplars)
        if self.neighbours < 1:
            raise CampError(f"neighbours counts pictures and must be at least 1, not {self.neighbours}.")


class GmObjective(Objective):
    """What the dynamic branch grows by: L_SSL on the task's pictures, L_CE on the labelled ones."""

    def __init__(self, settings: GmSettings, dim: int, categories: int, generator: torch.Generator) -> None:
        super().__init__()
        self.settings = settings
        self.projector = gcd_projector(dim, settings.projector_width, generator)
        self.prototypes = Prototypes(dim, categories, generator)

    def forward(self, z: Tensor, own: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """z (2, B, D); the pictures from `own` on have `labels`. The first ones count as unlabelled."""
        s = self.settings
        logits = self.prototypes(z)
        alike = mutual_neighbours(unlabelled(z, own)[0].detach(), s.neighbours)
        terms = {
            "simclr": simclr(self.projector(unlabelled(z, own)), s.simclr_temperature),
            "pairs": pairwise(unlabelled(logits, own), alike),
            "ce": cross_entropy(logits[:, own:], labels),
        }
        terms["loss"] = balanced(terms["simclr"] + terms["pairs"], terms["ce"], s.beta)
        return terms


class GmMethod(CentroidMethod):
    """A tip that grows freely in each task and is then averaged with the one before."""

    def __init__(
        self, backbone: Backbone, parts: Composition, merge: float | None, seed: int, device: torch.device
    ) -> None:
        super().__init__(backbone, parts, seed, device)
        self.merge = merge

    @torch.no_grad()
    def _trained(self, progress: Progress) -> None:
        """theta = m theta_static + (1 - m) theta_dynamic, from the second task on."""
        if self._old_tip is None:
            return
        t = self._current().index
        m = self.merge if self.merge is not None else t / (t + 1)
        static = self._old_tip.state_dict()
        for name, dynamic in self.tip.state_dict().items():
            if dynamic.is_floating_point():
                dynamic.lerp_(static[name], m)


def make_gm(backbone: Backbone, settings: GmSettings, seed: int, device: torch.device) -> GmMethod:
    """GM as a composition: its objective, distillation from the static branch, and merging."""
    parts = Composition(
        objective=lambda sizes, generator: GmObjective(settings, sizes.dim, sizes.total, generator),
        training=settings.training,
        discovery=settings.discovery,
        distiller="fd" if settings.alpha else "none",
        distillation=Distillation(settings.alpha, "mse", data="all", views="mean"),
        exemplars=settings.exemplars,
    )
    return GmMethod(backbone, parts, settings.merge, seed, device)
