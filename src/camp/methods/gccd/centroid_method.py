"""Methods that represent categories by centroids: CAMP, GCD and their relatives differ in their components."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.data.tasks import Task
from camp.data.views import Batch
from camp.discovery.base import Discoverer, DiscoveryResult, FeatureBatch, KnownCategories
from camp.discovery.kmeans_discoverer import SemiSupervisedKMeansDiscoverer
from camp.discovery.nearest_centroid import NearestCentroid
from camp.methods.base import BuildContext, CentroidDrift
from camp.methods.components import Callback, TaskRun
from camp.methods.distillation import Distillation, Distiller, OldFeatures
from camp.methods.gccd.adaptation import CentroidAdapter
from camp.methods.settings import Discovery, Training
from camp.methods.tip_method import TipMethod
from camp.methods.trainer import Trainer, TrainingData, TrainingStep, clean_features
from camp.methods.two_views import TwoViewObjective, TwoViewStep
from camp.nn.distillers import make_distiller


@dataclass(frozen=True)
class HeadSizes:
    """The sizes that heads are made for."""

    dim: int
    """D, the length of a feature."""
    known: int
    """Number of known classes so far, with those of this task; labels are 0 .. known - 1."""
    total: Callable[[], int]
    """Returns K, the number of known and novel categories; where it is not given it is estimated."""
    task: int
    """Position of the task in the stream, from 0."""


def kmeans_discoverer(settings: Discovery) -> SemiSupervisedKMeansDiscoverer:
    """Make the paper's discoverer."""
    return SemiSupervisedKMeansDiscoverer(settings.n_init, settings.max_iterations, settings.max_novel)


def identity(features: Tensor) -> Tensor:
    """Return the features as they are."""
    return features


@dataclass(frozen=True)
class Composition:
    """The components of a method that represents categories by centroids."""

    objective: Callable[[HeadSizes, torch.Generator], TwoViewObjective] | None
    """Makes the objective of a task with new heads; None trains nothing."""
    training: Training
    discovery: Discovery
    later_training: Training | None = None
    """Training from the second task on; None: that of the first task."""
    step: Callable[[TwoViewObjective, Distiller | None], TrainingStep] = TwoViewStep
    distiller: Literal["none", "fd", "linear", "mlp", "trex"] = "none"
    distillation: Distillation | None = None
    adapter: CentroidAdapter | None = None
    discoverer: Discoverer | None = None
    """By default semi-supervised k-means with the settings `discovery`."""
    transform: Callable[[Tensor], Tensor] = identity
    """Applied to the features (n, D) of the tip before anything else sees them."""
    whiten: Callable[[Tensor], Tensor] = identity
    """Applied to features (n, D) and centroids (K, D) before the nearest centroid is chosen."""
    centred: bool = False
    """Classify by the cosine about the mean of all centroids, in place of the metric of discovery."""
    known: Callable[[], KnownCategories] | None = None
    """Returns features of earlier images, for methods that remember them."""
    returning: bool = False
    """Let unlabelled images be of categories of earlier tasks, in streams where these return."""
    exemplars: int = 0
    callbacks: Sequence[Callback] = ()
    clipping: Literal["norm", "value"] = "norm"


class CategoryCounts:
    """Number of images, of all tasks, of which the centroid of each category is the mean."""

    def __init__(self) -> None:
        self.counts = torch.empty(0)

    def add(self, places: Sequence[int], sizes: Tensor, total: int) -> None:
        """Add the `sizes` of the categories at `places`, of `total` categories."""
        self.counts = torch.cat([self.counts, torch.zeros(total - len(self.counts))])
        self.counts[places] += sizes

    def state(self) -> dict[str, Tensor]:
        """Return the counts, for a checkpoint."""
        return {"counts": self.counts}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from `state`."""
        self.counts = state["counts"]


class CentroidMethod(TipMethod):
    """Training, adaptation and discovery (phases 1, 3 and 2) by the components."""

    def __init__(self, context: BuildContext, parts: Composition) -> None:
        super().__init__(context, parts.training, exemplars=parts.exemplars, callbacks=parts.callbacks)
        self.parts = parts
        self.trains = parts.objective is not None
        self.discoverer = parts.discoverer or kmeans_discoverer(parts.discovery)
        self.memories["discoverer"] = self.discoverer
        self.counts = CategoryCounts()
        if parts.returning:
            self.memories["counts"] = self.counts
        self.task_features = torch.empty(0, self.dim)
        """(n, D) features of the images of the last task under the trained tip."""

    def _make_trainer(self, run: TaskRun, progress: Progress) -> Trainer | None:
        """Make new heads, and a distiller from the second task on."""
        parts, task = self.parts, run.task
        if parts.objective is None:
            return None
        data = TrainingData(*self.exemplars.behind(task.views, task.labels), len(task))
        network = None
        if run.old_tip is not None:
            draw = generator(self.seed, "distiller", task.index)
            network = make_distiller(parts.distiller, self.dim, draw)
            if network is not None or parts.adapter is not None:
                run.old_features = OldFeatures(run.old_tip, data.views, self.dim, progress)
        sizes = HeadSizes(
            self.dim, self._num_labels(task), lambda: self._num_categories(task, progress), task.index
        )
        objective = parts.objective(sizes, generator(self.seed, "heads", task.index))
        distiller = None
        if network is not None and run.old_features is not None and parts.distillation is not None:
            distiller = Distiller(network, run.old_features, parts.distillation)
        training = parts.later_training if run.old_tip is not None else None
        return self._trainer(run, parts.step(objective, distiller), data, parts.clipping, training)

    def _num_categories(self, task: Task, progress: Progress) -> int:
        """K: given by the scenario, or known categories and an estimate on the features before training."""
        if task.total is not None:
            return task.total
        n_novel = task.n_novel
        if n_novel is None:
            features = self.parts.transform(clean_features(self.tip, task.views, progress))
            n_novel = self.discoverer.estimate(self._batch(task, features), progress).n_novel
        return len(self.categories) + len(self._new_labels(task)) + n_novel

    def _conclude(self, run: TaskRun, progress: Progress) -> None:
        """Adapt the centroids of earlier tasks, then discover those of this one."""
        task = run.task
        self.task_features = self.parts.transform(clean_features(self.tip, task.views, progress))
        self.drift = None
        if run.old_tip is not None and self.centroids is not None and len(self.centroids):
            stored = self.centroids
            if self.parts.adapter is not None:
                self.centroids = self.parts.adapter.adapt(stored, self.task_features, run, progress)
            self.drift = CentroidDrift(stored, self.centroids)
        batch = self._batch(task, self.task_features)
        result = self.discoverer.discover(batch, progress)
        if self._returning(task):
            result, returned = self._with_labels(result, task)
            places = self._enter(task, result.labels, result.assignments, returned)
        else:
            places = self._enter(task, result.labels, result.assignments)
        if self.parts.returning:
            sizes = torch.bincount(result.assignments, minlength=len(places))
            self.counts.add(places, sizes, len(self.categories))
        centroids = torch.empty(len(self.categories), self.dim)
        if self.centroids is not None:
            centroids[: len(self.centroids)] = self.centroids
        centroids[places] = result.centroids  # a category that comes again gets its new centroid
        self.centroids, self.discovery = centroids, result

    def _batch(self, task: Task, features: Tensor) -> FeatureBatch:
        """Return the features of a task as the discoverer takes them.

        Where categories may return, all are numbered by their position, and new labels follow.
        """
        known, labels = KnownCategories.empty(self.dim), task.labels
        if self.parts.known is not None:
            known = self.parts.known()
        elif self._returning(task):
            position = self._position_of_label()
            new = {label: len(self.categories) + rank for rank, label in enumerate(self._new_labels(task))}
            number = {UNLABELLED: UNLABELLED, **position, **new}
            labels = torch.tensor([number[label] for label in labels.tolist()])
            known = self._remembered(features, labels)
        returning = self.parts.known is not None or self._returning(task)
        return FeatureBatch(features, labels, task.n_novel, known, self.seed, task.index, returning)

    def _returning(self, task: Task) -> bool:
        """Whether unlabelled images of a task may be of earlier categories, and the method considers it."""
        return self.parts.returning and task.returning and self.centroids is not None

    def _remembered(self, features: Tensor, labels: Tensor) -> KnownCategories:
        """Return the centroids of earlier tasks, without the discovered ones of classes that now have labels.

        Most images of such a class, whose new label is in `labels` (n,), are nearest to the centroid that stood for it.
        """
        assert self.centroids is not None
        kept = torch.ones(len(self.categories), dtype=torch.bool)
        for label in labels[labels >= len(self.categories)].unique().tolist():
            nearest = self.predict(features[labels == label])
            count, place = (int(value) for value in nearest.bincount().max(dim=0))
            if self.categories[place].label is None and 2 * count > len(nearest):
                kept[place] = False
        known = KnownCategories(self.centroids, torch.arange(len(self.categories)), self.counts.counts)
        return known.subset(kept)

    def _with_labels(self, result: DiscoveryResult, task: Task) -> tuple[DiscoveryResult, list[int | None]]:
        """Return the result with labels in place of the positions of `_batch`, and the positions of earlier tasks."""
        n_old, new = len(self.categories), self._new_labels(task)
        labels: list[int | None] = []
        returned: list[int | None] = []
        for number in result.labels:
            old = number is not None and number < n_old
            returned.append(number if old else None)
            if number is None:
                labels.append(None)
            else:
                labels.append(self.categories[number].label if old else new[number - n_old])
        return replace(result, labels=tuple(labels)), returned

    def features(self, batch: Batch) -> Tensor:
        """Return the transformed features (n, D) of views under the present tip."""
        return self.parts.transform(super().features(batch))

    def predict(
        self, features: Tensor, allowed: Tensor | None = None, centroids: Tensor | None = None
    ) -> Tensor:
        """Return the position (n,) of the nearest centroid."""
        centroids = self.centroids if centroids is None else centroids
        assert centroids is not None, "there are no categories yet"
        z, c = self.parts.whiten(features), self.parts.whiten(centroids)
        if not self.parts.centred:
            return NearestCentroid(c, self.parts.discovery.metric).predict(z, allowed)
        mean = c.mean(dim=0)
        return NearestCentroid(c - mean, "cosine").predict(z - mean, allowed)
