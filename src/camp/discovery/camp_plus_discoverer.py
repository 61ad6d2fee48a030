"""CAMP+'s discovery: a mixture of categories in whitened features, with parameters selected by simulated novelty.

    u = unit(root(z - median z)),   root(x) = sign(x) |x|^(1/2)          power transform of the network's features z
    S = (1 - s) W + s tr(W) / D I                                        shrunk scatter within all labelled classes so far
    x = unit of the first d principal components of u S^{-1/2}           points of the mixture (`category_mixture`)
    c_k = (n_k c_k + sum_i q_ik u_i) / (n_k + sum_i q_ik)                centroids, weighted by the assignments

n_k is 0 unless category k is one of an earlier batch with n_k images that may return. The within-class scatter is kept for
later batches; images are not. All but the scatter and the centroids is computed in the
first MAX_DIM principal axes of the features.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.parallel import single_threaded
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.discovery.base import DiscoveryResult, FeatureBatch, KnownCategories, NumberEstimate
from camp.discovery.category_mixture import MixtureData, MixtureParameters, discover_by_mixture
from camp.discovery.class_scatter import WithinClassScatter, class_sums
from camp.discovery.kmeans_discoverer import SemiSupervisedKMeansDiscoverer
from camp.discovery.number_of_categories import estimate_without_labels
from camp.discovery.principal_components import compares_directions, fit_components, principal_axes
from camp.discovery.simulated_novelty import (
    DiscoveryParameters,
    ParameterGrid,
    SimulatedNovelty,
    estimate_number,
    mixture_data,
    select_parameters,
)

MAX_DIM = 512
"""Greatest dimension in which features are whitened and clustered; little variance of image features lies outside."""


class CampPlusDiscoverer(SemiSupervisedKMeansDiscoverer):
    """Discover categories in the metric of all labelled classes so far.

    Parameters are selected from `grid`; with `power_transform`, `transform` takes roots of features. A novel category
    has at least `min_size` images, and `missed_cost` is as in `estimate_number`.
    """

    def __init__(
        self,
        dim: int,
        grid: ParameterGrid,
        *,
        power_transform: bool = True,
        n_init: int = 100,
        max_iterations: int = 200,
        max_novel: int | None = None,
        min_size: int = 1,
        missed_cost: float = 1.0,
    ) -> None:
        super().__init__(n_init=n_init, max_iterations=max_iterations, max_novel=max_novel)
        self.grid, self.power_transform = grid, power_transform
        self.min_size, self.missed_cost = min_size, missed_cost
        self.unit = compares_directions(dim)
        self.scatter = WithinClassScatter.empty(dim)
        self.shrinkage = grid.default().shrinkage
        self._whitening: Tensor | None = None

    def transform(self, z: Tensor) -> Tensor:
        """Features u (n, D) to discover categories in, of the network's features z (n, D)."""
        if not self.unit:
            return z
        return F.normalize(power_transform(z) if self.power_transform else z, dim=1)

    def whiten(self, features: Tensor) -> Tensor:
        """Features u (n, D) in the space of the classifier, in which S is the identity."""
        if self._whitening is None:
            self._whitening = self.scatter.whitening(self.shrinkage)
        return features @ self._whitening

    def carry(self, weight: Tensor, error: Tensor) -> None:
        """Carry the scatter into the feature space of the trained network, as `WithinClassScatter.carry`."""
        self.scatter, self._whitening = self.scatter.carry(weight, error), None

    @single_threaded()
    def discover(self, batch: FeatureBatch, progress: Progress) -> DiscoveryResult:
        """Find known and novel categories of `batch`, whose features were transformed."""
        u, labels = batch.features, batch.labels
        axes = _leading_axes(u)
        simulation = self._simulation(batch, axes, "after")
        n_novel, estimate = batch.number(lambda: self._estimate_by(simulation, batch, axes, progress))
        parameters, score = select_parameters(simulation, n_novel, estimate is not None, progress)
        labelled = labels != UNLABELLED
        self.scatter, self.shrinkage = self.scatter.add(u[labelled], labels[labelled]), parameters.shrinkage
        self._whitening = None
        weights = self._weights(
            self._data(batch, axes, parameters), batch, n_novel, parameters.mixture, progress
        )
        known = torch.cat([labels[labelled], batch.known.labels]).unique()
        # Novel categories may be empty or small, and those of earlier batches need not return.
        sizes = torch.bincount(weights.argmax(dim=1), minlength=weights.shape[1])
        kept = sizes >= torch.where(torch.arange(len(sizes)) < len(known), 1, self.min_size)
        if not bool(kept.any()):  # fewer than `min_size` images in all
            kept[sizes.argmax()] = True
        weights, centroids = weights[:, kept], _centroids(u, weights, batch.known, known)[kept]
        returned = known[kept[: len(known)]].tolist()
        return DiscoveryResult(
            labels=(*returned, *[None] * (weights.shape[1] - len(returned))),
            assignments=weights.argmax(dim=1),
            centroids=centroids,
            estimate=estimate,
            parameters={**parameters.selected(), "score": score},
        )

    def _weights(
        self,
        data: MixtureData,
        batch: FeatureBatch,
        n_novel: int,
        parameters: MixtureParameters,
        progress: Progress,
    ) -> Tensor:
        """Weight (n, K) of each category for each image; by k-means if no category is known."""
        if not len(data.known_classes()):
            clusters = self._cluster(data.points, batch, n_novel, progress)
            return F.one_hot(clusters.assignments, n_novel).to(data.points.dtype)
        draw = generator(batch.seed, "mixture", batch.index)
        return discover_by_mixture(data, n_novel, parameters, draw)

    def state(self) -> dict[str, Tensor]:
        """The scatter, and the shrinkage that was selected last."""
        return {
            "scatter": self.scatter.total,
            "degrees_of_freedom": torch.tensor(self.scatter.degrees_of_freedom),
            "shrinkage": torch.tensor(self.shrinkage, dtype=torch.float64),
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from `state`."""
        total = state["scatter"]
        self.scatter = WithinClassScatter(total, int(state["degrees_of_freedom"]), len(total))
        self.shrinkage, self._whitening = float(state["shrinkage"]), None

    def _simulation(self, batch: FeatureBatch, axes: Tensor, when: str) -> SimulatedNovelty:
        draw = generator(batch.seed, "simulation", batch.index, when)
        return SimulatedNovelty(
            batch.features @ axes,
            batch.labels,
            batch.known.project(axes),
            self.scatter.project(axes),
            self.grid,
            draw,
            batch.returning,
        )

    @single_threaded()
    def _estimate(self, batch: FeatureBatch, progress: Progress, when: str) -> NumberEstimate:
        axes = _leading_axes(batch.features)
        return self._estimate_by(self._simulation(batch, axes, when), batch, axes, progress)

    def _estimate_by(
        self, simulation: SimulatedNovelty, batch: FeatureBatch, axes: Tensor, progress: Progress
    ) -> NumberEstimate:
        n_known, n_unlabelled = simulation.n_known, batch.n_unlabelled
        most = min(self._max_novel(n_known), n_unlabelled)
        if simulation.folds:
            return estimate_number(simulation, most, progress, self.missed_cost)
        points = self._data(batch, axes, self.grid.default()).points
        of_all = estimate_without_labels(points, n_known + most, simulation.generator, progress=progress)
        return NumberEstimate(min(max(of_all.n_novel - n_known, 0), n_unlabelled), of_all.curve)

    def _data(self, batch: FeatureBatch, axes: Tensor, parameters: DiscoveryParameters) -> MixtureData:
        """Points of the mixture."""
        scatter, count = self.scatter.project(axes), parameters.n_components
        components = fit_components(batch.features @ axes, scatter, count, parameters.shrinkage)
        known = batch.known.project(axes)
        return mixture_data(components, batch.labels, known, scatter, count, self.unit, batch.returning)


def _centroids(features: Tensor, weights: Tensor, known: KnownCategories, labels: Tensor) -> Tensor:
    """Mean feature (K, D) of the images of a batch, with weights (n, K), and of those that are remembered.

    `labels` are those of the first categories, ascending.
    """
    index, count = torch.searchsorted(labels, known.labels), weights.shape[1]
    n = weights.sum(dim=0) + torch.bincount(index, known.counts, count)
    remembered = class_sums(known.counts[:, None] * known.features, index, count)
    return (weights.T @ features + remembered.to(features.dtype)) / n[:, None]


def _leading_axes(features: Tensor) -> Tensor:
    """First principal axes (D, MAX_DIM) of features (n, D); the identity if D is not greater."""
    dim = features.shape[1]
    return principal_axes(features, MAX_DIM) if dim > MAX_DIM else torch.eye(dim)


def power_transform(z: Tensor) -> Tensor:
    """Signed square root of the differences from the median of each feature vector z (n, D).

    It limits the influence of a few large entries on distances. Entries at the median, such as
    zeros of rectified units, stay at zero.
    """
    centred = z - z.median(dim=1, keepdim=True).values
    return centred.sign() * centred.abs().sqrt()
