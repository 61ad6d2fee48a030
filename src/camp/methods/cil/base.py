"""Class-incremental learning by a classifier: every picture has a label, and each task brings new classes.

What Fine-tune, EWC, LwF, PASS, IL2A, SSRE and Joint have in common: the whole network is trained on labelled
pictures through a linear classifier that gets rows for the classes of each task, and the classifier answers.
A method is an objective: which copies of a picture the network is shown (rotated, mixed), and the loss.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.core import distributed
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.tasks import Task
from camp.data.views import Batch, Views
from camp.methods.gccd.centroid_method import NO_DISTILLATION
from camp.methods.settings import Discovery, MethodSettings, Training
from camp.methods.tip_method import TipMethod
from camp.methods.trainer import Objective, Phase1, gathered
from camp.nn.backbones.base import Backbone
from camp.nn.init import init_default_

Plan = dict[str, Tensor]
"""What is drawn for the pictures of a step beside their views; axis 0 of each tensor is the picture."""


@dataclass(frozen=True)
class IncrementalSettings(MethodSettings):
    """What the methods of class-incremental learning share."""

    training: Training = field(default_factory=Training)


class IncrementalObjective(Objective):
    """The loss of labelled pictures, with a linear classifier that lasts: rows of old classes stay where they are."""

    lasting = True
    outputs = 1
    """Rows of the classifier for each class: label y has the rows outputs * y .. outputs * (y + 1) - 1."""
    copies = 1
    """Views of a picture that go through the network in a step."""
    compares = False
    """Whether the loss is told what the old network makes of the same views."""

    def __init__(self, dim: int, old: int, known: int, generator: torch.Generator) -> None:
        """For features of length `dim`; labels 0 .. old - 1 are of earlier tasks, old .. known - 1 of this one."""
        super().__init__()
        self.old, self.known = old, known
        self.classifier = init_default_(nn.Linear(dim, self.rows()), generator)

    def rows(self) -> int:
        """Of the classifier in training; those behind the last class go when the task ends."""
        return self.outputs * self.known

    def plan(self, labels: Tensor, draw: torch.Generator) -> Plan:
        """What else is drawn for pictures with `labels` (B,); every process draws the same."""
        return {}

    def look(self, views: Views, rows: Tensor, ids: Tensor, plan: Plan, mine: slice) -> Batch:
        """The views of the pictures `mine` of a step, copy-major (copies * m): one augmented view each.

        `rows` (B,), `ids` (1, B) and `plan` are those of all its pictures.
        """
        return views.augmented(rows[mine], ids[:, mine])

    @abstractmethod
    def forward(  # type: ignore[override]
        self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None
    ) -> dict[str, Tensor]:
        """Terms of the loss by name, `loss` among them.

        z (copies, B, D) are features, labels (B,), z_old (copies, B, D) what the old network makes of the same
        views if the objective `compares` and there is an old network.
        """

    def new_logits(self, z: Tensor) -> Tensor:
        """(..., D) -> (..., known - old) logits of the classes of this task, for `outputs` = 1."""
        return F.linear(z, self.classifier.weight[self.old :], self.classifier.bias[self.old :])

    def new_cross_entropy(self, z: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of z (B, D) over the classes of this task alone.

        Without pictures of old classes a softmax over all of them would only learn never to answer one.
        """
        return F.cross_entropy(self.new_logits(z), labels - self.old)


class SupervisedPhase(Phase1):
    """Training on labelled pictures, each of which comes once in an epoch."""

    objective: IncrementalObjective

    def __init__(self, *, old_tip: nn.Module | None, **parts: Any) -> None:
        super().__init__(**parts, distiller=None, distillation=NO_DISTILLATION, old=None)
        self.old_tip = old_tip if self.objective.compares else None

    def _batches(self, epoch: int) -> Iterator[Any]:
        """(rows, plan, ids, batch) of each step; `batch` is this process's share."""
        draw = generator(0, *self.draws, "epoch", epoch)
        for rows in torch.randperm(len(self.labels), generator=draw).split(self.settings.batch_size):
            ids = self.views.draw(rows, 1, draw)
            plan = self.objective.plan(self.labels[rows], draw)
            yield (
                rows,
                plan,
                ids,
                self.objective.look(self.views, rows, ids, plan, distributed.shard(len(rows))),
            )

    def _step(self, rows: Tensor, plan: Any, ids: Tensor, batch: Batch, epoch: int) -> dict[str, Tensor]:
        copies, count = self.objective.copies, len(rows)
        z, z_old = gathered(self._run(self.tip, batch), copies, count), None
        if self.old_tip is not None:
            with torch.no_grad():
                z_old = gathered(self._run(self.old_tip, batch), copies, count)
        plan = {name: value.to(self.device) for name, value in plan.items()}
        terms = self.objective(z, self.labels[rows].to(self.device), plan, z_old)
        self._descend(self._penalised(terms))
        return terms


class IncrementalMethod(TipMethod):
    """A network and a classifier, trained task by task."""

    def __init__(self, backbone: Backbone, training: Training, seed: int, device: torch.device) -> None:
        super().__init__(backbone, training, Discovery(), 0, seed, device)

    # What a method fills in.

    @abstractmethod
    def _objective(self, old: int, known: int, generator: torch.Generator) -> IncrementalObjective:
        """The objective of a task whose classes are old .. known - 1, with fresh rows for them."""

    def _penalty(self) -> Any:
        """A function () -> Tensor on the tip's parameters that is added to the loss, if there is one."""
        return None

    # What is done the same way by all of them.

    def start_task(self, task: Task, progress: Progress) -> None:
        """Refuse pictures without a label and classes that come again, then as always."""
        missing = int((task.labels < 0).sum())
        if missing:
            raise CampError(
                f"This method is for class-incremental learning and needs the label of every picture, and "
                f"{missing} of the {len(task)} in task {task.index + 1} have none: use --setting cil."
            )
        again = {category.label for category in self.categories} & set(task.labels.tolist())
        if again:
            raise CampError(
                f"This method is for class-incremental learning, where a class comes in one task, and {len(again)} of "
                f"task {task.index + 1} came before: use --setting cil."
            )
        super().start_task(task, progress)

    def _prepare(self, progress: Progress) -> Phase1:
        """An objective that knows this task's classes."""
        task = self._current()
        views, labels = self.memory.beside(task)
        draw = generator(self.seed, "heads", task.index)
        return SupervisedPhase(
            tip=self.tip,
            objective=self._objective(len(self.categories), self._known(), draw),
            settings=self.training,
            views=views,
            labels=labels,
            own=len(task),
            device=self.device,
            draws=(self.seed, task.index),
            old_tip=self._old_tip,
            penalty=self._penalty() if self._old_tip is not None else None,
        )

    def _conclude(self, progress: Progress) -> None:
        """Every picture belongs to its label: nothing is left to be discovered."""
        task = self._current()
        labels = task.labels.unique()
        self._enter(labels.tolist(), torch.searchsorted(labels, task.labels))
        self.found = {"n_novel": 0, "curve": None}

    def predict(self, features: Tensor, allowed: Tensor | None = None) -> Tensor:
        """The category with the greatest logit."""
        logits = self._logits(features)[:, [category.label for category in self.categories]]
        if allowed is None:
            return logits.argmax(dim=1)
        return allowed[logits[:, allowed].argmax(dim=1)]

    def _logits(self, features: Tensor) -> Tensor:
        """(n, K) by label; the first output of each class."""
        every = len(self._heads["classifier.weight"]) // self._labels()
        logits = F.linear(features, self._heads["classifier.weight"], self._heads["classifier.bias"])
        return logits[:, ::every]

    def _labels(self) -> int:
        """Labels so far."""
        return max(category.label for category in self.categories if category.label is not None) + 1
