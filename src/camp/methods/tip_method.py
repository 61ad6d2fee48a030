"""What all methods that train a tip have in common: phase 1, exemplars, state; discovery is the method's own."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.tasks import Task
from camp.data.views import Batch, Views
from camp.discovery.number_of_categories import Estimate, estimate_n_novel
from camp.discovery.semi_supervised_kmeans import KMeans, semi_supervised_kmeans
from camp.methods.base import Category, Drift, State
from camp.methods.exemplars import Memory
from camp.methods.settings import Discovery, Training
from camp.methods.trainer import Phase1, clean_features, frozen_copy
from camp.nn.backbones.base import Backbone


class TipMethod(ABC):
    """A tip trained task by task. A method fills in its objective, and what it makes of the trained features."""

    def __init__(
        self,
        backbone: Backbone,
        training: Training,
        discovery: Discovery,
        exemplars: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self.training, self.discovery, self.seed, self.device = training, discovery, seed, device
        self.dim = backbone.dim
        self.tip = backbone.tip.to(device)
        self.memory = Memory(exemplars)
        self.categories: list[Category] = []
        self.centroids: Tensor | None = None
        self.drift: Drift | None = None
        self.epochs = training.epochs
        self.found: dict[str, Any] = {}
        self._task: Task | None = None
        self._phase1: Phase1 | None = None
        self._old_tip: nn.Module | None = None
        self._heads: dict[str, Tensor] = {}
        self._assigned = torch.empty(0, dtype=torch.long)

    # What a method fills in.

    @abstractmethod
    def _prepare(self, progress: Progress) -> Phase1 | None:
        """The training of the task just begun, if any; the old tip is at hand from the second task on."""

    @abstractmethod
    def _conclude(self, progress: Progress) -> None:
        """Phases 2 and 3: categories, assignments and `found` of the trained task."""

    @abstractmethod
    def predict(self, features: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(n,) positions in `categories`, of those in `allowed` alone if given."""

    def _trained(self, progress: Progress) -> None:  # noqa: B027 (few methods need it)
        """What has to be done between training and discovery."""

    # What the run loop calls.

    def start_task(self, task: Task, progress: Progress) -> None:
        """Keep the old tip, make heads and an optimiser."""
        self._task = task
        self._old_tip = frozen_copy(self.tip) if task.index else None
        self._phase1 = self._prepare(progress)
        if self._phase1 is not None and self._heads:
            self._phase1.objective.inherit(self._heads)

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """Phase 1, one epoch."""
        return self._training().epoch(epoch)

    def finish_task(self, progress: Progress) -> None:
        """Phases 2 and 3, then what is kept for later tasks."""
        self._trained(progress)
        self._conclude(progress)
        self.memory = self.memory.with_task(self._current(), self.seed)
        if self._phase1 is not None and (objective := self._phase1.objective).lasting:
            self._heads = {name: value.cpu().clone() for name, value in objective.state_dict().items()}
        self._phase1 = self._old_tip = None

    def features(self, batch: Batch) -> Tensor:
        """(n, D) by the present tip."""
        self.tip.eval()
        with torch.no_grad():
            return self.tip(batch).cpu()

    def assigned(self) -> Tensor:
        """(n,) position in `categories` of each picture of the last task."""
        return self._assigned

    def trained_state(self) -> dict[str, Tensor]:
        """Return what training has changed and what comes after training depends on."""
        return dict(self.tip.state_dict())

    def load_trained_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over the `trained_state` of another run in place of training."""
        self.tip.load_state_dict(tensors)

    def state(self) -> State:
        """The tip, centroids, lasting heads and memory; inside a task also the old tip and phase 1."""
        tensors = {f"tip.{k}": v for k, v in self.tip.state_dict().items()} | self.memory.state()
        tensors |= {f"heads.{k}": v for k, v in self._heads.items()}
        if self.centroids is not None:
            tensors["centroids"] = self.centroids
        if self._phase1 is not None:
            tensors |= {f"phase1.{k}": v for k, v in self._phase1.state().items()}
        if self._old_tip is not None:
            tensors |= {f"old_tip.{k}": v for k, v in self._old_tip.state_dict().items()}
        return State(tensors, {"categories": [vars(c) for c in self.categories]})

    def load(self, state: State, task: Task | None, views: Views) -> None:
        """Go on from `state`. Inside a task it is started again from the old tip, then brought to where it was."""
        self.categories = [Category(**row) for row in state.values["categories"]]
        self.centroids = state.tensors.get("centroids")
        self.memory = Memory(self.memory.per_class).restored(state.tensors, views)
        self._heads = part_of(state.tensors, "heads.")
        self._restore(state, views)
        if task is not None:
            if old := part_of(state.tensors, "old_tip."):
                self.tip.load_state_dict(old)
            self.start_task(task, Progress(quiet=True))
            if self._phase1 is not None:
                self._phase1.load(part_of(state.tensors, "phase1."))
        self.tip.load_state_dict(part_of(state.tensors, "tip."))

    def _restore(self, state: State, views: Views) -> None:  # noqa: B027 (few methods need it)
        """Take up what a method added to `state`, before a task under way is started again."""

    # What methods share.

    def _known(self) -> int:
        """Known classes up to this task; their labels are 0 .. known - 1."""
        labels = [category.label for category in self.categories if category.label is not None]
        return max([*labels, *self._current().labels.tolist(), -1]) + 1

    def _prototypes(self, progress: Progress) -> int:
        """K: what the scenario tells, else what is known plus an estimate on the features before training."""
        task = self._current()
        if task.total is not None:
            return task.total
        return len(self.categories) + len(self._new_labels()) + self._expected_novel(progress)

    def _new_labels(self) -> list[int]:
        """Labels of this task that no category has yet."""
        named = {category.label for category in self.categories}
        return sorted(set(self._current().labels[self._current().labels >= 0].tolist()) - named)

    def _expected_novel(self, progress: Progress) -> int:
        """Novel categories of this task: as told, else estimated on the features before training."""
        task = self._current()
        if task.n_novel is not None:
            return task.n_novel
        return self._estimate(clean_features(self.tip, task.views, progress), progress, "before").n_novel

    def _cluster(self, features: Tensor, progress: Progress) -> KMeans:
        """Semi-supervised k-means over the task's clean features (n, D); the facts go to `found`."""
        task, settings = self._current(), self.discovery
        n_novel, curve = task.n_novel, None
        if n_novel is None:
            estimate = self._estimate(features, progress, "after")
            n_novel, curve = estimate.n_novel, [list(point) for point in estimate.curve]
        with progress.track("Clustering", settings.n_init) as bar:
            result = semi_supervised_kmeans(
                features,
                task.labels,
                n_novel,
                n_init=settings.n_init,
                max_iterations=settings.max_iterations,
                generator=generator(self.seed, "clustering", task.index),
                progress=bar,
            )
        self.found = {"n_novel": n_novel, "curve": curve, "inertia": float(result.inertia)}
        return result

    def _estimate(self, features: Tensor, progress: Progress, when: str) -> Estimate:
        task, most = self._current(), self.discovery.max_novel
        known = len(task.labels[task.labels >= 0].unique())
        draw = generator(self.seed, "estimate", task.index, when)
        return estimate_n_novel(features, task.labels, most or max(10, known), draw, progress=progress)

    def _enter(self, labels: list[int | None], assignments: Tensor) -> list[int]:
        """Enter clusters as categories and return their positions; a known class that has one keeps it.

        `labels` are those of the clusters, None for novel ones; `assignments` (n,) numbers of clusters.
        """
        sizes = torch.bincount(assignments, minlength=len(labels)).tolist()
        position = {c.label: i for i, c in enumerate(self.categories) if c.label is not None}
        places = []
        for label, size in zip(labels, sizes):
            at = position.get(label) if label is not None else None
            if at is None:
                at = len(self.categories)
                self.categories.append(Category(at, self._current().index, label, size))
            else:
                old = self.categories[at]
                self.categories[at] = Category(old.id, old.task, old.label, size)
            places.append(at)
        self._assigned = torch.tensor(places)[assignments]
        return places

    def _training(self) -> Phase1:
        assert self._phase1 is not None
        return self._phase1

    def _current(self) -> Task:
        assert self._task is not None
        return self._task


def part_of(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
