"""Discovery for collections in which categories of earlier batches return.

Differences from the paper's setting:

- Known categories take part in the clustering as anchors: each is a cluster that already has its
  remembered members.
- Features are clustered under the class metric of all known categories and labels.
- Remembered features help to estimate the number of novel categories, so a batch needs no labels of
  its own.
"""

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.discovery.base import DiscoveryResult, FeatureBatch, KnownCategories, NumberEstimate
from camp.discovery.class_metric import ClassMetric
from camp.discovery.class_scatter import class_means
from camp.discovery.kmeans_discoverer import SemiSupervisedKMeansDiscoverer
from camp.discovery.nearest_centroid import NearestCentroid
from camp.discovery.number_of_categories import estimate_n_novel, estimate_without_labels
from camp.discovery.semi_supervised_kmeans import Anchors, KMeans

MIN_CLUSTER_SIZE = 3
"""Smallest number of images of a novel category where their number is estimated; images of smaller
clusters go to the nearest other category."""
MAX_PER_CATEGORY, MAX_UNLABELLED = 30, 2000
"""Images of each known category, and unlabelled images, that an estimate uses."""
TOLERANCE, N_FOLDS, N_STEPS = 0.02, 8, 16
"""Of the estimate. Of numbers that score about as well as the best the greatest is taken, as
merging two categories is easier for a person than noticing that one category should be two."""
N_CLUSTERED = 32
"""Number of leading components of the metric that are clustered."""
MIN_COMPONENTS = 128
"""Number of components of the metric, or twice the number of categories if that is more."""
MAX_NOVEL_WITHOUT_LABELS = 30


class OpenWorldDiscoverer(SemiSupervisedKMeansDiscoverer):
    """Discover categories among those of earlier batches."""

    metric: ClassMetric | None = None
    """Of the last batch, fitted on the remembered and the new features; None before the first."""

    def discover(self, batch: FeatureBatch, progress: Progress) -> DiscoveryResult:
        """Find known and novel categories of `batch`, and fit the metric."""
        n_novel, estimate = batch.number(lambda: self._estimate(batch, progress, "after"))
        features, known = batch.features, batch.known
        labels = torch.cat([known.labels, batch.labels])
        n_categories = len(labels[labels != UNLABELLED].unique()) + n_novel
        n_components = max(MIN_COMPONENTS, 2 * n_categories)
        self.metric = ClassMetric.fit(torch.cat([known.features, features]), labels, n_components)
        points = self.metric.transform(features, N_CLUSTERED)
        clusters = self._cluster(points, batch, n_novel, progress, _anchors(known, self.metric))
        min_size = MIN_CLUSTER_SIZE if batch.n_novel is None else 1
        assignments, count = _without_small_clusters(points, clusters, min_size)
        known_labels = clusters.known_labels
        remembered = torch.searchsorted(torch.tensor(known_labels, dtype=torch.int64), known.labels)
        everything = torch.cat([known.features, features]), torch.cat([remembered, assignments])
        return DiscoveryResult(
            labels=(*known_labels, *[None] * (count - len(known_labels))),
            assignments=assignments,
            centroids=class_means(*everything, count).to(features.dtype),
            estimate=estimate,
            inertia=clusters.inertia,
        )

    def _estimate(self, batch: FeatureBatch, progress: Progress, when: str) -> NumberEstimate:
        draw = generator(batch.seed, "estimate", batch.index, when)
        old, new = _sample_each(batch.known.labels), _sample(batch.labels, draw)
        features = torch.cat([batch.known.features[old], batch.features[new]])
        labels = torch.cat([batch.known.labels[old], batch.labels[new]])
        n_known = len(labels[labels != UNLABELLED].unique())

        def embed(shown: Tensor) -> Tensor:
            return ClassMetric.fit(features, shown, N_CLUSTERED).transform(features)

        if not n_known:
            most = self.max_novel or MAX_NOVEL_WITHOUT_LABELS
            return estimate_without_labels(embed(labels), most, draw, progress=progress)
        return estimate_n_novel(
            features,
            labels,
            self._max_novel(n_known),
            draw,
            n_folds=N_FOLDS,
            n_steps=N_STEPS,
            n_init=10,
            embed=embed,
            tolerance=TOLERANCE,
            progress=progress,
        )


def _anchors(known: KnownCategories, metric: ClassMetric) -> Anchors | None:
    """Known categories as clusters that already have members."""
    if not len(known.labels):
        return None
    labels, index, counts = known.labels.unique(return_inverse=True, return_counts=True)
    points = metric.transform(known.features, N_CLUSTERED)
    return Anchors(labels, class_means(points, index, len(labels)), counts)


def _without_small_clusters(points: Tensor, clusters: KMeans, min_size: int) -> tuple[Tensor, int]:
    """Dissolve novel clusters of fewer than `min_size` points into the nearest other clusters.

    Returns:
        (n,) cluster of each point, renumbered, and the number of clusters.
    """
    sizes = torch.bincount(clusters.assignments, minlength=len(clusters.centroids))
    kept = (torch.arange(len(sizes)) < len(clusters.known_labels)) | (sizes >= min_size)
    if not bool(kept.any()):  # fewer than `min_size` points in all
        kept[sizes.argmax()] = True
    assignments = clusters.assignments.clone()
    moved = ~kept[assignments]
    if bool(moved.any()):
        assignments[moved] = NearestCentroid(clusters.centroids).predict(points[moved], kept.nonzero()[:, 0])
    return (kept.cumsum(dim=0) - 1)[assignments], int(kept.sum())


def _sample_each(labels: Tensor) -> Tensor:
    """Rows of at most MAX_PER_CATEGORY images of each label, evenly spaced."""
    rows = [torch.empty(0, dtype=torch.long)]
    for label in labels.unique().tolist():
        members = (labels == label).nonzero()[:, 0]
        rows.append(members[torch.linspace(0, len(members) - 1, min(MAX_PER_CATEGORY, len(members))).long()])
    return torch.cat(rows)


def _sample(labels: Tensor, draw: torch.Generator) -> Tensor:
    """Rows of at most MAX_PER_CATEGORY images of each label, and MAX_UNLABELLED others."""
    unlabelled = (labels == UNLABELLED).nonzero()[:, 0]
    if len(unlabelled) > MAX_UNLABELLED:
        sample = torch.randperm(len(unlabelled), generator=draw)[:MAX_UNLABELLED]
        unlabelled = unlabelled[sample].sort().values
    labelled = (labels != UNLABELLED).nonzero()[:, 0]
    return torch.cat([labelled[_sample_each(labels[labelled])], unlabelled])
