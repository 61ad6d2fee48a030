"""SimGCD: parametric classification for generalized category discovery (Wen et al., ICCV 2023).

    L_SSL = L_SimCLR + L_pseudo          on every image of the step
    L_SL  = L_SupCon + L_CE              on the labelled ones
    L     = (1 - beta) L_SSL + beta L_SL

    f(x)  = argmax_k cos(F(x), w_k)      over the prototypes w of all categories so far

There is no clustering: the prototypes learn to represent novel categories. Projector and prototypes are persistent,
and a task adds a prototype for each of its new categories; its row is the position of the category.

The losses of a task use the prototypes of its own categories. With those of all categories so far (`prototypes =
"all"`, as in the paper's code, which has all K from the start) the mean-entropy term assigns novel images to old
prototypes and the new ones stay empty (docs/results.md, "Defaults chosen by measurement"). Either way nothing is
done against forgetting.

The paper's code multiplies L by 0.9 from the second task on, a remnant of a distillation that it leaves out; that
factor has hardly any effect with Adam, and is left out here.
"""

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.discovery.base import DiscoveryResult
from camp.discovery.nearest_centroid import NearestCentroid
from camp.methods.base import BuildContext
from camp.methods.components import TaskRun
from camp.methods.gccd.parametric import ParametricMethod, PrototypeRows
from camp.methods.gccd.settings import SimgcdSettings
from camp.methods.heads import CosinePrototypes, camp_projector, cosines
from camp.methods.settings import SimgcdLosses
from camp.methods.trainer import Trainer, TrainingData, clean_features
from camp.methods.two_views import TwoViewObjective, TwoViewStep
from camp.nn.losses import (
    balanced,
    cross_entropy,
    mean_entropy,
    pseudo_label,
    simclr,
    supcon,
    teacher_temperature,
)


class SimgcdObjective(TwoViewObjective):
    """SimGCD's loss, with a projection head and K prototypes."""

    def __init__(
        self,
        settings: SimgcdLosses,
        dim: int,
        prototypes: int,
        generator: torch.Generator,
        *,
        supervised: bool = True,
        self_supervised: bool = True,
        persistent: bool = False,
    ) -> None:
        super().__init__()
        self.settings, self.persistent = settings, persistent
        self.supervised, self.self_supervised = supervised, self_supervised
        self.projector = camp_projector(dim, settings.projector_width, generator)
        self.prototypes = CosinePrototypes(dim, prototypes, generator)

    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return the terms of the loss for features z (2, B, D); L_SSL is on all images."""
        s = self.settings
        h = self.projector(z)
        logits = self.logits(z)
        terms: dict[str, Tensor] = {}
        l_ssl = l_sl = z.new_zeros(())
        if self.self_supervised:
            terms["simclr"] = simclr(h, s.simclr_temperature)
            terms["pseudo"] = pseudo_label(logits, teacher_temperature(epoch))
            terms["entropy"] = mean_entropy(logits)
            l_ssl = terms["simclr"] + terms["pseudo"] + s.entropy_weight * terms["entropy"]
        if self.supervised:
            terms["supcon"] = supcon(h[:, num_task_images:], labels, s.supcon_temperature)
            terms["ce"] = cross_entropy(logits[:, num_task_images:], labels)
            l_sl = terms["supcon"] + terms["ce"]
        terms["loss"] = balanced(l_ssl, l_sl, s.beta)
        return terms

    def logits(self, z: Tensor) -> Tensor:
        """Return the cosines (..., K) of features (..., D) with the prototypes."""
        logits: Tensor = self.prototypes(z)
        return logits


class GrowingObjective(SimgcdObjective):
    """SimGCD's losses over the prototypes `rows`, in ascending order; labels are rows among all prototypes."""

    def __init__(
        self, settings: SimgcdSettings, dim: int, prototypes: int, rows: Tensor, generator: torch.Generator
    ) -> None:
        super().__init__(settings, dim, prototypes, generator, persistent=True)
        self.rows = rows

    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return the terms of the loss for features z (2, B, D)."""
        rows = torch.searchsorted(self.rows.to(labels.device), labels)
        return super().forward(z, num_task_images, rows, epoch)

    def logits(self, z: Tensor) -> Tensor:
        """Return the cosines (..., k) with the prototypes `rows`; the others get no gradient."""
        return cosines(z, self.prototypes.weight[self.rows])


class Simgcd(ParametricMethod):
    """A cosine classifier that grows with the tasks."""

    def __init__(self, context: BuildContext, settings: SimgcdSettings) -> None:
        super().__init__(context, settings)
        self.settings = settings

    def _make_trainer(self, run: TaskRun, progress: Progress) -> Trainer:
        """Make the prototypes of all categories so far and of this task's."""
        rows = self._decide_number(run, progress)
        every = self.settings.prototypes == "all"
        used = torch.arange(rows.total) if every else rows.of_task_categories().sort().values
        draw = generator(self.seed, "heads", run.task.index)
        objective = GrowingObjective(self.settings, self.dim, rows.total, used, draw)
        data = TrainingData(run.task.views, rows.of(run.task.labels), len(run.task))
        return self._trainer(run, TwoViewStep(objective), data)

    def _conclude(self, run: TaskRun, progress: Progress) -> None:
        """Assign labelled images to their class, and the others to the nearest prototype of the task."""
        task, rows = run.task, PrototypeRows.of_task(self.categories, run.task)
        prototypes = self._prototypes(run)[rows.of_task_categories()]
        clusters = NearestCentroid(prototypes, "cosine").predict(
            clean_features(self.tip, task.views, progress)
        )
        labelled = task.labels != UNLABELLED
        clusters[labelled] = torch.searchsorted(torch.tensor(rows.task_labels), task.labels[labelled])
        labels = (*rows.task_labels, *[None] * rows.n_novel)
        self._enter(task, labels, clusters)
        self.discovery = DiscoveryResult(labels, clusters, prototypes, self._estimate)

    def predict(
        self, features: Tensor, allowed: Tensor | None = None, centroids: Tensor | None = None
    ) -> Tensor:
        """Return the row (n,) of the prototype with the largest cosine."""
        return NearestCentroid(self.heads["prototypes.weight"], "cosine").predict(features, allowed)
