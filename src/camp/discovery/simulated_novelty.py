"""Cross-validation that hides the labels of some known classes to select how to discover.

A fold hides all labels of some classes, and a few labels of every other class, so few that the task
hardly changes. Truly novel images take part without labels. The score of a setting is the mean of
two recalls, each averaged over classes so that small ones count: of the images of hidden classes,
which must lie in novel categories, one per class (best one-to-one matching); and of the hidden
images of the other classes, which must lie in the category of their class. The setting with the
best mean score over the folds is selected. Labels of novel classes are never used. Selected one
after the other:

1. the power of densities in the mixture, together with the number of novel categories where it is
   not given. The best numbers of single folds give the standard deviation of the estimate;
2. the shrinkage of the within-class scatter together with the number of principal components.

The first of equally good settings is taken, and the greatest of equally good numbers: too many
categories always cost accuracy, but too few may not, as a hidden class that shares its category
with a novel one still counts as found. With fewer than MIN_CLASSES known classes no class can be
hidden, and the defaults are used.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from camp.core.progress import Bar, Progress
from camp.core.types import UNLABELLED
from camp.discovery.base import KnownCategories, NumberEstimate
from camp.discovery.category_mixture import (
    MixtureData,
    MixtureParameters,
    discover_by_mixture,
    fit_mixtures,
)
from camp.discovery.category_search import argmax, curve, random_groups
from camp.discovery.class_metric import Components, compares_directions, fit_components
from camp.discovery.class_scatter import WithinClassScatter
from camp.discovery.hungarian import match

MIN_FOLDS = 8
"""Every class is hidden equally often, and one in MIN_FOLDS of its images otherwise."""
MIN_CLASSES = 4
"""Number of known classes from which on a fold can hide two and keep two."""
MAX_SAMPLES = 6000
"""Number of images; of more, a random sample is used."""


@dataclass(frozen=True)
class DiscoveryParameters:
    """Hyperparameters of the discovery of novel categories."""

    shrinkage: float
    """Weight of the identity in the within-class scatter."""
    n_components: int
    """Number of principal components of the mixture."""
    mixture: MixtureParameters

    def selected(self) -> dict[str, float | None]:
        """Return the parameters that are selected by cross-validation, by name."""
        return {
            "shrinkage": self.shrinkage,
            "n_components": self.n_components,
            "power": self.mixture.power,
        }


@dataclass(frozen=True)
class ParameterGrid:
    """Values that parameters are selected from; the first of each is the default."""

    shrinkage: tuple[float, ...] = (0.7, 0.5, 0.9)
    n_components: tuple[int, ...] = (64, 32, 128)
    power: tuple[float, ...] = (0.5, 0.25, 1.0)
    size_prior: bool = True
    """As in `MixtureParameters`, and not selected; so is the next."""
    start_factor: int = 2

    def default(self) -> DiscoveryParameters:
        """Parameters where nothing can be cross-validated."""
        mixture = MixtureParameters(self.power[0], self.size_prior, self.start_factor)
        return DiscoveryParameters(self.shrinkage[0], self.n_components[0], mixture)

    def metrics(self, parameters: DiscoveryParameters) -> list[DiscoveryParameters]:
        """`parameters` with every shrinkage and number of components."""
        pairs = itertools.product(self.shrinkage, self.n_components)
        return [replace(parameters, shrinkage=s, n_components=d) for s, d in pairs]

    def powers(self, parameters: DiscoveryParameters) -> list[DiscoveryParameters]:
        """`parameters` with every power."""
        return [replace(parameters, mixture=replace(parameters.mixture, power=power)) for power in self.power]


@dataclass(frozen=True)
class Fold:
    """Labels that one fold hides, and the scatter of those that it shows."""

    hidden_classes: Tensor
    """(n,) bool: labelled images of hidden classes."""
    hidden_images: Tensor
    """(n,) bool: hidden images of other classes."""
    shown: Tensor
    """(n,) labels without the hidden ones."""
    known: KnownCategories
    """Remembered categories that are not hidden."""
    shown_classes: Tensor
    """(c,) classes that still have labels or are remembered, sorted."""
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
    earlier batches, and `known` are the categories of these that may return.
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        known: KnownCategories,
        scatter: WithinClassScatter,
        grid: ParameterGrid,
        generator: torch.Generator,
    ) -> None:
        if len(features) > MAX_SAMPLES:
            sample = torch.randperm(len(features), generator=generator)[:MAX_SAMPLES].sort().values
            features, labels = features[sample], labels[sample]
        self.features, self.labels, self.grid, self.generator = features, labels, grid, generator
        self.known = known
        labelled_classes = labels[labels != UNLABELLED].unique()
        self.n_known = len(torch.cat([labelled_classes, known.labels]).unique())
        self.folds = list(self._make_folds(scatter)) if len(labelled_classes) >= MIN_CLASSES else []
        self.seeds = torch.randint(2**31, (len(self.folds),), generator=generator).tolist()

    def _make_folds(self, scatter: WithinClassScatter) -> Iterator[Fold]:
        labels, labelled = self.labels, self.labels != UNLABELLED
        classes = labels[labelled].unique()
        # Two classes at least: one alone could share its cluster with a novel class without loss of accuracy.
        n_groups = min(MIN_FOLDS, len(classes) // 2)
        groups = random_groups(classes, n_groups, self.generator, -(-MIN_FOLDS // n_groups))
        turn = torch.randint(MIN_FOLDS, (len(labels),), generator=self.generator)
        for index, group in enumerate(groups):
            hidden = torch.isin(labels, group)
            images = labelled & (turn == index % MIN_FOLDS) & ~hidden
            shown = labels.masked_fill(hidden | images, UNLABELLED)
            kept = shown != UNLABELLED
            known = self.known.subset(~torch.isin(self.known.labels, group))
            shown_classes = torch.cat([shown[kept], known.labels]).unique()
            images &= torch.isin(labels, shown_classes)  # not those of a class without any label left
            of_shown = scatter.add(self.features[kept], shown[kept])
            yield Fold(hidden, images, shown, known, shown_classes, of_shown)

    def scores(self, parameters: DiscoveryParameters, n_novel: int) -> list[float]:
        """Score of each fold with `n_novel` categories beside those of all known classes."""
        return [self._score(fold, seed, parameters, n_novel) for fold, seed in zip(self.folds, self.seeds)]

    def _score(self, fold: Fold, seed: int, parameters: DiscoveryParameters, n_novel: int) -> float:
        data, draw = self._data(fold, parameters), torch.Generator().manual_seed(seed)
        count = min(self._n_hidden(fold) + n_novel, _n_unlabelled(fold))
        found = discover_by_mixture(data, count, parameters.mixture, draw)
        return fold.score(found.argmax(dim=1), self.labels)

    def score_numbers(
        self, parameters: DiscoveryParameters, max_novel: int, bar: Bar
    ) -> list[dict[int, float]]:
        """Score of each fold with 0 to `max_novel` categories beside those of all known classes."""
        scores = []
        for fold, seed in zip(self.folds, self.seeds):
            data, draw = self._data(fold, parameters), torch.Generator().manual_seed(seed)
            n_hidden = min(self._n_hidden(fold), _n_unlabelled(fold))
            most = min(n_hidden + max_novel, _n_unlabelled(fold))
            mixtures = fit_mixtures(data, most, n_hidden, parameters.mixture, draw)
            of_fold = {
                found.n_novel - n_hidden: fold.score(found.weights.argmax(dim=1), self.labels)
                for found in mixtures
            }
            highest = max(of_fold)  # fewer than `max_novel` where there are not enough unlabelled images
            scores.append({number: of_fold[min(number, highest)] for number in range(max_novel + 1)})
            bar.advance()
        return scores

    def _data(self, fold: Fold, parameters: DiscoveryParameters) -> MixtureData:
        shrinkage = parameters.shrinkage
        if shrinkage not in fold.components:
            most = max(self.grid.n_components)
            fold.components[shrinkage] = fit_components(self.features, fold.scatter, most, shrinkage)
        unit = compares_directions(self.features.shape[1])
        return mixture_data(
            fold.components[shrinkage], fold.shown, fold.known, fold.scatter, parameters.n_components, unit
        )

    def _n_hidden(self, fold: Fold) -> int:
        return self.n_known - len(fold.shown_classes)


def mixture_data(
    components: Components,
    labels: Tensor,
    known: KnownCategories,
    scatter: WithinClassScatter,
    n_components: int,
    unit: bool,
) -> MixtureData:
    """Make the points of a mixture in the first `n_components` of the whitened features."""
    points = components.points(n_components, unit)
    if not len(known):
        return MixtureData.of_batch(points, labels)
    means, spread = components.expected_points(known.features, known.counts, scatter, n_components, unit)
    return MixtureData(points, labels, means, known.labels, known.counts, spread)


def _n_unlabelled(fold: Fold) -> int:
    return int((fold.shown == UNLABELLED).sum())


def estimate_number(simulation: SimulatedNovelty, max_novel: int, progress: Progress) -> NumberEstimate:
    """Estimate the number of novel categories, with the best power and otherwise the default parameters.

    The error is the standard deviation of the best numbers of single folds. It is not divided by the root of their
    number, since all folds have the same novel classes.
    """
    candidates = simulation.grid.powers(simulation.grid.default())
    best: tuple[float, list[dict[int, float]], dict[int, float]] | None = None
    with progress.track("Number of categories", len(candidates) * len(simulation.folds)) as bar:
        for parameters in candidates:
            of_folds = simulation.score_numbers(parameters, max_novel, bar)
            scores = {number: _mean([fold[number] for fold in of_folds]) for number in of_folds[0]}
            if best is None or max(scores.values()) > best[0]:
                best = max(scores.values()), of_folds, scores
    assert best is not None
    _, of_folds, scores = best
    of_single = [argmax(fold, "greatest") for fold in of_folds]
    error = float(torch.tensor(of_single).double().std())
    return NumberEstimate(argmax(scores, "greatest"), curve(scores, simulation.n_known), error)


def select_parameters(
    simulation: SimulatedNovelty, n_novel: int, progress: Progress
) -> tuple[DiscoveryParameters, float | None]:
    """Select parameters for `n_novel` novel categories, and return their mean score on hidden images.

    If no class can be hidden, they are the defaults, and the score is None.
    """
    grid = simulation.grid
    parameters = grid.default()
    if not simulation.folds:
        return parameters, None
    with progress.track("Simulated novelty", len(grid.power) + len(grid.metrics(parameters))) as bar:
        parameters, _ = _best(simulation, grid.powers(parameters), n_novel, bar)
        return _best(simulation, grid.metrics(parameters), n_novel, bar)


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
