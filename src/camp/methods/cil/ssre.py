"""SSRE: Self-Sustaining Representation Expansion (Zhu et al., CVPR 2022).

From the second task on the network stands still but for side branches beside its 3 x 3 convolutions, which are folded
into them when the task is learned (`backbones/side_branches.py`). How near a picture lies to an old prototype mu_c,

    s_i = max_c cos(F^t(x_i), mu_c)^+          without a gradient,

selects what it is for: pictures like old ones keep the features where they were, the others learn the new classes.

    L = L_CE + lambda_f L_F + lambda_p L_P       from the second task on,  L_CE with s = 0 in the first
    L_CE = 1/B sum_i (1 - s_i) ce(x_i, y_i),     L_F = sum_i s_i |F^t(x_i) - F^{t-1}(x_i)|

ce is over all classes so far, with logits divided by the temperature, and L_P is the same of B prototypes as they are,
drawn uniformly from the old classes; noise, as PASS has it, belongs to neither the authors' code nor PyCIL's. The sum of
L_F is theirs as well: with 128 pictures in a step it is 128 times as strong as a mean.

Where this differs from the authors' code: they fold the batch norms of the first task into the convolutions; ours stay
what they are, with the statistics of the first task, which is the same function. The stem has a branch too if it is
3 x 3. A gradient through s, which they have and PyCIL has not, would reward features for leaving the prototypes. Their s
can not be negative, since their features can not; ours can with conv-tiny, where it counts as 0.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.progress import Progress
from camp.methods.cil.base import Plan
from camp.methods.cil.prototypes import PrototypeMethod, PrototypeObjective, PrototypeSettings, check_pixels
from camp.methods.trainer import Phase1
from camp.nn.backbones.base import Backbone
from camp.nn.backbones.side_branches import SideBranches


@dataclass(frozen=True)
class SsreSettings(PrototypeSettings):
    """Those of every method with prototypes."""

    feature_weight: float = 1.0
    """lambda_f, the weight of feature distillation, a sum over the pictures of a step."""


class SsreObjective(PrototypeObjective):
    """Cross-entropy of what is new, distillation of what is like the old, and old prototypes."""

    def plan(self, labels: Tensor, draw: torch.Generator) -> Plan:
        """A prototype for each picture."""
        if self.prototypes is None:
            return {}
        return {"classes": self.prototypes.draw_classes(len(labels), draw)}

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:  # type: ignore[override]
        """z and z_old (1, B, D)."""
        ce = self._cross_entropy(z[0], labels)
        if z_old is None or self.prototypes is None:
            return {"ce": ce.mean(), "loss": ce.mean()}
        s = nearness(z[0].detach(), self.prototypes.means)
        l_ce = ((1 - s) * ce).mean()
        l_f = (s * (z[0] - z_old[0]).norm(dim=1)).sum()
        l_p = self._cross_entropy(self.prototypes.means[plan["classes"]], plan["classes"]).mean()
        return self.total(l_ce, l_f, l_p)

    def _cross_entropy(self, z: Tensor, labels: Tensor) -> Tensor:
        """ce (B,) of features (B, D)."""
        return F.cross_entropy(self.classifier(z) / self.settings.temperature, labels, reduction="none")


def nearness(z: Tensor, means: Tensor) -> Tensor:
    """s (B,) of features z (B, D), for prototypes (K, D)."""
    return (F.normalize(z, dim=1) @ F.normalize(means, dim=1).T).amax(dim=1).clamp_min(0)


class Ssre(PrototypeMethod):
    """A network that grows side branches for each task and takes them in."""

    def __init__(self, backbone: Backbone, settings: SsreSettings, seed: int, device: torch.device) -> None:
        super().__init__(backbone, settings, seed, device)
        self._branches: SideBranches | None = None

    def _objective(self, old: int, known: int, generator: torch.Generator) -> SsreObjective:
        return SsreObjective(self.dim, old, known, generator, self.settings, self._old_prototypes())

    def _prepare(self, progress: Progress) -> Phase1:
        """The old tip has been copied by now, so that it is without branches."""
        self._branches = SideBranches(self.tip) if self._current().index else None
        return super()._prepare(progress)

    def _trained(self, progress: Progress) -> None:
        if self._branches is not None:
            self._branches.fold()
            self._branches = None


def make_ssre(backbone: Backbone, settings: SsreSettings, seed: int, device: torch.device) -> Ssre:
    """SSRE, on pixels."""
    check_pixels(backbone, "SSRE")
    return Ssre(backbone, settings, seed, device)
