"""Methods that remember categories as centroids: an objective, a distiller, a memory, k-means and an adapter.

CAMP, GCD and their relatives are this composition with different parts; see `Composition`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from camp.adapters import AdapterSettings, fit_adapter
from camp.backbones.base import Backbone
from camp.classifiers.nearest_centroid import NearestCentroid
from camp.clustering.number_of_categories import estimate_n_novel
from camp.clustering.semi_supervised_kmeans import semi_supervised_kmeans
from camp.distillers import make_distiller
from camp.methods.base import Category, Drift, State
from camp.methods.memory import Memory
from camp.methods.phase1 import Distillation, Objective, OldFeatures, Phase1, clean_features, frozen_copy
from camp.methods.settings import Discovery, Training
from camp.progress import Progress
from camp.seeds import generator
from camp.streams.tasks import Task
from camp.views.base import Batch, Views

_ADAPTER_BYTES = 2**30
_FRESH_PAIRS = 4
"""Views a picture of which the adapter learns when every view is a new one."""


@dataclass(frozen=True)
class Composition:
    """The parts of a centroid method."""

    objective: Callable[[int, int, torch.Generator], Objective]
    """(D, K, generator) -> the objective with fresh heads, for K prototypes."""
    training: Training
    distiller: Literal["none", "fd", "linear", "mlp", "trex"]
    distillation: Distillation
    discovery: Discovery
    adapter: str
    adapter_settings: AdapterSettings
    exemplars: int


class CentroidMethod:
    """Phases 1, 2, 3 in the order of the paper's equations."""

    def __init__(self, backbone: Backbone, parts: Composition, seed: int, device: torch.device) -> None:
        self.parts, self.seed, self.device = parts, seed, device
        self.dim = backbone.dim
        self.tip = backbone.tip.to(device)
        self.memory = Memory(parts.exemplars)
        self.categories: list[Category] = []
        self.centroids: Tensor | None = None
        self.drift: Drift | None = None
        self.epochs = parts.training.epochs
        self.found: dict[str, Any] = {}
        self._task: Task | None = None
        self._phase1: Phase1 | None = None
        self._old_tip: nn.Module | None = None
        self._assigned = torch.empty(0, dtype=torch.long)

    def start_task(self, task: Task, progress: Progress) -> None:
        """Keep the old tip, make fresh heads, a distiller and an optimiser."""
        self._task = task
        t = task.index
        views, labels = self.memory.beside(task)
        self._old_tip = frozen_copy(self.tip) if t else None
        distiller = None
        if self._old_tip is not None:
            distiller = make_distiller(self.parts.distiller, self.dim, generator(self.seed, "distiller", t))
        compared = distiller is not None or self.parts.adapter != "none"
        self._phase1 = Phase1(
            tip=self.tip,
            objective=self.parts.objective(
                self.dim, self._prototypes(progress), generator(self.seed, "heads", t)
            ),
            distiller=distiller,
            distillation=self.parts.distillation,
            settings=self.parts.training,
            views=views,
            labels=labels,
            own=len(task),
            old=OldFeatures(self._old_tip, views, self.dim, progress) if self._old_tip and compared else None,
            device=self.device,
            draws=(self.seed, t),
        )

    def _prototypes(self, progress: Progress) -> int:
        """K: what the scenario tells, else what is known plus an estimate on the features before training."""
        task = self._current()
        if task.total is not None:
            return task.total
        features = clean_features(self.tip, task.views, progress)
        novel = self._estimate(features, progress, "before").n_novel
        named = {category.label for category in self.categories}
        new = set(task.labels[task.labels >= 0].tolist()) - named
        return len(self.categories) + len(new) + novel

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """Phase 1, one epoch."""
        assert self._phase1 is not None
        return self._phase1.epoch(epoch)

    def finish_task(self, progress: Progress) -> None:
        """Phase 3, then phase 2 (they do not depend on each other), then the exemplars."""
        self.drift = self._adapt(progress) if self._old_tip is not None else None
        self._discover(progress)
        self.memory = self.memory.with_task(self._current(), self.seed)
        self._phase1 = self._old_tip = None

    def _adapt(self, progress: Progress) -> Drift | None:
        """p_i^t = psi(p_i^{t-1}) for all centroids kept so far."""
        if self.centroids is None or not len(self.centroids):
            return None
        stored = self.centroids
        if self.parts.adapter != "none":
            z_old, z_new = self._pairs(progress)
            adapter = fit_adapter(
                self.parts.adapter,
                z_old,
                z_new,
                self.parts.adapter_settings,
                generator(self.seed, "adapter", self._current().index),
                progress,
            )
            self.centroids = adapter(stored)
        return Drift(stored, self.centroids)

    @torch.no_grad()
    def _pairs(self, progress: Progress) -> tuple[Tensor, Tensor]:
        """F^{t-1}(x) and F^t(x) of augmented views of all pictures at hand, (n, D) each."""
        assert self._phase1 is not None
        assert self._phase1.old is not None
        views, old = self._phase1.views, self._phase1.old
        most = max(1, _ADAPTER_BYTES // (len(views) * self.dim * 4))
        count = min(views.augmentations or _FRESH_PAIRS, most)
        draw = generator(self.seed, "pairs", self._current().index)
        self.tip.eval()
        pairs = []
        with progress.track("Pairs for the adapter", len(views)) as bar:
            for rows in torch.arange(len(views)).split(max(1, 512 // count)):
                ids = views.draw(rows, count, draw)
                batch = views.augmented(rows, ids)
                pairs.append((old(rows, ids, batch).flatten(0, 1).cpu(), self.tip(batch).cpu()))
                bar.advance(len(rows))
        return torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs])

    def _discover(self, progress: Progress) -> None:
        """Semi-supervised k-means over the task's clean features; its centroids become categories."""
        task, settings = self._current(), self.parts.discovery
        features = clean_features(self.tip, task.views, progress)
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
        labels: list[int | None] = [*result.known_labels, *[None] * n_novel]
        self._remember(result.centroids, labels, result.assignments)

    def _estimate(self, features: Tensor, progress: Progress, when: str) -> Any:
        task, most = self._current(), self.parts.discovery.max_novel
        known = len(task.labels[task.labels >= 0].unique())
        draw = generator(self.seed, "estimate", task.index, when)
        return estimate_n_novel(features, task.labels, most or max(10, known), draw, progress=progress)

    def _remember(self, centroids: Tensor, labels: list[int | None], assignments: Tensor) -> None:
        """Enter clusters as categories; a known class that has one already gets the new centroid."""
        sizes = torch.bincount(assignments, minlength=len(labels)).tolist()
        kept = [] if self.centroids is None else list(self.centroids)
        position = {c.label: i for i, c in enumerate(self.categories) if c.label is not None}
        place = []
        for centroid, label, size in zip(centroids, labels, sizes):
            if label is not None and label in position:
                at = position[label]
                kept[at] = centroid
                self.categories[at] = replace(self.categories[at], size=size)
            else:
                at = len(kept)
                kept.append(centroid)
                self.categories.append(Category(at, self._current().index, label, size))
            place.append(at)
        self.centroids = torch.stack(kept)
        self._assigned = torch.tensor(place)[assignments]

    def features(self, batch: Batch) -> Tensor:
        """(n, D) by the present tip."""
        self.tip.eval()
        with torch.no_grad():
            return self.tip(batch).cpu()

    def predict(self, features: Tensor, allowed: Tensor | None = None) -> Tensor:
        """The nearest centroid."""
        assert self.centroids is not None
        return NearestCentroid(self.centroids, self.parts.discovery.metric).predict(features, allowed)

    def assigned(self) -> Tensor:
        """(n,) position in `categories` of each picture of the last task."""
        return self._assigned

    def state(self) -> State:
        """The tip, centroids and memory; inside a task also the old tip, the heads and the optimiser."""
        tensors = {f"tip.{k}": v for k, v in self.tip.state_dict().items()} | self.memory.state()
        if self.centroids is not None:
            tensors["centroids"] = self.centroids
        if self._phase1 is not None:
            tensors |= {f"phase1.{k}": v for k, v in self._phase1.state().items()}
        if self._old_tip is not None:
            tensors |= {f"old_tip.{k}": v for k, v in self._old_tip.state_dict().items()}
        return State(tensors, {"categories": [vars(c) for c in self.categories]})

    def load(self, state: State, task: Task | None, views: Views) -> None:
        """Go on from `state`. Inside a task it is started again from the old tip, then brought to where it was."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in state.tensors.items() if k.startswith(prefix)}

        self.categories = [Category(**row) for row in state.values["categories"]]
        self.centroids = state.tensors.get("centroids")
        self.memory = Memory(self.parts.exemplars).restored(state.tensors, views)
        if task is not None:
            if old := part("old_tip."):
                self.tip.load_state_dict(old)
            self.start_task(task, Progress(quiet=True))
            assert self._phase1 is not None
            self._phase1.load(part("phase1."))
        self.tip.load_state_dict(part("tip."))

    def _current(self) -> Task:
        assert self._task is not None
        return self._task
