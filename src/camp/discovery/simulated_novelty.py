"""Cross-validation that hides the labels of some known classes to select how to discover.

A fold hides all labels of some classes, and a few labels of every other class, so few that the task
hardly changes. Truly novel images take part without labels. The score of a setting is the mean of
two recalls, each averaged over classes so that small ones count: of the images of hidden classes,
which must lie in novel categories, one per class (best one-to-one matching); and of the hidden
images of the other classes, which must lie in the category of their class. The setting with the
best mean score over the folds is selected. Labels of novel classes are never used. Selected one
after the other:

1. the number of novel categories, where it is not given. Each fold has its own best number, which
   gives a standard error;
2. the shrinkage of the within-class scatter together with the number of principal components;
3. the power of densities in the mixture.

The first of equally good settings is taken, and the greatest of equally good numbers. With fewer
than MIN_CLASSES known classes no class can be hidden, and the defaults are used.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from camp.core.progress import Bar, Progress
from camp.core.types import UNLABELLED
from camp.discovery.base import NumberEstimate
from camp.discovery.category_search import argmax, coarse_to_fine, curve, random_groups
from camp.discovery.class_metric import Components, compares_directions, fit_components
from camp.discovery.class_scatter import WithinClassScatter
from camp.discovery.category_mixture import discover_by_mixture
from camp.discovery.hungarian import match

MIN_FOLDS = 8
"""Every class is hidden equally often, and one in MIN_FOLDS of its images otherwise."""
MIN_CLASSES = 4
"""Number of known classes from which on a fold can hide two and keep two."""
MAX_SAMPLES = 6000
"""Number of images; of more, a random sample is used."""
N_STEPS = 8
"""Steps of the first grid of numbers of clusters."""
_N_INIT = 2
"""Starts of the mixture per fold and setting."""


@dataclass(frozen=True)
class DiscoveryParameters:
    """Hyperparameters of the discovery of novel categories."""

    shrinkage: float
    """Weight of the identity in the within-class scatter."""
    n_components: int
    """Number of principal components of the mixture."""
    power: float
    """Exponent of the densities of the mixture."""


@dataclass(frozen=True)
class ParameterGrid:
    """Values that parameters are selected from; the first of each is the default."""

    shrinkage: tuple[float, ...] = (0.7, 0.5, 0.9)
    n_components: tuple[int, ...] = (64, 32, 128)
    power: tuple[float, ...] = (0.5, 0.25, 1.0)

    def default(self) -> DiscoveryParameters:
        """Parameters where nothing can be cross-validated."""
        return DiscoveryParameters(self.shrinkage[0], self.n_components[0], self.power[0])

    def metrics(self, parameters: DiscoveryParameters) -> list[DiscoveryParameters]:
        """`parameters` with every shrinkage and number of components."""
        pairs = itertools.product(self.shrinkage, self.n_components)
        return [replace(parameters, shrinkage=s, n_components=d) for s, d in pairs]

    def powers(self, parameters: DiscoveryParameters) -> list[DiscoveryParameters]:
        """`parameters` with every power."""
        return [replace(parameters, power=power) for power in self.power]


@dataclass(frozen=True)
class Fold:
    """Labels that one fold hides, and the scatter of those that it shows."""

    hidden_classes: Tensor
    """(n,) bool: labelled images of hidden classes."""
    hidden_images: Tensor
    """(n,) bool: hidden images of other classes."""
    shown: Tensor
    """(n,) labels without the hidden ones."""
    shown_classes: Tensor
    """(c,) classes that still have labels, sorted."""
    scatter: WithinClassScatter
    components: dict[float, Components] = field(default_factory=dict)
    """Whitened components by shrinkage, computed when they are needed."""

    def score(self, categories: Tensor, labels: Tensor) -> float:
        """Mean recall of `categories` (n,), of which the known ones come first; `labels` (n,) are all labels."""
        n_known = len(self.shown_classes)
        of_classes = _recalls(categories, labels, self.hidden_classes)[n_known:]
        rediscovered = sum(float(of_classes[pair]) for pair in match(-of_classes)) / of_classes.shape[1]
        if not bool(self.hidden_images.any()):
            return rediscovered
        of_images = _recalls(categories, labels, self.hidden_images)
        own = torch.searchsorted(self.shown_classes, labels[self.hidden_images].unique())
        recognised = float(of_images[own, torch.arange(len(own))].mean())
        return (rediscovered + recognised) / 2


def _recalls(categories: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """Share (K, c) of each class that lies in each category, for the images `rows` (n,) of c classes, ascending."""
    _, index, counts = labels[rows].unique(return_inverse=True, return_counts=True)
    shares = torch.zeros(int(categories.max()) + 1, len(counts), dtype=torch.float64)
    shares.index_put_((categories[rows], index), 1 / counts[index].double(), accumulate=True)
    return shares


class SimulatedNovelty:
    """The folds of a batch, on which parameters and numbers of clusters are evaluated.

    Features (n, D) are of unit length where directions alone are compared; the scatter is that of
    earlier batches.
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        scatter: WithinClassScatter,
        grid: ParameterGrid,
        generator: torch.Generator,
    ) -> None:
        if len(features) > MAX_SAMPLES:
            sample = torch.randperm(len(features), generator=generator)[:MAX_SAMPLES].sort().values
            features, labels = features[sample], labels[sample]
        self.features, self.labels, self.grid, self.generator = features, labels, grid, generator
        self.n_known = len(labels[labels != UNLABELLED].unique())
        self.folds = list(self._make_folds(scatter)) if self.n_known >= MIN_CLASSES else []
        self.seeds = torch.randint(2**31, (len(self.folds),), generator=generator).tolist()

    def _make_folds(self, scatter: WithinClassScatter) -> Iterator[Fold]:
        labels, labelled = self.labels, self.labels != UNLABELLED
        # Two classes at least: one alone could share its cluster with a novel class without loss of accuracy.
        n_groups = min(MIN_FOLDS, self.n_known // 2)
        groups = random_groups(labels[labelled].unique(), n_groups, self.generator, -(-MIN_FOLDS // n_groups))
        turn = torch.randint(MIN_FOLDS, (len(labels),), generator=self.generator)
        for index, group in enumerate(groups):
            classes = torch.isin(labels, group)
            images = labelled & (turn == index % MIN_FOLDS) & ~classes
            shown = labels.masked_fill(classes | images, UNLABELLED)
            kept = shown != UNLABELLED
            shown_classes = shown[kept].unique()
            images &= torch.isin(labels, shown_classes)  # not those of a class without any label left
            yield Fold(classes, images, shown, shown_classes, scatter.add(self.features[kept], shown[kept]))

    def scores(self, parameters: DiscoveryParameters, n_novel: int) -> list[float]:
        """Score of each fold with `n_novel` categories beside those of all known classes."""
        return [self._score(fold, seed, parameters, n_novel) for fold, seed in zip(self.folds, self.seeds)]

    def _score(self, fold: Fold, seed: int, parameters: DiscoveryParameters, n_novel: int) -> float:
        shrinkage, n_components = parameters.shrinkage, parameters.n_components
        if shrinkage not in fold.components:
            most = max(self.grid.n_components)
            fold.components[shrinkage] = fit_components(self.features, fold.scatter, most, shrinkage)
        unit = compares_directions(self.features.shape[1])
        points = fold.components[shrinkage].points(n_components, unit)
        n_unlabelled = int((fold.shown == UNLABELLED).sum())
        n_novel = min(self.n_known - len(fold.shown_classes) + n_novel, n_unlabelled)
        # The same draws for all settings, so that differences of their scores are not those of draws.
        draw = torch.Generator().manual_seed(seed)
        found = discover_by_mixture(points, fold.shown, n_novel, parameters.power, _N_INIT, draw)
        return fold.score(found.argmax(dim=1), self.labels)


def estimate_number(simulation: SimulatedNovelty, max_novel: int, progress: Progress) -> NumberEstimate:
    """Estimate the number of novel categories with the default parameters.

    The greatest of equally good numbers is taken: too many clusters always cost accuracy, but too
    few may not, as a hidden class that shares its cluster with a novel one still counts as found.
    The standard error is that of the mean of the best numbers of the folds.
    """
    parameters = simulation.grid.default()
    by_fold: dict[int, list[float]] = {}

    def evaluate(number: int) -> float:
        by_fold[number] = simulation.scores(parameters, number)
        return _mean(by_fold[number])

    best, scores = coarse_to_fine(
        evaluate, max_novel, N_STEPS, prefer="greatest", n_known=simulation.n_known, progress=progress
    )
    of_folds = [
        argmax({number: values[fold] for number, values in by_fold.items()}, "greatest")
        for fold in range(len(simulation.folds))
    ]
    error = float(torch.tensor(of_folds).double().std()) / math.sqrt(len(of_folds))
    return NumberEstimate(best, curve(scores, simulation.n_known), error)


def select_parameters(
    simulation: SimulatedNovelty, n_novel: int, progress: Progress
) -> tuple[DiscoveryParameters, float | None]:
    """Select parameters for `n_novel` novel categories, and return their mean accuracy on hidden images.

    If no class can be hidden, they are the defaults, and the accuracy is None.
    """
    grid = simulation.grid
    parameters = grid.default()
    if not simulation.folds:
        return parameters, None
    metrics = grid.metrics(parameters)
    with progress.track("Simulated novelty", len(metrics) + len(grid.power)) as bar:
        parameters, _ = _best(simulation, metrics, n_novel, bar)
        return _best(simulation, grid.powers(parameters), n_novel, bar)


def _best(
    simulation: SimulatedNovelty, candidates: Sequence[DiscoveryParameters], n_novel: int, bar: Bar
) -> tuple[DiscoveryParameters, float]:
    """The first of the candidates with the highest mean score, and that score."""
    scores = []
    for parameters in candidates:
        scores.append(_mean(simulation.scores(parameters, n_novel)))
        bar.advance()
    best = scores.index(max(scores))
    return candidates[best], scores[best]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
