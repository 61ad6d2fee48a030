"""The paper's discovery: semi-supervised k-means over the features themselves."""

from dataclasses import dataclass

from torch import Tensor

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.discovery.base import DiscoveryResult, FeatureBatch, NumberEstimate
from camp.discovery.category_search import default_max_novel
from camp.discovery.number_of_categories import estimate_n_novel
from camp.discovery.semi_supervised_kmeans import semi_supervised_kmeans


@dataclass(frozen=True)
class SemiSupervisedKMeansDiscoverer:
    """Cluster a batch into the classes of its labels and novel categories (Vaze et al. 2022).

    Categories of earlier batches take no part unless they are labelled again, and no statistics are
    kept.
    """

    n_init: int = 100
    """Runs of k-means; the one with the lowest inertia is kept."""
    max_iterations: int = 200
    """Greatest number of iterations of a run."""
    max_novel: int | None = None
    """Greatest number of novel categories considered when it is estimated; by default the number of
    known classes, and at least 10."""

    def discover(self, batch: FeatureBatch, progress: Progress) -> DiscoveryResult:
        """Find known and novel categories of `batch`."""
        estimate = self._estimate(batch, progress, "after") if batch.n_novel is None else None
        n_novel = batch.n_novel if estimate is None else estimate.n_novel
        assert n_novel is not None
        with progress.track("Clustering", self.n_init) as bar:
            clusters = semi_supervised_kmeans(
                batch.features,
                batch.labels,
                n_novel,
                n_init=self.n_init,
                max_iterations=self.max_iterations,
                generator=generator(batch.seed, "clustering", batch.index),
                progress=bar,
            )
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

    def _estimate(self, batch: FeatureBatch, progress: Progress, when: str) -> NumberEstimate:
        n_known = len(batch.labels[batch.labels != UNLABELLED].unique())
        return estimate_n_novel(
            batch.features,
            batch.labels,
            self.max_novel or default_max_novel(n_known),
            generator(batch.seed, "estimate", batch.index, when),
            progress=progress,
        )
