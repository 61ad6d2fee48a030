"""Cross-validation that hides the labels of some known classes to select how to discover.

A fold hides all labels of some classes, and a few labels of every other class, so few that the task
hardly changes. Truly novel images take part without labels. The score of a setting is the mean of
two recalls, each averaged over classes so that small ones count: of the images of hidden classes,
which must lie in novel categories, one per class (best one-to-one matching); and of the hidden
images of the other classes, which must lie in the category of their class. The setting with the
best mean score is selected: candidates are compared on half of the folds, and only the selected one
is evaluated on the others. Labels of novel classes are never used. Selected one after the other:

1. the number of novel categories where it is not given, together with the power of densities in the mixture: the
   mean of the best numbers of single folds, whose standard deviation is the error of the estimate;
2. whether densities have equal widths;
3. their power, where the number is given;
4. the shrinkage of the within-class scatter;
5. the number of principal components.

The first of equally good settings is taken. The number is not evaluated by recall, as a hidden class
that shares its category with a novel one has full recall: the category has to agree with the images,
labelled or not, that the class has in a fit in which nothing is hidden. With fewer than MIN_CLASSES known classes no class can be
hidden, and the defaults are used.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from camp.core.parallel import threaded_map
from camp.core.progress import Bar, Progress
from camp.core.types import UNLABELLED
from camp.discovery.base import KnownCategories, NumberEstimate
from camp.discovery.category_mixture import (
    MixtureData,
    MixtureParameters,
    discover_by_mixture,
    fit_mixtures,
    numbers_of_novel,
)
from camp.discovery.category_search import curve, random_groups
from camp.discovery.class_scatter import WithinClassScatter
from camp.discovery.hungarian import match
from camp.discovery.principal_components import Components, compares_directions, fit_components, total_scatter

MIN_FOLDS = 8
"""Every class is hidden equally often, and one in MIN_FOLDS of its images otherwise."""
MIN_CLASSES = 2
"""Number of known classes from which on a fold can hide one and keep one."""
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
            "equal_widths": float(self.mixture.equal_widths),
        }


@dataclass(frozen=True)
class ParameterGrid:
    """Values that parameters are selected from; the first of each is the default."""

    shrinkage: tuple[float, ...] = (0.7, 0.5, 0.9)
    n_components: tuple[int, ...] = (64, 32, 128)
    power: tuple[float, ...] = (0.5, 0.25, 1.0)
    equal_widths: tuple[bool, ...] = (False, True)
    size_prior: bool = True
    """As in `MixtureParameters`, and not selected; so are the next two."""
    start_factor: int = 2
    removed_share: float = 0.0
    max_samples: int | None = None
    """Number of unlabelled images with which novelty is simulated, beside all labelled ones; of more, a random sample is
    used. None: MAX_SAMPLES images, labelled or not."""
    max_folds: int | None = None
    """Number of folds, by default at least MIN_FOLDS."""

    def default(self) -> DiscoveryParameters:
        """Parameters where nothing can be cross-validated."""
        mixture = MixtureParameters(
            self.power[0], self.size_prior, self.start_factor, self.equal_widths[0], self.removed_share
        )
        return DiscoveryParameters(self.shrinkage[0], self.n_components[0], mixture)

    def shrinkages(self, parameters: DiscoveryParameters) -> list[DiscoveryParameters]:
        """`parameters` with every shrinkage."""
        return [replace(parameters, shrinkage=shrinkage) for shrinkage in self.shrinkage]

    def dimensions(self, parameters: DiscoveryParameters) -> list[DiscoveryParameters]:
        """`parameters` with every number of components."""
        return [replace(parameters, n_components=count) for count in self.n_components]

    def widths(self, parameters: DiscoveryParameters) -> list[DiscoveryParameters]:
        """`parameters` with every kind of widths."""
        return [
            replace(parameters, mixture=replace(parameters.mixture, equal_widths=equal))
            for equal in self.equal_widths
        ]

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
        rediscovered = _recalls(categories, labels, self.hidden_classes)[len(self.shown_classes) :]
        return self._with_recognised(_mean_of_best_pairs(rediscovered), categories, labels)

    def agreement(self, categories: Tensor, labels: Tensor, members: Tensor, classes: Tensor) -> float:
        """Mean agreement with a fit in which nothing is hidden, of the classes that this fold hides.

        A hidden class and its novel category should have the same images, labelled or not, so that a category that
        holds novel images as well counts less. As in `score`, the recall of hidden images of other classes is half of it.

        Args:
            categories: (n,) of this fold, of which the known ones come first.
            labels: (n,) all labels.
            members: (n,) positions in `classes` of the fit in which nothing is hidden; greater ones are novel.
            classes: (K,) all known classes, ascending.
        """
        hidden = (~torch.isin(classes, self.shown_classes)).nonzero()[:, 0]
        f1 = _f1_scores(categories, members, hidden)[len(self.shown_classes) :]
        return self._with_recognised(_mean_of_best_pairs(f1), categories, labels)

    def _with_recognised(self, rediscovered: float, categories: Tensor, labels: Tensor) -> float:
        """Mean of `rediscovered` and the recall of hidden images of the shown classes, if there are any."""
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


def _f1_scores(categories: Tensor, members: Tensor, classes: Tensor) -> Tensor:
    """F1 score (K, c) of each category as each of the `classes` (c,), the positions of which are `members` (n,)."""
    n_categories = int(categories.max()) + 1
    of_class = members[:, None] == classes
    both = torch.zeros(n_categories, len(classes), dtype=torch.float64)
    both.index_add_(0, categories, of_class.double())
    sizes = torch.bincount(categories, minlength=n_categories)[:, None] + of_class.sum(dim=0)
    return 2 * both / sizes.clamp_min(1)


def _mean_of_best_pairs(scores: Tensor) -> float:
    """Mean over the columns of scores (K, c) in the best one-to-one matching; a column without a row has 0."""
    return sum(float(scores[pair]) for pair in match(-scores)) / scores.shape[1]


class SimulatedNovelty:
    """The folds of a batch, on which parameters and numbers of clusters are evaluated.

    Features (n, D) are of unit length where directions alone are compared; the scatter is that of
    earlier batches, `known` are the categories of these that may return, and `returning` is as in
    `FeatureBatch`.
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        known: KnownCategories,
        scatter: WithinClassScatter,
        grid: ParameterGrid,
        generator: torch.Generator,
        returning: bool = False,
    ) -> None:
        if grid.max_samples is not None:
            sample = _with_all_labelled(labels, grid.max_samples, generator)
            features, labels = features[sample], labels[sample]
        elif len(features) > MAX_SAMPLES:
            sample = torch.randperm(len(features), generator=generator)[:MAX_SAMPLES].sort().values
            features, labels = features[sample], labels[sample]
        self.features, self.labels, self.grid, self.generator = features, labels, grid, generator
        self.known, self.returning = known, returning
        self.total = total_scatter(features)
        labelled_classes = labels[labels != UNLABELLED].unique()
        self.n_known = len(torch.cat([labelled_classes, known.labels]).unique())
        self.folds = list(self._make_folds(scatter)) if len(labelled_classes) >= MIN_CLASSES else []
        self.folds = self.folds[: grid.max_folds]
        self.whole = self._hide_nothing(scatter)
        self.seeds = torch.randint(2**31, (len(self.folds),), generator=generator).tolist()
        self.selected = grid.default()
        """Parameters that have been selected so far."""
        self._members: dict[tuple[DiscoveryParameters, int], dict[int, Tensor]] = {}
        """Categories of the images by number of novel ones, with nothing hidden."""

    def _make_folds(self, scatter: WithinClassScatter) -> Iterator[Fold]:
        labels, labelled = self.labels, self.labels != UNLABELLED
        classes = labels[labelled].unique()
        # Two classes if possible: one alone could share its cluster with a novel class without loss of accuracy.
        n_groups = min(MIN_FOLDS, len(classes) // 2 if len(classes) >= 4 else len(classes))
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
            if not len(shown_classes):  # all labels of the few classes left happen to be hidden
                continue
            of_shown = scatter.add(self.features[kept], shown[kept])
            yield Fold(hidden, images, shown, known, shown_classes, of_shown)

    def _hide_nothing(self, scatter: WithinClassScatter) -> Fold:
        labelled = self.labels != UNLABELLED
        classes = torch.cat([self.labels[labelled], self.known.labels]).unique()
        of_all = scatter.add(self.features[labelled], self.labels[labelled])
        none = torch.zeros_like(labelled)
        return Fold(none, none, self.labels, self.known, classes, of_all)

    @property
    def halves(self) -> tuple[slice, slice]:
        """The folds on which candidates are compared, and those on which only the best one is evaluated."""
        half = -(-len(self.folds) // 2)
        return slice(half), slice(half, None)

    def scores(
        self, parameters: DiscoveryParameters, n_novel: int, folds: slice = slice(None)
    ) -> list[float]:
        """Score of each of the `folds` with `n_novel` categories beside those of all known classes."""

        def score(fold: Fold, seed: int) -> float:
            data, draw = self._data(fold, parameters), torch.Generator().manual_seed(seed)
            count = min(self._n_hidden(fold) + n_novel, _n_unlabelled(fold))
            found = discover_by_mixture(data, count, parameters.mixture, draw)
            return fold.score(found.weights.argmax(dim=1), self.labels)

        return list(threaded_map(lambda pair: score(*pair), zip(self.folds[folds], self.seeds[folds])))

    def score_numbers(
        self, parameters: DiscoveryParameters, max_novel: int, folds: slice, bar: Bar
    ) -> list[dict[int, float]]:
        """Agreement of each of the `folds` with 0 to `max_novel` categories beside those of all known classes."""
        chosen, seeds = self.folds[folds], self.seeds[folds]
        whole = parameters, max_novel
        if whole not in self._members:
            chosen, seeds = [self.whole, *chosen], [self.seeds[0], *seeds]
        sweeps = []
        for sweep in threaded_map(lambda pair: self._sweep(*pair, parameters, max_novel), zip(chosen, seeds)):
            sweeps.append(sweep)
            bar.advance()
        if whole not in self._members:
            self._members[whole] = sweeps.pop(0)
        members = self._members[whole]

        def agreements(fold: Fold, found: Mapping[int, Tensor]) -> dict[int, float]:
            classes = self.whole.shown_classes
            return {n: fold.agreement(found[n], self.labels, members[n], classes) for n in found}

        return list(threaded_map(lambda pair: agreements(*pair), zip(self.folds[folds], sweeps)))

    def _sweep(
        self, fold: Fold, seed: int, parameters: DiscoveryParameters, max_novel: int
    ) -> dict[int, Tensor]:
        """Category (n,) of each image with 0 to `max_novel` categories beside those of all known classes.

        Where there are not enough unlabelled images for that many, they are those of the greatest possible number.
        """
        data, draw = self._data(fold, parameters), torch.Generator().manual_seed(seed)
        n_hidden = min(self._n_hidden(fold), _n_unlabelled(fold))
        most = min(n_hidden + max_novel, _n_unlabelled(fold))
        numbers = self._numbers(max_novel)
        tried = sorted({min(n_hidden + number, most) for number in numbers}, reverse=True)
        mixtures = fit_mixtures(data, tried, parameters.mixture, draw)
        found = {mixture.n_novel - n_hidden: mixture.weights.argmax(dim=1) for mixture in mixtures}
        return {number: found[min(number, most - n_hidden)] for number in sorted(numbers)}

    def _numbers(self, max_novel: int) -> list[int]:
        """Numbers of novel categories that are compared, descending."""
        return numbers_of_novel(max_novel, 0, self.grid.removed_share, self.n_known // MIN_FOLDS)

    def _data(self, fold: Fold, parameters: DiscoveryParameters) -> MixtureData:
        shrinkage = parameters.shrinkage
        if shrinkage not in fold.components:
            most = max(self.grid.n_components)
            fold.components[shrinkage] = fit_components(
                self.features, fold.scatter, most, shrinkage, self.total
            )
        unit = compares_directions(self.features.shape[1])
        components, count = fold.components[shrinkage], parameters.n_components
        return mixture_data(components, fold.shown, fold.known, fold.scatter, count, unit, self.returning)

    def _n_hidden(self, fold: Fold) -> int:
        return self.n_known - len(fold.shown_classes)


def _with_all_labelled(labels: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Rows of all labelled images and of at most `most` others."""
    unlabelled = (labels == UNLABELLED).nonzero()[:, 0]
    chosen = unlabelled[torch.randperm(len(unlabelled), generator=generator)[:most]]
    return torch.cat([(labels != UNLABELLED).nonzero()[:, 0], chosen]).sort().values


def mixture_data(
    components: Components,
    labels: Tensor,
    known: KnownCategories,
    scatter: WithinClassScatter,
    n_components: int,
    unit: bool,
    returning: bool,
) -> MixtureData:
    """Make the points of a mixture in the first `n_components` of the whitened features."""
    points = components.points(n_components, unit)
    if not len(known):
        return MixtureData.of_batch(points, labels, returning, unit)
    means, spread = components.expected_points(known.features, known.counts, scatter, n_components, unit)
    return MixtureData(points, labels, means, known.labels, known.counts, spread, returning, unit)


def _n_unlabelled(fold: Fold) -> int:
    return int((fold.shown == UNLABELLED).sum())


def estimate_number(
    simulation: SimulatedNovelty, max_novel: int, progress: Progress, missed_cost: float = 1.0
) -> NumberEstimate:
    """Estimate the number of novel categories, and select the power of densities with it.

    The power with the best score on half of the folds is evaluated on all of them; it becomes `simulation.selected`. Every
    fold f has a best number N_f, of several the one with the best mean score over the folds. The estimate is the number n
    that minimises the expected loss

        sum_f  c max(N_f - n, 0)^2 + max(n - N_f, 0)^2

    over the folds, their mean for c = 1. The error is the standard deviation of N_f. It is not divided by the root of the
    number of folds, since all folds have the same novel classes.

    Args:
        simulation: With at least one fold.
        max_novel: Greatest number considered.
        progress: Receives a bar.
        missed_cost: c, what a missed category costs relative to a split one.
    """
    candidates = simulation.grid.powers(simulation.selected)
    first, rest = simulation.halves
    steps = len(candidates) * (len(simulation.folds[first]) + 1) + len(simulation.folds[rest])
    with progress.track("Number of categories", steps) as bar:
        of_first = {
            parameters: simulation.score_numbers(parameters, max_novel, first, bar)
            for parameters in candidates
        }
        best = max(candidates, key=lambda parameters: max(_mean_scores(of_first[parameters]).values()))
        of_folds = of_first[best] + simulation.score_numbers(best, max_novel, rest, bar)
    simulation.selected = best
    scores = _mean_scores(of_folds)
    of_single = [_best_number(fold, scores) for fold in of_folds]
    n_novel = min(range(max_novel + 1), key=lambda number: _expected_loss(number, of_single, missed_cost))
    error = float(torch.tensor(of_single).double().std())
    return NumberEstimate(n_novel, curve(scores, simulation.n_known), error)


def _mean_scores(of_folds: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Mean score of every number over the folds."""
    return {number: _mean([fold[number] for fold in of_folds]) for number in of_folds[0]}


def _best_number(of_fold: Mapping[int, float], scores: Mapping[int, float]) -> int:
    """Number with the highest score of a fold; of several the one with the highest mean score, or the greatest."""
    top = max(of_fold.values())
    return max((scores[number], number) for number, score in of_fold.items() if score == top)[1]


def _expected_loss(number: int, of_folds: Sequence[int], missed_cost: float) -> float:
    """Mean squared difference of `number` from those of single folds, times `missed_cost` where it is too low."""
    return _mean([(missed_cost if number < best else 1.0) * (number - best) ** 2 for best in of_folds])


def select_parameters(
    simulation: SimulatedNovelty, n_novel: int, estimated: bool, progress: Progress
) -> tuple[DiscoveryParameters, float | None]:
    """Select parameters for `n_novel` novel categories, and return their mean score on hidden images.

    If the number was `estimated`, the power was selected with it.

    If no class can be hidden, they are the defaults, and the score is None.
    """
    grid, parameters = simulation.grid, simulation.selected
    if not simulation.folds:
        return parameters, None
    steps = [*([] if estimated else [grid.powers]), grid.shrinkages, grid.dimensions]
    if compares_directions(simulation.features.shape[1]):  # others are always Gaussian
        steps.insert(0, grid.widths)
    first, rest = simulation.halves
    scores: dict[DiscoveryParameters, list[float]] = {}
    with progress.track("Simulated novelty", sum(len(step(parameters)) for step in steps) + 1) as bar:
        for step in steps:
            for candidate in step(parameters):
                if candidate not in scores:
                    scores[candidate] = simulation.scores(candidate, n_novel, first)
                bar.advance()
            parameters = max(
                step(parameters), key=lambda each: _mean(scores[each])
            )  # first of equally good ones
        score = _mean(scores[parameters] + simulation.scores(parameters, n_novel, rest))
        bar.advance()
    return parameters, score


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
