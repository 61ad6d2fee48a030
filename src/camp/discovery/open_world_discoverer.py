"""Discovery for collections in which categories of earlier batches return, as `camp learn` uses it.

CAMP+'s mixture of categories (`camp_plus_discoverer`), with two differences from the paper's setting:

- The features of images of earlier batches are remembered. They are labelled images of the mixture, so that every known
  category is a component with its images as evidence, whether it returns or not.
- Classes with remembered images can be hidden in the simulation as well as those with labels, so that a batch needs no
  labels of its own for its number of novel categories to be estimated.

The class metric of all known categories and labels is fitted for recognition.
"""

from dataclasses import replace

import torch
from torch import Tensor

from camp.core.parallel import single_threaded
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.discovery.base import DiscoveryResult, FeatureBatch, KnownCategories, NumberEstimate
from camp.discovery.camp_plus_discoverer import CampPlusDiscoverer
from camp.discovery.class_metric import MAX_SAMPLES, ClassMetric
from camp.discovery.class_scatter import class_sums
from camp.discovery.large_batches import evenly_spaced, is_large, per_class, sample_rows
from camp.discovery.simulated_novelty import ParameterGrid

MIN_CLUSTER_SIZE = 3
"""Smallest number of images of a novel category where their number is estimated; images of smaller
clusters go to the next best category."""
MAX_PER_CATEGORY = 30
"""Remembered images of a category that take part."""
MIN_COMPONENTS = 128
"""Number of components of the metric, or twice the number of categories if that is more."""
MAX_NOVEL_WITHOUT_LABELS = 30
MISSED_COST = 2.0
"""What a missed category costs relative to a split one, in the estimate of their number: two categories of one kind are
merged by one decision of a person, and a category of two kinds is split by one and its half named by another."""


class OpenWorldDiscoverer:
    """Discover categories among those of earlier batches.

    Args:
        n_init: Runs of k-means in a batch without any known category.
        max_novel: As in `SemiSupervisedKMeansDiscoverer`.
        grid: Values that parameters are selected from; by default densities are Gaussian.
        missed_cost: As in `estimate_number`.
    """

    def __init__(
        self,
        n_init: int = 100,
        max_novel: int | None = None,
        grid: ParameterGrid | None = None,
        missed_cost: float = MISSED_COST,
    ) -> None:
        self.n_init, self.max_novel, self.grid = (
            n_init,
            max_novel,
            grid or ParameterGrid(equal_widths=(False,)),
        )
        self.missed_cost = missed_cost
        self.metric: ClassMetric | None = None
        """Of the last batch, fitted on the remembered and the new features; None before the first."""

    @single_threaded()
    def discover(self, batch: FeatureBatch, progress: Progress) -> DiscoveryResult:
        """Find known and novel categories of `batch`, and fit the metric."""
        mixture, sample = self._prepare(batch)
        if is_large(len(batch.features)):
            found = mixture.discover_by_sample(
                sample, batch.features, batch.labels, mixture.transform, progress
            )
            assignments = found.assignments
        else:
            found = mixture.discover(sample, progress)
            assignments = found.assignments[-len(batch.features) :]
        known, count = batch.known, len(found.labels)
        self.metric = _fit_metric(batch, max(MIN_COMPONENTS, 2 * count))
        known_labels = torch.tensor([label for label in found.labels if label is not None], dtype=torch.int64)
        positions = torch.searchsorted(known_labels, known.labels)
        sums = class_sums(known.features, positions, count)
        sums = class_sums(batch.features, assignments, count, sums)
        sizes = torch.bincount(positions, minlength=count) + torch.bincount(assignments, minlength=count)
        centroids = (sums / sizes[:, None]).to(batch.features.dtype)
        return replace(found, assignments=assignments, centroids=centroids)

    def estimate(self, batch: FeatureBatch, progress: Progress) -> NumberEstimate:
        """Estimate the number of novel categories of `batch` before training."""
        mixture, sample = self._prepare(batch)
        return mixture.estimate(sample, progress)

    def state(self) -> dict[str, Tensor]:
        """No statistics: images are remembered."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Nothing to restore."""

    def _prepare(self, batch: FeatureBatch) -> tuple[CampPlusDiscoverer, FeatureBatch]:
        """Return the discoverer, and the batch, or a sample of a large one, behind some images of each earlier category."""
        known, labels, features = batch.known, batch.labels, batch.features
        most = MAX_PER_CATEGORY
        if is_large(len(features)):
            n_remembered = len(known.labels.unique())
            rows = sample_rows(labels, generator(batch.seed, "sample", batch.index), n_remembered)
            labels, features = labels[rows], features[rows]
            most = per_class(n_remembered + len(labels[labels != UNLABELLED].unique()))
        known = known.subset(evenly_spaced(known.labels, most))
        labels = torch.cat([known.labels, labels])
        without_labels = bool((labels == UNLABELLED).all())
        mixture = CampPlusDiscoverer(
            features.shape[1],
            self.grid,
            n_init=self.n_init,
            max_novel=self.max_novel or (MAX_NOVEL_WITHOUT_LABELS if without_labels else None),
            min_size=MIN_CLUSTER_SIZE if batch.n_novel is None else 1,
            missed_cost=self.missed_cost,
        )
        features = mixture.transform(torch.cat([known.features, features]))
        together = replace(
            batch,
            features=features,
            labels=labels,
            known=KnownCategories.empty(features.shape[1]),
            returning=True,
        )
        return mixture, together


def _fit_metric(batch: FeatureBatch, n_components: int) -> ClassMetric:
    """Fit the metric of recognition to the remembered images and those of the batch."""
    known, n_known = batch.known, len(batch.known)
    total = n_known + len(batch.features)
    rows = torch.arange(0, total, max(1, -(-total // MAX_SAMPLES)))
    if is_large(len(batch.features)):  # in which few of such rows may have a label
        labels = torch.cat([known.labels, batch.labels])
        n_classes = len(labels[labels != UNLABELLED].unique())
        labelled = evenly_spaced(labels, per_class(n_classes))
        rows = torch.cat([rows[labels[rows] == UNLABELLED], labelled]).sort().values
        rows = rows[:: max(1, -(-len(rows) // MAX_SAMPLES))]
    earlier = rows < n_known
    features = torch.cat([known.features[rows[earlier]], batch.features[rows[~earlier] - n_known]])
    labels = torch.cat([known.labels[rows[earlier]], batch.labels[rows[~earlier] - n_known]])
    return ClassMetric.fit(features, labels, n_components)
