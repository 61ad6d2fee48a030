"""The paper's discovery: semi-supervised k-means over the features themselves."""

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.discovery.base import DiscoveryResult, FeatureBatch, KMeansBasedDiscoverer, NumberEstimate
from camp.discovery.category_search import default_max_novel
from camp.discovery.number_of_categories import estimate_n_novel


class SemiSupervisedKMeansDiscoverer(KMeansBasedDiscoverer):
    """Cluster a batch into the classes of its labels and novel categories (Vaze et al. 2022).

    Categories of earlier batches take no part unless they are labelled again.
    """

    def discover(self, batch: FeatureBatch, progress: Progress) -> DiscoveryResult:
        """Find known and novel categories of `batch`."""
        estimate = self._estimate_if_needed(batch, progress)
        clusters = self._cluster(batch, batch.features, estimate, progress)
        n_novel = len(clusters.centroids) - len(clusters.known_labels)
        return DiscoveryResult(
            labels=(*clusters.known_labels, *[None] * n_novel),
            assignments=clusters.assignments,
            centroids=clusters.centroids,
            estimate=estimate,
            inertia=clusters.inertia,
        )

    def _estimate(self, batch: FeatureBatch, progress: Progress, when: str) -> NumberEstimate:
        n_known = len(batch.labels[batch.labels != UNLABELLED].unique())
        return estimate_n_novel(
            batch.features,
            batch.labels,
            self.max_novel or default_max_novel(n_known),
            generator(batch.seed, "estimate", batch.index, when),
            progress=progress,
        )
