"""SSRE: Self-Sustaining Representation Expansion (Zhu et al., CVPR 2022).

From the second task on the network is frozen except for side branches beside its 3 x 3 convolutions, which are folded
into them after the task (`nn/backbones/side_branches.py`). The similarity of an image to old prototypes mu_c,

    s_i = max_c cos(F^t(x_i), mu_c)^+          without a gradient,

weights its losses: images similar to old classes are used for distillation, the others for learning the new classes.

    L = L_CE + lambda_f L_F + lambda_p L_P       from the second task on,  L_CE with s = 0 in the first
    L_CE = 1/B sum_i (1 - s_i) ce(x_i, y_i),     L_F = sum_i s_i |F^t(x_i) - F^{t-1}(x_i)|

ce is over all classes so far, with logits divided by the temperature, and L_P is the same of B prototypes without noise,
drawn uniformly from the old classes, as in the authors' code and PyCIL. L_F is a sum over the batch, as theirs.

Differences from the authors' code: they fold the batch norms of the first task into the convolutions; here these keep the
statistics of the first task, which is the same function. The stem has a branch too if it is 3 x 3. There is no gradient
through s, as in PyCIL. Negative similarities, which occur with conv-tiny alone, count as 0.

Training has the defaults of PyCIL (exps/ssre.json). Not taken over from there: batches of 64 in the first task; side
branches in the first task, which are folded into the convolutions after it and add no function; AutoAugment and Cutout,
which its code applies in the second task alone (it compares the index of the task before advancing it) and the authors'
code nowhere. The authors' later tasks have 60 epochs at a learning rate of 2e-4.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.progress import Progress
from camp.methods.base import BuildContext
from camp.methods.cil.base import IncrementalMethod
from camp.methods.cil.prototypes import PrototypeObjective, prototype_replay
from camp.methods.cil.settings import SsreSettings
from camp.methods.components import Callback, TaskRun
from camp.methods.trainer import Plan
from camp.nn.backbones.side_branches import SideBranches


class SsreObjective(PrototypeObjective):
    """Cross-entropy and distillation weighted by similarity to old classes, and old prototypes."""

    def plan(self, labels: Tensor, draw: torch.Generator) -> Plan:
        """Draw a prototype for each image."""
        if self.prototypes is None:
            return {}
        return {"classes": self.prototypes.draw_classes(len(labels), draw)}

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:
        """Return L and its terms for features z and z_old (1, B, D)."""
        ce = self._cross_entropy(z[0], labels)
        if z_old is None or self.prototypes is None:
            return {"ce": ce.mean(), "loss": ce.mean()}
        s = similarity(z[0].detach(), self.prototypes.means)
        l_ce = ((1 - s) * ce).mean()
        l_f = (s * (z[0] - z_old[0]).norm(dim=1)).sum()
        l_p = self._cross_entropy(self.prototypes.means[plan["classes"]], plan["classes"]).mean()
        return self.total(l_ce, l_f, l_p)

    def _cross_entropy(self, z: Tensor, labels: Tensor) -> Tensor:
        """Return ce (B,) of features (B, D)."""
        return F.cross_entropy(self.classifier(z) / self.settings.temperature, labels, reduction="none")


def similarity(z: Tensor, means: Tensor) -> Tensor:
    """Return s (B,) of features z (B, D) for prototypes (K, D)."""
    return (F.normalize(z, dim=1) @ F.normalize(means, dim=1).T).amax(dim=1).clamp_min(0)


class BranchTraining(Callback):
    """Adds side branches to the network for a task, and folds them into it afterwards."""

    def __init__(self) -> None:
        self.branches: SideBranches | None = None

    def before_training(self, run: TaskRun) -> None:
        """Add branches from the second task on; the old tip was copied without them."""
        self.branches = SideBranches(run.tip) if run.task.index else None

    def after_training(self, run: TaskRun, progress: Progress) -> None:
        """Fold the branches into the convolutions."""
        if self.branches is not None:
            self.branches.fold()
            self.branches = None


def make_ssre(context: BuildContext, settings: SsreSettings) -> IncrementalMethod:
    """Make SSRE, on pixels."""
    return prototype_replay(context, settings, "SSRE", SsreObjective, callbacks=[BranchTraining()])
