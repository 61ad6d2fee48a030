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
from camp.core.types import UNLABELLED
from camp.discovery.base import DiscoveryResult, FeatureBatch, KnownCategories, NumberEstimate
from camp.discovery.camp_plus_discoverer import CampPlusDiscoverer
from camp.discovery.class_metric import ClassMetric
from camp.discovery.class_scatter import class_means
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
        mixture, together = self._prepare(batch)
        found = mixture.discover(together, progress)
        assignments = found.assignments[-len(batch.features) :]
        features, known = batch.features, batch.known
        n_components = max(MIN_COMPONENTS, 2 * len(found.labels))
        everything = torch.cat([known.features, features])
        self.metric = ClassMetric.fit(everything, torch.cat([known.labels, batch.labels]), n_components)
        known_labels = torch.tensor([label for label in found.labels if label is not None], dtype=torch.int64)
        positions = torch.cat([torch.searchsorted(known_labels, known.labels), assignments])
        centroids = class_means(everything, positions, len(found.labels)).to(features.dtype)
        return replace(found, assignments=assignments, centroids=centroids)

    def estimate(self, batch: FeatureBatch, progress: Progress) -> NumberEstimate:
        """Estimate the number of novel categories of `batch` before training."""
        mixture, together = self._prepare(batch)
        return mixture.estimate(together, progress)

    def state(self) -> dict[str, Tensor]:
        """No statistics: images are remembered."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Nothing to restore."""

    def _prepare(self, batch: FeatureBatch) -> tuple[CampPlusDiscoverer, FeatureBatch]:
        """Return the discoverer, and the batch behind some remembered images of each category."""
        known = batch.known.subset(_sample_each(batch.known.labels))
        labels = torch.cat([known.labels, batch.labels])
        without_labels = bool((labels == UNLABELLED).all())
        mixture = CampPlusDiscoverer(
            batch.features.shape[1],
            self.grid,
            n_init=self.n_init,
            max_novel=self.max_novel or (MAX_NOVEL_WITHOUT_LABELS if without_labels else None),
            min_size=MIN_CLUSTER_SIZE if batch.n_novel is None else 1,
            missed_cost=self.missed_cost,
        )
        features = mixture.transform(torch.cat([known.features, batch.features]))
        together = replace(
            batch,
            features=features,
            labels=labels,
            known=KnownCategories.empty(features.shape[1]),
            returning=True,
        )
        return mixture, together


def _sample_each(labels: Tensor) -> Tensor:
    """Rows of at most MAX_PER_CATEGORY images of each label, evenly spaced."""
    rows = [torch.empty(0, dtype=torch.long)]
    for label in labels.unique().tolist():
        members = (labels == label).nonzero()[:, 0]
        rows.append(members[torch.linspace(0, len(members) - 1, min(MAX_PER_CATEGORY, len(members))).long()])
    return torch.cat(rows)
