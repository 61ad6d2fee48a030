"""Methods that represent categories by centroids: CAMP, GCD and their relatives differ in their components."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.tasks import Task
from camp.data.views import Batch
from camp.discovery.base import Discoverer, FeatureBatch, KnownCategories
from camp.discovery.kmeans_discoverer import SemiSupervisedKMeansDiscoverer
from camp.discovery.nearest_centroid import NearestCentroid
from camp.methods.base import CentroidDrift
from camp.methods.components import Callback, TaskRun
from camp.methods.distillation import Distillation, Distiller, OldFeatures
from camp.methods.gccd.adaptation import CentroidAdapter, NoAdapter
from camp.methods.settings import Discovery, Training
from camp.methods.tip_method import TipMethod
from camp.methods.trainer import Trainer, TrainingData, TrainingStep, clean_features
from camp.methods.two_views import TwoViewObjective, TwoViewStep
from camp.nn.backbones.base import Backbone
from camp.nn.distillers import make_distiller


@dataclass(frozen=True)
class HeadSizes:
    """The sizes that heads are made for."""

    dim: int
    """D, the length of a feature."""
    known: int
    """Number of known classes so far, with those of this task; labels are 0 .. known - 1."""
    count: Callable[[], int]
    """Computes `total`."""

    @property
    def total(self) -> int:
        """K, the number of known and novel categories; where it is not given it is estimated, which takes time."""
        return self.count()


class CentroidClassifier(Protocol):
    """Assigns features to centroids."""

    def predict(self, features: Tensor, centroids: Tensor, allowed: Tensor | None) -> Tensor:
        """Return the row (n,) of the centroid of each feature, of those in `allowed` alone if given."""


@dataclass(frozen=True)
class NearestCentroidClassifier:
    """Chooses the nearest centroid."""

    metric: Literal["l2", "cosine"] = "l2"

    def predict(self, features: Tensor, centroids: Tensor, allowed: Tensor | None) -> Tensor:
        """Return the row (n,) of the nearest centroid."""
        return NearestCentroid(centroids, self.metric).predict(features, allowed)


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
    step: Callable[[TwoViewObjective, Distiller | None], TrainingStep] = TwoViewStep
    distiller: Literal["none", "fd", "linear", "mlp", "trex"] = "none"
    distillation: Distillation | None = None
    adapter: CentroidAdapter = field(default_factory=NoAdapter)
    discoverer: Discoverer | None = None
    """By default semi-supervised k-means with the settings `discovery`."""
    classifier: CentroidClassifier | None = None
    """By default the nearest centroid under the metric of `discovery`."""
    transform: Callable[[Tensor], Tensor] = identity
    """Applied to the features (n, D) of the tip before anything else sees them."""
    known: Callable[[], KnownCategories] | None = None
    """Returns features of earlier images, for methods that remember them."""
    exemplars: int = 0
    callbacks: Sequence[Callback] = ()
    clipping: Literal["norm", "value"] = "norm"


class CentroidMethod(TipMethod):
    """Training, adaptation and discovery (phases 1, 3 and 2) by the components."""

    def __init__(self, backbone: Backbone, parts: Composition, seed: int, device: torch.device) -> None:
        super().__init__(
            backbone, parts.training, seed, device, exemplars=parts.exemplars, callbacks=parts.callbacks
        )
        self.parts = parts
        self.discoverer = parts.discoverer or kmeans_discoverer(parts.discovery)
        self.classifier = parts.classifier or NearestCentroidClassifier(parts.discovery.metric)
        self.memories["discoverer"] = self.discoverer
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
            if network is not None or parts.adapter.compares_features:
                run.old_features = OldFeatures(run.old_tip, data.views, self.dim, progress)
        sizes = HeadSizes(self.dim, self._num_labels(task), lambda: self._num_categories(task, progress))
        objective = parts.objective(sizes, generator(self.seed, "heads", task.index))
        distiller = None
        if network is not None and run.old_features is not None and parts.distillation is not None:
            distiller = Distiller(network, run.old_features, parts.distillation)
        return Trainer(
            tip=self.tip,
            step=parts.step(objective, distiller),
            data=data,
            settings=parts.training,
            device=self.device,
            seeds=(self.seed, task.index),
            penalties=self._penalties(run),
            clipping=parts.clipping,
        )

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
            self.centroids = self.parts.adapter.adapt(stored, self.task_features, run, progress)
            self.drift = CentroidDrift(stored, self.centroids)
        result = self.discoverer.discover(self._batch(task, self.task_features), progress)
        places = self._enter(task, result.labels, result.assignments)
        centroids = torch.empty(len(self.categories), self.dim)
        if self.centroids is not None:
            centroids[: len(self.centroids)] = self.centroids
        centroids[places] = result.centroids  # a known class that comes again gets its new centroid
        self.centroids, self.discovery = centroids, result

    def _batch(self, task: Task, features: Tensor) -> FeatureBatch:
        """Return the features of a task as the discoverer takes them."""
        known = self.parts.known() if self.parts.known is not None else KnownCategories.empty(self.dim)
        return FeatureBatch(features, task.labels, task.n_novel, known, self.seed, task.index)

    def features(self, batch: Batch) -> Tensor:
        """Return the transformed features (n, D) of views under the present tip."""
        return self.parts.transform(super().features(batch))

    def predict(
        self, features: Tensor, allowed: Tensor | None = None, centroids: Tensor | None = None
    ) -> Tensor:
        """Return the position (n,) of the centroid that the classifier chooses."""
        centroids = self.centroids if centroids is None else centroids
        assert centroids is not None, "there are no categories yet"
        return self.classifier.predict(features, centroids, allowed)
