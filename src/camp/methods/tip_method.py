"""The life of a task that all methods share: train the tip, then turn its features into categories."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.data.tasks import Task
from camp.data.views import Batch, Views
from camp.discovery.base import DiscoveryResult
from camp.methods.base import BuildContext, CentroidDrift, LearnedCategory, MethodState
from camp.methods.components import Callback, Memory, TaskRun
from camp.methods.exemplars import ExemplarMemory
from camp.methods.settings import Training
from camp.methods.trainer import Trainer, TrainingData, TrainingStep, frozen_copy, with_prefix


class TipMethod(ABC):
    """A tip that is trained task by task, with components around it.

    A family of methods implements three functions: the trainer of a task, what becomes of its features, and
    the classifier. Methods of a family differ in the components they are given.
    """

    def __init__(
        self,
        context: BuildContext,
        training: Training,
        *,
        exemplars: int = 0,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.training, self.seed, self.device = training, context.seed, context.device
        self.epochs = training.epochs
        self.trains = True
        self.dim = context.backbone.dim
        self.tip = context.backbone.tip.to(context.device)
        self.categories: list[LearnedCategory] = []
        self.centroids: Tensor | None = None
        self.drift: CentroidDrift | None = None
        self.discovery: DiscoveryResult | None = None
        self.heads: dict[str, Tensor] = {}
        """Parameters of the heads of the last task, where later tasks continue from them."""
        self.exemplars = ExemplarMemory(exemplars)
        self.callbacks = callbacks
        self.memories: dict[str, Memory] = {c.name: c for c in callbacks if c.name}
        self.image_memories: dict[str, ExemplarMemory] = {"exemplars": self.exemplars}
        self._run: TaskRun | None = None
        self._assigned = torch.empty(0, dtype=torch.long)

    @abstractmethod
    def _make_trainer(self, run: TaskRun, progress: Progress) -> Trainer | None:
        """Return the trainer of a task, or None if nothing is trained."""

    @abstractmethod
    def _conclude(self, run: TaskRun, progress: Progress) -> None:
        """Set categories, assignments and, where there are any, centroids and discovery (phases 2 and 3)."""

    @abstractmethod
    def predict(
        self, features: Tensor, allowed: Tensor | None = None, centroids: Tensor | None = None
    ) -> Tensor:
        """Return positions (n,) in `categories`, of those in `allowed` alone if given."""

    def start_task(self, task: Task, progress: Progress) -> None:
        """Keep the old tip, and make heads and an optimiser."""
        old_tip = frozen_copy(self.tip) if task.index else None
        self._run = run = TaskRun(task, self.tip, old_tip, self.seed, self.device)
        for callback in self.callbacks:
            callback.before_training(run)
        run.trainer = self._make_trainer(run, progress)
        if run.trainer is not None and self.heads:
            run.trainer.step.objective.inherit(self.heads)

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """Train for one epoch; the loss is 0 where nothing is trained."""
        trainer = self._current_run().trainer
        return {"loss": 0.0} if trainer is None else trainer.epoch(epoch)

    def finish_task(self, progress: Progress) -> None:
        """Turn the trained features into categories, then keep what later tasks need."""
        run = self._current_run()
        for callback in self.callbacks:
            callback.after_training(run, progress)
        self._conclude(run, progress)
        for callback in self.callbacks:
            callback.after_task(run, progress)
        self.exemplars.add_task(run.task, self.seed)
        if run.trainer is not None and run.trainer.step.objective.persistent:
            self.heads = run.trainer.step.objective.heads()
        self._run = None

    def features(self, batch: Batch) -> Tensor:
        """Return the features (n, D) of views under the present tip."""
        self.tip.eval()
        with torch.no_grad():
            z: Tensor = self.tip(batch)
        return z.cpu()

    def assigned(self) -> Tensor:
        """Return the position in `categories` (n,) of each image of the last task."""
        return self._assigned

    def trained_state(self) -> dict[str, Tensor]:
        """Return the parameters of the tip."""
        return self.tip.state_dict()

    def load_trained_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over the parameters of a tip that another run has trained."""
        self.tip.load_state_dict(tensors)

    def state(self) -> MethodState:
        """Return the tip, the centroids and the memories; inside a task also the old tip and the trainer."""
        parts = {"tip": self.tip.state_dict(), "heads": self.heads}
        parts |= {name: memory.state() for name, memory in self.memories.items()}
        parts |= {name: images.state() for name, images in self.image_memories.items()}
        if self._run is not None and self._run.trainer is not None:
            parts["trainer"] = self._run.trainer.state()
        if self._run is not None and self._run.old_tip is not None:
            parts["old_tip"] = self._run.old_tip.state_dict()
        tensors = {
            f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()
        }
        if self.centroids is not None:
            tensors["centroids"] = self.centroids
        return MethodState(tensors, list(self.categories))

    def load_state(self, state: MethodState, task: Task | None, views: Views) -> None:
        """Continue from `state`; a task under way is started again from the old tip, then brought to its state."""
        self.categories, self._run = list(state.categories), None
        self.centroids = state.tensors.get("centroids")
        self.heads = with_prefix(state.tensors, "heads.")
        for name, memory in self.memories.items():
            memory.load_state(with_prefix(state.tensors, f"{name}."))
        for name, images in self.image_memories.items():
            images.load_state(with_prefix(state.tensors, f"{name}."), views)
        if task is not None:
            if old := with_prefix(state.tensors, "old_tip."):
                self.tip.load_state_dict(old)
            self.start_task(task, Progress(quiet=True))
            if (trainer := self._current_run().trainer) is not None:
                trainer.load_state(with_prefix(state.tensors, "trainer."))
        self.tip.load_state_dict(with_prefix(state.tensors, "tip."))

    def _current_run(self) -> TaskRun:
        assert self._run is not None, "no task is under way"
        return self._run

    def _trainer(
        self,
        run: TaskRun,
        step: TrainingStep,
        data: TrainingData,
        clipping: Literal["norm", "value"] = "norm",
        training: Training | None = None,
    ) -> Trainer:
        """Make a trainer with the penalties of all callbacks; `training` replaces the method's settings."""
        penalties = [callback.penalty(run) for callback in self.callbacks]
        return Trainer(
            tip=self.tip,
            step=step,
            data=data,
            settings=training or self.training,
            device=self.device,
            seeds=(self.seed, run.task.index),
            penalties=[penalty for penalty in penalties if penalty is not None],
            clipping=clipping,
        )

    def _num_labels(self, task: Task) -> int:
        """Return the number of known classes up to a task; their labels are 0, 1, ..."""
        labels = [category.label for category in self.categories if category.label is not None]
        return max([*labels, *map(int, task.labels), -1]) + 1

    def _new_labels(self, task: Task) -> list[int]:
        """Return the labels of a task that no category has yet, sorted."""
        named = {category.label for category in self.categories}
        return sorted(set(task.labels[task.labels >= 0].tolist()) - named)

    def _position_of_label(self) -> dict[int, int]:
        """Return the position in `categories` of each label that has a category."""
        return {c.label: i for i, c in enumerate(self.categories) if c.label is not None}

    def _enter(
        self,
        task: Task,
        labels: Sequence[int | None],
        assignments: Tensor,
        returned: Sequence[int | None] | None = None,
    ) -> list[int]:
        """Enter the clusters of a task as categories; a known class that has a category keeps it.

        Args:
            labels: None for novel clusters.
            assignments: (n,) clusters of the images.
            returned: Position of the category of an earlier task that each cluster is; by default that of its label.

        Returns:
            The position in `categories` of each cluster.
        """
        sizes = torch.bincount(assignments, minlength=len(labels)).tolist()
        if returned is None:
            position = self._position_of_label()
            returned = [None if label is None else position.get(label) for label in labels]
        places = []
        for label, size, at in zip(labels, sizes, returned):
            if at is None:
                at = len(self.categories)
                self.categories.append(LearnedCategory(at, task.index, label, size))
            else:
                self.categories[at] = replace(self.categories[at], size=size)
            places.append(at)
        self._assigned = torch.tensor(places)[assignments]
        return places
