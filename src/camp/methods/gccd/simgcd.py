"""SimGCD: parametric classification for generalized category discovery (Wen et al., ICCV 2023).

    L_SSL = L_SimCLR + L_pseudo          on every picture of the step
    L_SL  = L_SupCon + L_CE              on the labelled ones
    L     = (1 - beta) L_SSL + beta L_SL

    f(x)  = argmax_k cos(F(x), w_k)      over the prototypes w of all categories so far

There is no clustering: discovery is what the prototypes learn. Projector and prototypes last over the tasks, and
a prototype is added for each category that a task is to have; its row is the category's position for ever.

The losses of a task see the prototypes of its own categories. With those of all categories so far (`prototypes =
"all"`, as in the reference, which has all K from the start) the mean-entropy term hands novel pictures to old
prototypes, which no labelled picture claims, and the new ones stay empty: on CUB-200, 10 epochs, seed 0, 0 % of
the last task's novel test pictures are right where "task" has 16 %, all in all 24.1 and 24.0 %.
Either way nothing holds on to earlier tasks, and new prototypes win over old ones: told the task, "task" has
64 % right. Each of these was one run, and they are test accuracies.

The reference multiplies L by 0.9 from the second task on, the rest of a distillation that it leaves out; Adam
hardly notices such a factor, and here there is none.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.data.views import Views
from camp.discovery.nearest_centroid import NearestCentroid
from camp.methods.gccd.centroid_method import NO_DISTILLATION
from camp.methods.gccd.simgcd_objective import SimgcdObjective
from camp.methods.heads import cosines
from camp.methods.settings import Discovery, SimgcdLosses, Training
from camp.methods.tip_method import TipMethod
from camp.methods.trainer import Objective, Phase1, clean_features
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class SimgcdSettings(SimgcdLosses):
    """SimGCD with the reference's numbers."""

    prototypes: Literal["task", "all"] = "task"
    """Which prototypes the losses of a task see: those of its own categories, or all so far (the reference)."""


class GrowingObjective(SimgcdObjective):
    """SimGCD's losses over the prototypes `rows`, in ascending order; labels are rows among all of them."""

    def __init__(
        self, settings: SimgcdSettings, dim: int, prototypes: int, rows: Tensor, generator: torch.Generator
    ) -> None:
        super().__init__(settings, dim, prototypes, generator, lasting=True)
        self.rows = rows

    def forward(self, z: Tensor, own: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """z (2, B, D); the pictures from `own` on have `labels`."""
        return super().forward(z, own, torch.searchsorted(self.rows.to(labels.device), labels), epoch)

    def logits(self, z: Tensor) -> Tensor:
        """(..., D) -> (..., number of rows); the other prototypes get no gradient."""
        return cosines(z, self.prototypes.weight[self.rows])


class PrototypeMethod(TipMethod):
    """A method with a prototype for each category, whose row is the category's position."""

    def __init__(
        self, backbone: Backbone, training: Training, discovery: Discovery, seed: int, device: torch.device
    ) -> None:
        super().__init__(backbone, training, discovery, 0, seed, device)
        self._curve: list[list[float]] | None = None

    @abstractmethod
    def _objective(self, prototypes: int, generator: torch.Generator) -> Objective:
        """The losses, with so many prototypes."""

    def _settle(self, progress: Progress) -> None:
        """Decide on the number of novel categories: a prototype is there from the first step on or not at all."""
        task, self._curve = self._current(), None
        if task.n_novel is None:
            estimate = self._estimate(clean_features(self.tip, task.views, progress), progress, "before")
            self._task = replace(task, n_novel=estimate.n_novel)
            self._curve = [list(point) for point in estimate.curve]
        if not self._labels() and not self._n_novel():
            raise CampError(
                "There is nothing to find: no image is labelled and no novel category is expected."
            )

    def _phase(self, views: Views, rows: Tensor) -> Phase1:
        """Training on the task's pictures and any exemplars behind them; `rows` (n + m,) are their prototypes."""
        task = self._current()
        draw = generator(self.seed, "heads", task.index)
        return Phase1(
            tip=self.tip,
            objective=self._objective(self._first_novel() + self._n_novel(), draw),
            distiller=None,
            distillation=NO_DISTILLATION,
            settings=self.training,
            views=views,
            labels=rows,
            own=len(task),
            old=None,
            device=self.device,
            draws=(self.seed, task.index),
        )

    def _prototypes_now(self) -> Tensor:
        """(K, D) of the training under way."""
        return self._training().objective.state_dict()["prototypes.weight"].cpu()

    def _labels(self) -> list[int]:
        """Labels of this task, sorted."""
        labels = self._current().labels
        return labels[labels != UNLABELLED].unique().tolist()

    def _n_novel(self) -> int:
        count = self._current().n_novel
        assert count is not None
        return count

    def _first_novel(self) -> int:
        """Row of this task's first novel category; those of its new labels come before."""
        return len(self.categories) + len(self._new_labels())

    def _own_rows(self) -> Tensor:
        """(k,) rows of this task's categories: those of its labels, sorted, then the novel ones."""
        novel = torch.arange(self._first_novel(), self._first_novel() + self._n_novel())
        return torch.cat([self._rows(torch.tensor(self._labels())), novel])

    def _rows(self, labels: Tensor) -> Tensor:
        """(n,) rows of `labels` (n,) among the prototypes: a class keeps its row, new ones are appended."""
        names = [c.label for c in self.categories] + (self._new_labels() if self._task is not None else [])
        row_of = {label: row for row, label in enumerate(names) if label is not None}
        return torch.tensor([row_of.get(label, UNLABELLED) for label in labels.tolist()], dtype=torch.long)


class Simgcd(PrototypeMethod):
    """A cosine classifier that grows with the tasks."""

    def __init__(self, backbone: Backbone, settings: SimgcdSettings, seed: int, device: torch.device) -> None:
        super().__init__(backbone, settings.training, settings.discovery, seed, device)
        self.settings = settings

    def _prepare(self, progress: Progress) -> Phase1:
        """The prototypes of all categories so far and of this task's."""
        self._settle(progress)
        task = self._current()
        return self._phase(task.views, self._rows(task.labels))

    def _objective(self, prototypes: int, generator: torch.Generator) -> Objective:
        everyone = self.settings.prototypes == "all"
        rows = torch.arange(prototypes) if everyone else self._own_rows().sort().values
        return GrowingObjective(self.settings, self.dim, prototypes, rows, generator)

    def _conclude(self, progress: Progress) -> None:
        """A labelled picture belongs to its class, any other to the best of the task's prototypes."""
        task, known = self._current(), self._labels()
        prototypes = NearestCentroid(self._prototypes_now()[self._own_rows()], "cosine")
        clusters = prototypes.predict(clean_features(self.tip, task.views, progress))
        labelled = task.labels != UNLABELLED
        clusters[labelled] = torch.searchsorted(torch.tensor(known), task.labels[labelled])
        self._enter([*known, *[None] * self._n_novel()], clusters)
        self.found = {"n_novel": self._n_novel(), "curve": self._curve}

    def predict(self, features: Tensor, allowed: Tensor | None = None) -> Tensor:
        """The prototype of the greatest cosine."""
        return NearestCentroid(self._heads["prototypes.weight"], "cosine").predict(features, allowed)


def make_simgcd(backbone: Backbone, settings: SimgcdSettings, seed: int, device: torch.device) -> Simgcd:
    """SimGCD with its prototypes."""
    return Simgcd(backbone, settings, seed, device)
