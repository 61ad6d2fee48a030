"""The paper's discovery: semi-supervised k-means over the features themselves."""

from torch import Tensor

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.discovery.base import DiscoveryResult, FeatureBatch, NumberEstimate
from camp.discovery.number_of_categories import estimate_n_novel
from camp.discovery.semi_supervised_kmeans import KMeans, semi_supervised_kmeans


class SemiSupervisedKMeansDiscoverer:
    """Cluster a batch into the classes of its labels and novel categories (Vaze et al. 2022).

    Categories of earlier batches take no part unless they are labelled again, and no statistics are
    kept.

    Args:
        n_init: Runs of k-means; the one with the lowest inertia is kept.
        max_iterations: Greatest number of iterations of a run.
        max_novel: Greatest number of novel categories considered when it is estimated; by default
            the number of known classes, and at least 10.
    """

    def __init__(self, n_init: int = 100, max_iterations: int = 200, max_novel: int | None = None) -> None:
        self.n_init, self.max_iterations, self.max_novel = n_init, max_iterations, max_novel

    def discover(self, batch: FeatureBatch, progress: Progress) -> DiscoveryResult:
        """Find known and novel categories of `batch`."""
        n_novel, estimate = batch.number(lambda: self._estimate(batch, progress, "after"))
        clusters = self._cluster(batch.features, batch, n_novel, progress)
        return DiscoveryResult(
            labels=(*clusters.known_labels, *[None] * n_novel),
            assignments=clusters.assignments,
            centroids=clusters.centroids,
            estimate=estimate,
            inertia=clusters.inertia,
        )

    def estimate(self, batch: FeatureBatch, progress: Progress) -> NumberEstimate:
        """Estimate the number of novel categories of `batch` before training."""
        return self._estimate(batch, progress, "before")

    def state(self) -> dict[str, Tensor]:
        """No statistics."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Nothing to restore."""

    def _cluster(self, points: Tensor, batch: FeatureBatch, n_novel: int, progress: Progress) -> KMeans:
        """Cluster the points (n, d) of a batch."""
        with progress.track("Clustering", self.n_init) as bar:
            return semi_supervised_kmeans(
                points,
                batch.labels,
                n_novel,
                n_init=self.n_init,
                max_iterations=self.max_iterations,
                generator=generator(batch.seed, "clustering", batch.index),
                progress=bar,
            )

    def _estimate(self, batch: FeatureBatch, progress: Progress, when: str) -> NumberEstimate:
        maximum = self._max_novel(len(batch.labels[batch.labels != UNLABELLED].unique()))
        draw = generator(batch.seed, "estimate", batch.index, when)
        return estimate_n_novel(batch.features, batch.labels, maximum, draw, progress=progress)

    def _max_novel(self, n_known: int) -> int:
        return self.max_novel or max(10, n_known)
