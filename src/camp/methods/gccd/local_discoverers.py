# ruff: noqa: D101, D102
"""Stand-ins for the discoverers of camp.discovery, to be replaced by these at the merge (same names, same arguments)."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.discovery.base import DiscoveryResult, FeatureBatch, KnownCategories, NumberEstimate
from camp.discovery.class_metric import Metric, fit_metric, means_of
from camp.discovery.class_scatter import Scatter
from camp.discovery.nearest_centroid import NearestCentroid
from camp.discovery.number_of_categories import estimate_n_novel, estimate_without_labels
from camp.discovery.semi_supervised_kmeans import Anchors, semi_supervised_kmeans
from camp.discovery.simulated_novelty import Candidates as ParameterGrid
from camp.discovery.simulated_novelty import Choice, Recipe, Simulation, choose, points, principal
from camp.discovery.size_constraints import balanced

__all__ = ["CampPlusDiscoverer", "OpenWorldDiscoverer", "ParameterGrid", "SemiSupervisedKMeansDiscoverer"]

MIN_CLUSTER_SIZE = 3
MAX_PER_CATEGORY, MAX_UNLABELLED = 30, 2000
TOLERANCE, FOLDS, COARSE = 0.02, 8, 16
DIRECTIONS = 32


@dataclass(frozen=True)
class SemiSupervisedKMeansDiscoverer:
    n_init: int = 100
    max_iterations: int = 200
    max_novel: int | None = None

    def discover(self, batch: FeatureBatch, progress: Progress) -> DiscoveryResult:
        estimate = self._estimate(batch, progress, "after") if batch.n_novel is None else None
        n_novel = batch.n_novel if estimate is None else estimate.n_novel
        assert n_novel is not None
        with progress.track("Clustering", self.n_init) as bar:
            found = semi_supervised_kmeans(
                batch.features,
                batch.labels,
                n_novel,
                n_init=self.n_init,
                max_iterations=self.max_iterations,
                generator=generator(batch.seed, "clustering", batch.index),
                progress=bar,
            )
        labels = (*found.known_labels, *[None] * n_novel)
        return DiscoveryResult(labels, found.assignments, found.centroids, estimate, float(found.inertia))

    def estimate(self, batch: FeatureBatch, progress: Progress) -> NumberEstimate:
        return self._estimate(batch, progress, "before")

    def _estimate(self, batch: FeatureBatch, progress: Progress, when: str) -> NumberEstimate:
        known = len(batch.labels[batch.labels >= 0].unique())
        draw = generator(batch.seed, "estimate", batch.index, when)
        most = self.max_novel or max(10, known)
        found = estimate_n_novel(batch.features, batch.labels, most, draw, progress=progress)
        return NumberEstimate(found.n_novel, found.curve)

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        pass


class CampPlusDiscoverer:
    def __init__(
        self,
        dim: int,
        grid: ParameterGrid,
        *,
        power_transform: bool = True,
        n_init: int = 100,
        max_iterations: int = 200,
        max_novel: int | None = None,
    ) -> None:
        self.grid, self.power_transform = grid, power_transform
        self.n_init, self.max_iterations, self.max_novel = n_init, max_iterations, max_novel
        self.unit = dim > 32
        self.scatter = Scatter.none(dim)
        self.shrinkage = grid.default().shrinkage
        self._whitening: Tensor | None = None

    def transform(self, z: Tensor) -> Tensor:
        if not self.unit:
            return z
        return F.normalize(power_transform(z) if self.power_transform else z, dim=1)

    def whiten(self, features: Tensor) -> Tensor:
        if self._whitening is None:
            self._whitening = self.scatter.whitening(self.shrinkage)
        return features @ self._whitening

    def carry(self, weight: Tensor, error: Tensor) -> None:
        self.scatter, self._whitening = self.scatter.carried(weight, error), None

    def discover(self, batch: FeatureBatch, progress: Progress) -> DiscoveryResult:
        u, labels = batch.features, batch.labels
        choice = self._choose(batch, progress, "after")
        labelled = labels != UNLABELLED
        self.scatter = self.scatter.with_classes(u[labelled], labels[labelled])
        self.shrinkage, self._whitening = choice.recipe.shrinkage, None
        p = self._points(u, choice.recipe)
        with progress.track("Clustering", self.n_init) as bar:
            start = semi_supervised_kmeans(
                p,
                labels,
                choice.n_novel,
                n_init=self.n_init,
                max_iterations=self.max_iterations,
                generator=generator(batch.seed, "clustering", batch.index),
                progress=bar,
            )
        assignments = balanced(p, labels, start, choice.recipe.balance)
        kept = torch.bincount(assignments, minlength=len(start.centroids)) > 0
        assignments = (kept.cumsum(dim=0) - 1)[assignments]
        count = int(kept.sum())
        estimate = None
        if batch.n_novel is None:
            estimate = NumberEstimate(choice.n_novel, choice.curve or (), choice.error)
        return DiscoveryResult(
            labels=(*start.known_labels, *[None] * (count - len(start.known_labels))),
            assignments=assignments,
            centroids=means_of(u, assignments, count).float(),
            estimate=estimate,
            parameters={
                "shrinkage": choice.recipe.shrinkage,
                "n_components": choice.recipe.directions,
                "inverse_temperature": choice.recipe.balance.sharpness,
                "size_prior": choice.recipe.balance.hold,
                "score": choice.score,
            },
        )

    def estimate(self, batch: FeatureBatch, progress: Progress) -> NumberEstimate:
        choice = self._choose(batch, progress, "before")
        return NumberEstimate(choice.n_novel, choice.curve or (), choice.error)

    def state(self) -> dict[str, Tensor]:
        return {
            "scatter": self.scatter.total,
            "degrees_of_freedom": torch.tensor(self.scatter.freedom),
            "shrinkage": torch.tensor(self.shrinkage, dtype=torch.float64),
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.scatter = Scatter(state["scatter"], int(state["degrees_of_freedom"]))
        self.shrinkage, self._whitening = float(state["shrinkage"]), None

    def _choose(self, batch: FeatureBatch, progress: Progress, when: str) -> Choice:
        draw = generator(batch.seed, "simulation", batch.index, when)
        simulation = Simulation(batch.features, batch.labels, self.scatter, self.grid, self.unit, draw)
        free = batch.n_unlabelled
        most = min(self.max_novel or max(10, simulation.known), free)
        choice = choose(simulation, batch.n_novel, most, progress)
        if batch.n_novel is None and not simulation.folds:
            p = self._points(batch.features, choice.recipe)
            guess = estimate_without_labels(p, simulation.known + most, draw, progress=progress)
            return replace(choice, n_novel=min(max(guess.k - simulation.known, 0), free), curve=guess.curve)
        return choice

    def _points(self, u: Tensor, recipe: Recipe) -> Tensor:
        components = principal(u, self.scatter, recipe.shrinkage, recipe.directions)
        return points(components, recipe.directions, self.unit)


def power_transform(z: Tensor) -> Tensor:
    centred = z - z.median(dim=1, keepdim=True).values
    return centred.sign() * centred.abs().sqrt()


class OpenWorldDiscoverer:
    def __init__(self, *, n_init: int = 100, max_iterations: int = 200, max_novel: int | None = None) -> None:
        self.n_init, self.max_iterations, self.max_novel = n_init, max_iterations, max_novel

    def discover(self, batch: FeatureBatch, progress: Progress) -> DiscoveryResult:
        estimate = self._estimate(batch, progress, "after") if batch.n_novel is None else None
        n_novel = batch.n_novel if estimate is None else estimate.n_novel
        assert n_novel is not None
        features, known = batch.features, batch.known
        everything = torch.cat([known.features, features])
        metric = fit_metric(everything, torch.cat([known.labels, batch.labels]), DIRECTIONS)
        points = metric(features)
        with progress.track("Clustering", self.n_init) as bar:
            found = semi_supervised_kmeans(
                points,
                batch.labels,
                n_novel,
                anchors=_anchors(known, metric),
                n_init=self.n_init,
                max_iterations=self.max_iterations,
                generator=generator(batch.seed, "clustering", batch.index),
                progress=bar,
            )
        assignments, least = found.assignments, MIN_CLUSTER_SIZE if batch.n_novel is None else 1
        sizes = torch.bincount(assignments, minlength=len(found.centroids))
        n_known = len(found.known_labels)
        kept = (torch.arange(len(sizes)) < n_known) | (sizes >= least)
        if not bool(kept.any()):
            kept[sizes.argmax()] = True
        if not bool(kept.all()):
            stray = ~kept[assignments]
            allowed = kept.nonzero()[:, 0]
            assignments[stray] = NearestCentroid(found.centroids).predict(points[stray], allowed)
            assignments = (kept.cumsum(dim=0) - 1)[assignments]
        count = int(kept.sum())
        old = torch.searchsorted(torch.tensor(found.known_labels, dtype=torch.int64), known.labels)
        centroids = means_of(everything, torch.cat([old, assignments]), count).to(features.dtype)
        labels = (*found.known_labels, *[None] * (count - n_known))
        return DiscoveryResult(labels, assignments, centroids, estimate, found.inertia)

    def estimate(self, batch: FeatureBatch, progress: Progress) -> NumberEstimate:
        return self._estimate(batch, progress, "before")

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        pass

    def _estimate(self, batch: FeatureBatch, progress: Progress, when: str) -> NumberEstimate:
        draw = generator(batch.seed, "estimate", batch.index, when)
        some, new = _some_of_each(batch.known.labels), _some(batch.labels, draw)
        features = torch.cat([batch.known.features[some], batch.features[new]])
        labels = torch.cat([batch.known.labels[some], batch.labels[new]])
        known = len(labels[labels >= 0].unique())
        if not known:
            points = fit_metric(features, labels, DIRECTIONS)(features)
            found = estimate_without_labels(points, self.max_novel or 30, draw, progress=progress)
            return NumberEstimate(found.n_novel, found.curve)
        found = estimate_n_novel(
            features,
            labels,
            self.max_novel or max(10, known),
            draw,
            folds=FOLDS,
            coarse=COARSE,
            n_init=10,
            space=lambda shown: fit_metric(features, shown, DIRECTIONS)(features),
            tolerance=TOLERANCE,
            progress=progress,
        )
        return NumberEstimate(found.n_novel, found.curve)


def _anchors(known: KnownCategories, metric: Metric) -> Anchors | None:
    if not len(known.labels):
        return None
    counts = torch.bincount(known.labels)
    means = means_of(metric(known.features), known.labels, len(counts))
    return Anchors(torch.arange(len(counts)), means, counts)


def _some_of_each(labels: Tensor) -> Tensor:
    rows = [torch.empty(0, dtype=torch.long)]
    for label in labels.unique().tolist():
        own = (labels == label).nonzero()[:, 0]
        rows.append(own[torch.linspace(0, len(own) - 1, min(MAX_PER_CATEGORY, len(own))).long()])
    return torch.cat(rows)


def _some(labels: Tensor, draw: torch.Generator) -> Tensor:
    free = (labels == UNLABELLED).nonzero()[:, 0]
    if len(free) > MAX_UNLABELLED:
        free = free[torch.randperm(len(free), generator=draw)[:MAX_UNLABELLED]].sort().values
    labelled = (labels != UNLABELLED).nonzero()[:, 0]
    return torch.cat([labelled[_some_of_each(labels[labelled])], free])
