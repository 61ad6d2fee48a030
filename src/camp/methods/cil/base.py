"""Class-incremental learning with a classifier: every image has a label, and each task brings new classes.

Fine-tune, EWC, LwF, PASS, IL2A, SSRE, FeTrIL and Joint train the whole network on labelled images through a linear
classifier, to which each task adds rows for its classes. They differ in their components: the objective (which copies
of an image the network sees, and the loss), callbacks, exemplars, and the classifier that answers.

The defaults of training are those of the code that the paper ran: FACIL for Fine-tune, EWC, LwF and Joint, and PyCIL for
the others. The recipe of CAMP is `--optimizer adamw --learning-rate 1e-3 --schedule cosine --clip 1 --weight-decay 0`.
With `--setting cil` all methods use FACIL's augmentation: a crop after padding by 4 of 32 pixels (CIFAR) or a resized
crop (others), and a flip. PyCIL changes the brightness as well.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.core import distributed
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.tasks import Task
from camp.data.views import Batch, Views
from camp.methods.base import BuildContext
from camp.methods.components import Callback, Memory, TaskRun
from camp.methods.settings import IncrementalTraining
from camp.methods.tip_method import TipMethod
from camp.methods.trainer import (
    FORWARD_BATCH,
    Objective,
    Plan,
    StepBatch,
    Trainer,
    TrainingData,
    TrainingStep,
)
from camp.nn.backbones.base import Backbone
from camp.nn.init import init_default_


@dataclass(frozen=True)
class ClassRange:
    """The sizes that the classifier of a task is made for."""

    dim: int
    """D, the length of a feature."""
    old: int
    """Labels 0 .. old - 1 are of earlier tasks,"""
    known: int
    """and labels old .. known - 1 of this one."""


class IncrementalObjective(Objective):
    """A loss of labelled images, with a persistent linear classifier: rows of old classes stay where they are."""

    persistent = True
    outputs = 1
    """Number of rows of the classifier for each class: label y has the rows outputs * y .. outputs * (y + 1) - 1."""
    compares = False
    """Whether the loss uses the features of the same views under the old network."""

    def __init__(self, sizes: ClassRange, generator: torch.Generator) -> None:
        super().__init__()
        self.old, self.known = sizes.old, sizes.known
        self.classifier = init_default_(nn.Linear(sizes.dim, self.rows()), generator)

    def rows(self) -> int:
        """Return the number of rows of the classifier in training."""
        return self.outputs * self.known

    def copies(self) -> int:
        """Return the number of views of an image that go through the network in a step."""
        return 1

    def plan(self, labels: Tensor, draw: torch.Generator) -> Plan:
        """Draw what a step needs besides views, for images with `labels` (B,); every process draws the same."""
        return {}

    def look(self, views: Views, rows: Tensor, ids: Tensor, plan: Plan, mine: slice) -> Batch:
        """Return the views of the images `mine` of a step, copy-major (copies * m): one augmented view each.

        `rows` (B,), `ids` (1, B) and `plan` are those of all images of the step.
        """
        return views.augmented(rows[mine], ids[:, mine])

    @abstractmethod
    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:
        """Return the terms of the loss by name, with `loss` among them, for features z (copies, B, D).

        z_old are the features of the same views under the old network; None in the first task, and if the
        objective does not compare.
        """

    def new_logits(self, z: Tensor) -> Tensor:
        """Return the logits (..., known - old) of the classes of this task for `outputs` = 1."""
        return F.linear(z, self.classifier.weight[self.old :], self.classifier.bias[self.old :])

    def new_cross_entropy(self, z: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of z (B, D) over the classes of this task alone.

        Without images of old classes, a softmax over all classes would only learn never to predict an old one.
        """
        return F.cross_entropy(self.new_logits(z), labels - self.old)


class SupervisedStep(TrainingStep):
    """Labelled images, each of which is drawn once in an epoch."""

    def __init__(self, objective: IncrementalObjective, old_tip: nn.Module | None) -> None:
        super().__init__(objective)
        self.incremental = objective
        self.old_tip = old_tip if objective.compares else None

    def batches(self, data: TrainingData, batch_size: int, draw: torch.Generator) -> Iterator[StepBatch]:
        """Draw images and what the objective draws for them."""
        trained = data.trained_rows
        for rows in trained[torch.randperm(len(trained), generator=draw)].split(batch_size):
            ids = data.views.draw(rows, 1, draw)
            plan = self.incremental.plan(data.labels[rows], draw)
            views = self.incremental.look(data.views, rows, ids, plan, distributed.shard(len(rows)))
            yield StepBatch(rows, 0, ids, views, plan)

    def terms(self, trainer: Trainer, batch: StepBatch, epoch: int) -> dict[str, Tensor]:
        """Return the terms of the objective."""
        copies = self.incremental.copies()
        z, z_old = trainer.features(trainer.tip, batch, copies), None
        if self.old_tip is not None:
            with torch.no_grad():
                z_old = trainer.features(self.old_tip, batch, copies)
        plan = {name: value.to(trainer.device) for name, value in batch.plan.items()}
        terms: dict[str, Tensor] = self.objective(z, trainer.labels(batch.rows), plan, z_old)
        return terms

    @torch.no_grad()
    def held_out_loss(self, trainer: Trainer) -> float | None:
        """Return the loss on clean views of the held-out images, penalties included."""
        data = trainer.data
        if not len(data.held_out):
            return None
        trainer.tip.eval()
        draw, total = generator(0, *trainer.seeds, "held out"), 0.0
        for rows in data.held_out.split(FORWARD_BATCH):
            views = data.views.clean(rows)
            z = trainer.forward(trainer.tip, views)[None]
            z_old = None if self.old_tip is None else trainer.forward(self.old_tip, views)[None]
            plan = self.incremental.plan(data.labels[rows], draw)
            plan = {name: value.to(trainer.device) for name, value in plan.items()}
            total += len(rows) * self.objective(z, trainer.labels(rows), plan, z_old)["loss"].item()
        penalty = sum(penalty().item() for penalty in trainer.penalties)
        # Every process computes the same; a difference in the last digit must not separate their schedules.
        loss: float = distributed.broadcast(total / len(data.held_out) + penalty)
        return loss


def held_out_rows(views: Views, labels: Tensor, share: float, seed: int) -> Tensor:
    """Draw a share of the images of each class, the same ones whichever images of other classes there are.

    Returns:
        Their rows in ascending order. One image of a class is always left.
    """
    digests = [bytes(digest.tolist()) for digest in views.digests()]
    chosen = []
    for label in labels.unique().tolist():
        rows = sorted((labels == label).nonzero()[:, 0].tolist(), key=lambda row: digests[row])
        count = min(round(share * len(rows)), len(rows) - 1)
        order = torch.randperm(len(rows), generator=generator(seed, "held out", label))
        chosen += [rows[i] for i in order[:count].tolist()]
    return torch.tensor(sorted(chosen), dtype=torch.long)


class IncrementalClassifier(Memory, Protocol):
    """A classifier that is fitted after training, in place of the one that was trained with the network."""

    def fit(self, run: TaskRun, means: Tensor | None, progress: Progress) -> Tensor:
        """Learn the classes of a task; returns the means (K, D) of all classes so far, `means` those before."""

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits (n, K) by label of features (n, D)."""


class IncrementalMethod(TipMethod):
    """A network and a classifier, trained task by task."""

    def __init__(
        self,
        context: BuildContext,
        training: IncrementalTraining,
        objective: Callable[[ClassRange, torch.Generator], IncrementalObjective | None],
        *,
        callbacks: Sequence[Callback] = (),
        classifier: IncrementalClassifier | None = None,
        exemplars: int = 0,
    ) -> None:
        """Make the method.

        `objective` makes the objective of a task, None where a task trains nothing. By default the `classifier` is
        that of the objective.
        """
        super().__init__(context, training, exemplars=exemplars, callbacks=callbacks)
        self.held_out = training.held_out if training.schedule == "plateau" else 0.0
        self.objective, self.classifier = objective, classifier
        if classifier is not None:
            self.memories["classifier"] = classifier

    def start_task(self, task: Task, progress: Progress) -> None:
        """Refuse images without a label and classes of earlier tasks, then prepare the training."""
        missing = int((task.labels < 0).sum())
        if missing:
            raise CampError(
                f"This method is for class-incremental learning and needs the label of every image, and "
                f"{missing} of the {len(task)} in task {task.index + 1} have none: use --setting cil."
            )
        again = {category.label for category in self.categories} & set(task.labels.tolist())
        if again:
            raise CampError(
                f"This method is for class-incremental learning, where a class belongs to one task, and "
                f"{len(again)} of task {task.index + 1} occurred before: use --setting cil."
            )
        super().start_task(task, progress)

    def _make_trainer(self, run: TaskRun, progress: Progress) -> Trainer | None:
        """Make an objective for the classes so far."""
        task = run.task
        sizes = ClassRange(self.dim, len(self.categories), self._num_labels(task))
        objective = self.objective(sizes, generator(self.seed, "heads", task.index))
        if objective is None:
            return None
        views, labels = self.exemplars.behind(task.views, task.labels)
        data = TrainingData(views, labels, len(task))
        if self.held_out and objective.copies() == 1:
            data = replace(data, held_out=held_out_rows(views, labels, self.held_out, self.seed))
        return self._trainer(run, SupervisedStep(objective, run.old_tip), data)

    def _conclude(self, run: TaskRun, progress: Progress) -> None:
        """Enter each class as a category: nothing is discovered."""
        labels = run.task.labels.unique()
        self._enter(run.task, labels.tolist(), torch.searchsorted(labels, run.task.labels))
        if self.classifier is not None:
            self.centroids = self.classifier.fit(run, self.centroids, progress)

    def predict(
        self, features: Tensor, allowed: Tensor | None = None, centroids: Tensor | None = None
    ) -> Tensor:
        """Return the position (n,) of the category with the largest logit."""
        logits = self._logits(features)[:, [category.label for category in self.categories]]
        if allowed is None:
            return logits.argmax(dim=1)
        return allowed[logits[:, allowed].argmax(dim=1)]

    def _logits(self, features: Tensor) -> Tensor:
        """Return the logits (n, K) by label; of several outputs of a class the first."""
        if self.classifier is not None:
            return self.classifier.logits(features)
        weight, bias = self.heads["classifier.weight"], self.heads["classifier.bias"]
        num_labels = max(c.label for c in self.categories if c.label is not None) + 1
        return F.linear(features, weight, bias)[:, :: len(weight) // num_labels]


def check_pixels(backbone: Backbone, method: str) -> None:
    """Refuse a backbone whose tip takes anything but the pixels of images."""
    if backbone.trunk is not None or backbone.fields[0].name != "pixels":
        raise CampError(
            f"{method} works on images through a network that is trained as a whole, and {backbone.name} is "
            f"not one: use --backbone resnet18, resnet18-slim or conv-tiny."
        )
