"""CAMP+'s discovery: a mixture of categories in whitened features, with parameters selected by simulated novelty.

    u = unit(root(z - median z)),   root(x) = sign(x) |x|^(1/2)          power transform of the network's features z
    S = (1 - s) W + s tr(W) / D I                                        shrunk scatter within all labelled classes so far
    x = unit of the first d principal components of u S^{-1/2}           points of the mixture (`category_mixture`)
    c_k = (n_k c_k + sum_i q_ik u_i) / (n_k + sum_i q_ik)                centroids, weighted by the assignments

n_k is 0 unless category k is one of an earlier batch with n_k images that may return. The within-class scatter is kept for
later batches; images are not. All but the scatter and the centroids is computed in the
first MAX_DIM principal axes of the features.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.parallel import single_threaded
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.discovery.base import DiscoveryResult, FeatureBatch, KnownCategories, NumberEstimate
from camp.discovery.category_mixture import (
    FittedCategories,
    MixtureData,
    MixtureParameters,
    discover_by_mixture,
)
from camp.discovery.class_scatter import WithinClassScatter, class_sums
from camp.discovery.kmeans_discoverer import SemiSupervisedKMeansDiscoverer
from camp.discovery.large_batches import (
    BlockClassifier,
    grid_for_samples,
    is_large,
    sample_rows,
)
from camp.discovery.number_of_categories import estimate_without_labels
from camp.discovery.principal_components import (
    Components,
    compares_directions,
    fit_components,
    principal_axes,
)
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
        if is_large(len(batch.features)):
            sample = batch.subset(self._sample_rows(batch))
            result = self.discover_by_sample(sample, batch.features, batch.labels, lambda u: u, progress)
            return replace(result, centroids=_centroids_of_assigned(batch, result))
        u, fit = batch.features, self._fit(batch, self.grid, progress)
        weights, known = fit.weights, fit.classes
        # Novel categories may be empty or small, and those of earlier batches need not return.
        kept = self._kept(torch.bincount(weights.argmax(dim=1), minlength=weights.shape[1]), len(known))
        weights, centroids = weights[:, kept], _centroids(u, weights, batch.known, known)[kept]
        return fit.result(kept, weights.argmax(dim=1), centroids)

    @single_threaded()
    def discover_by_sample(
        self,
        sample: FeatureBatch,
        features: Tensor,
        labels: Tensor,
        transform: Callable[[Tensor], Tensor],
        progress: Progress,
    ) -> DiscoveryResult:
        """Find the categories of a `sample`, whose features were transformed, and assign all images to them.

        Args:
            sample: With images of every known class.
            features: (n, D) of all images; `transform` is applied to a block at a time.
            labels: (n,)
            transform: Makes the features of the sample.
            progress: Receives bars.

        Returns:
            The categories without their centroids.
        """
        n_known = len(torch.cat([sample.labels[sample.labels != UNLABELLED], sample.known.labels]).unique())
        fit = self._fit(sample, grid_for_samples(self.grid, n_known), progress)
        classifier = BlockClassifier(lambda x: fit.points(transform(x)), fit.categories)
        assignments = classifier.assign(features, labels, fit.classes, self.min_size, progress)
        sizes = torch.bincount(assignments, minlength=len(fit.categories.log_priors))
        shown = torch.searchsorted(fit.classes, sample.labels[sample.labels != UNLABELLED])
        kept = self._kept(sizes + torch.bincount(shown, minlength=len(sizes)), len(fit.classes))
        position = kept.cumsum(dim=0) - 1
        return fit.result(kept, position[assignments], features.new_empty(0, features.shape[1]))

    def _sample_rows(self, batch: FeatureBatch) -> Tensor:
        """Rows of a sample of a large batch."""
        draw = generator(batch.seed, "sample", batch.index)
        return sample_rows(batch.labels, draw, len(batch.known.labels.unique()))

    def _kept(self, sizes: Tensor, n_known: int) -> Tensor:
        """Which categories (K,) of these sizes there are: known ones with images, and novel ones that are not too small."""
        kept = sizes >= torch.where(torch.arange(len(sizes)) < n_known, 1, self.min_size)
        if not bool(kept.any()):  # fewer than `min_size` images in all
            kept[sizes.argmax()] = True
        return kept

    def _fit(self, batch: FeatureBatch, grid: ParameterGrid, progress: Progress) -> "_MixtureFit":
        """Select parameters and fit the mixture to a batch."""
        u, labels = batch.features, batch.labels
        axes = _leading_axes(u)
        simulation = self._simulation(batch, axes, "after", grid)
        n_novel, estimate = batch.number(lambda: self._estimate_by(simulation, batch, axes, progress))
        parameters, score = select_parameters(simulation, n_novel, estimate is not None, progress)
        labelled = labels != UNLABELLED
        self.scatter, self.shrinkage = self.scatter.add(u[labelled], labels[labelled]), parameters.shrinkage
        self._whitening = None
        components = self._components(batch, axes, parameters)
        data = self._data(components, batch, axes, parameters)
        weights, categories = self._weights(data, batch, n_novel, parameters.mixture, progress)
        count, unit = parameters.n_components, self.unit
        return _MixtureFit(
            weights=weights,
            classes=torch.cat([labels[labelled], batch.known.labels]).unique(),
            points=lambda other: components.points_of(other @ axes, count, unit),
            categories=categories,
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
    ) -> tuple[Tensor, FittedCategories]:
        """Weight (n, K) of each category for each image, and their densities; by k-means if no category is known."""
        if not len(data.known_classes()):
            clusters = self._cluster(data.points, batch, n_novel, progress)
            weights = F.one_hot(clusters.assignments, n_novel).to(data.points.dtype)
            return weights, FittedCategories.of_clusters(data.points, clusters.assignments)
        draw = generator(batch.seed, "mixture", batch.index)
        found = discover_by_mixture(data, n_novel, parameters, draw)
        return found.weights, found.fitted

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

    def _simulation(
        self, batch: FeatureBatch, axes: Tensor, when: str, grid: ParameterGrid
    ) -> SimulatedNovelty:
        draw = generator(batch.seed, "simulation", batch.index, when)
        return SimulatedNovelty(
            batch.features @ axes,
            batch.labels,
            batch.known.project(axes),
            self.scatter.project(axes),
            grid,
            draw,
            batch.returning,
        )

    @single_threaded()
    def _estimate(self, batch: FeatureBatch, progress: Progress, when: str) -> NumberEstimate:
        grid = self.grid
        if is_large(len(batch.features)):
            batch = batch.subset(self._sample_rows(batch))
            n_known = len(torch.cat([batch.labels[batch.labels != UNLABELLED], batch.known.labels]).unique())
            grid = grid_for_samples(grid, n_known)
        axes = _leading_axes(batch.features)
        return self._estimate_by(self._simulation(batch, axes, when, grid), batch, axes, progress)

    def _estimate_by(
        self, simulation: SimulatedNovelty, batch: FeatureBatch, axes: Tensor, progress: Progress
    ) -> NumberEstimate:
        n_known, n_unlabelled = simulation.n_known, batch.n_unlabelled
        most = min(self._max_novel(n_known), n_unlabelled)
        if simulation.folds:
            return estimate_number(simulation, most, progress, self.missed_cost)
        parameters = simulation.grid.default()
        points = self._data(self._components(batch, axes, parameters), batch, axes, parameters).points
        of_all = estimate_without_labels(points, n_known + most, simulation.generator, progress=progress)
        return NumberEstimate(min(max(of_all.n_novel - n_known, 0), n_unlabelled), of_all.curve)

    def _components(self, batch: FeatureBatch, axes: Tensor, parameters: DiscoveryParameters) -> Components:
        """Whitened principal components of the features."""
        scatter = self.scatter.project(axes)
        return fit_components(batch.features @ axes, scatter, parameters.n_components, parameters.shrinkage)

    def _data(
        self, components: Components, batch: FeatureBatch, axes: Tensor, parameters: DiscoveryParameters
    ) -> MixtureData:
        """Points of the mixture."""
        known, scatter = batch.known.project(axes), self.scatter.project(axes)
        return mixture_data(
            components, batch.labels, known, scatter, parameters.n_components, self.unit, batch.returning
        )


@dataclass(frozen=True)
class _MixtureFit:
    """The mixture of a batch."""

    weights: Tensor
    """(n, K) of each category for each image; the known ones come first."""
    classes: Tensor
    """Labels of the known categories, ascending."""
    points: Callable[[Tensor], Tensor]
    """From features u (m, D) of other images to points (m, d)."""
    categories: FittedCategories
    estimate: NumberEstimate | None
    parameters: dict[str, float | None]

    def result(self, kept: Tensor, assignments: Tensor, centroids: Tensor) -> DiscoveryResult:
        """Return the categories `kept` (K,), with the `assignments` (n,) of the images to them."""
        n_known = len(self.classes)
        returned = self.classes[kept[:n_known]].tolist()
        return DiscoveryResult(
            labels=(*returned, *[None] * (int(kept.sum()) - len(returned))),
            assignments=assignments,
            centroids=centroids,
            estimate=self.estimate,
            parameters=self.parameters,
        )


def _centroids_of_assigned(batch: FeatureBatch, result: DiscoveryResult) -> Tensor:
    """Mean feature (K, D) of the images that are assigned to each category, and of those that are remembered."""
    u, known = batch.features, batch.known
    labels = torch.tensor([label for label in result.labels if label is not None], dtype=torch.int64)
    count, here = len(result.labels), torch.isin(known.labels, labels)
    index = torch.searchsorted(labels, known.labels[here])
    counts = known.counts[here].double()
    n = torch.bincount(result.assignments, minlength=count) + torch.bincount(index, counts, count)
    sums = class_sums(u, result.assignments, count)
    sums = class_sums(counts[:, None] * known.features[here], index, count, sums)
    return (sums / n[:, None]).to(u.dtype)


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
