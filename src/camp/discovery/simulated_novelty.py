"""Choosing how to discover by discovering what is known: some labelled classes are treated as novel for a moment.

A fold hides all labels of some classes, and a few labels of every other one, so few that the task stays much as it is.
The truly novel pictures take part, unlabelled as ever. How well a recipe does is the mean of two accuracies: of the hidden
classes, whose pictures must lie in novel clusters, one cluster a class (best one-to-one matching); and of the hidden
pictures of the other classes, which must be with their own. Whatever does best on average over the folds is used. No label
of a novel class is ever looked at. Chosen so, one after the other:

1. the number of novel clusters, where it is not told. Each fold has its own best number as well, and the standard error of
   their mean says how far the number can be trusted;
2. the shrinkage of the scatter and the number of directions, together;
3. how sharp assignments are and how strictly sizes are held, together.

Of ties the first candidate wins, and of equal numbers the greatest. With fewer than LEAST known classes nothing can be hidden, and the defaults stand.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import torch
import torch.nn.functional as F
from sklearn.decomposition import PCA
from torch import Tensor

from camp.core.progress import Bar, Progress
from camp.core.types import UNLABELLED
from camp.discovery.class_scatter import Scatter
from camp.discovery.hungarian import cluster_accuracy
from camp.discovery.semi_supervised_kmeans import KMeans, semi_supervised_kmeans
from camp.discovery.size_constraints import Balance, balanced

FOLDS = 8
"""At least; every class is hidden in equally many of them, and in each of the others so is one in FOLDS of its pictures."""
LEAST = 4
"""Known classes, so that a fold that hides two still shows two."""
AT_MOST = 6000
"""Pictures that are looked at: of more, as many are drawn."""
COARSE = 8
"""Steps of the first grid of numbers of clusters."""
_RUNS = 10
"""Of k-means in a trial."""


@dataclass(frozen=True)
class Recipe:
    """How the novel categories of a task are found."""

    shrinkage: float
    """s of the scatter."""
    directions: int
    """d, principal directions that are kept."""
    balance: Balance


@dataclass(frozen=True)
class Candidates:
    """What a recipe is chosen from; the first of each is the default."""

    shrinkages: tuple[float, ...] = (0.5, 0.3, 0.7)
    directions: tuple[int, ...] = (48, 32, 64)
    sharpnesses: tuple[float, ...] = (10.0, 20.0)
    holds: tuple[float, ...] = (0.9, 1.0, 0.5, 0.0)

    def default(self) -> Recipe:
        """Where nothing can be tried."""
        return Recipe(self.shrinkages[0], self.directions[0], Balance(self.sharpnesses[0], self.holds[0]))

    def spaces(self, recipe: Recipe) -> list[Recipe]:
        """`recipe` in every space."""
        pairs = itertools.product(self.shrinkages, self.directions)
        return [replace(recipe, shrinkage=s, directions=d) for s, d in pairs]

    def balances(self, recipe: Recipe) -> list[Recipe]:
        """`recipe` with every balance."""
        pairs = itertools.product(self.sharpnesses, self.holds)
        return [replace(recipe, balance=Balance(x, h)) for x, h in pairs]


@dataclass(frozen=True)
class Choice:
    """What the simulation says about a task."""

    recipe: Recipe
    n_novel: int
    error: float | None
    """Standard error of `n_novel`; None where it was told."""
    curve: tuple[tuple[int, float], ...] | None
    """(k, accuracy on hidden pictures) of every number tried, by k."""
    score: float | None
    """Accuracy of the recipe on hidden pictures; None where nothing could be hidden."""


def principal(u: Tensor, scatter: Scatter, shrinkage: float, most: int) -> Tensor:
    """(n, d) the first `most` principal components of the whitened u (n, D)."""
    y = (u @ scatter.whitening(shrinkage)).numpy()
    count = min(most, *y.shape)
    solver = "randomized" if count < min(y.shape) // 2 else "full"
    components = PCA(count, svd_solver=solver, iterated_power=4, random_state=0).fit_transform(y)
    return torch.from_numpy(components).float()


def points(components: Tensor, directions: int, directional: bool) -> Tensor:
    """p (n, d): the first `directions` components at unit length, or of mean length 1 where length says something."""
    p = components[:, :directions]
    return F.normalize(p, dim=1) if directional else p / p.norm(dim=1).mean().clamp_min(1e-12)


@dataclass(frozen=True)
class _Fold:
    """One simulation: what is hidden, and what the shown labels make of the features."""

    classes: Tensor
    """(n,) bool: the labelled pictures of hidden classes."""
    pictures: Tensor
    """(n,) bool: the hidden pictures of other classes."""
    shown: Tensor
    """(n,) labels without the hidden ones."""
    names: Tensor
    """(c,) classes that still have labels, sorted."""
    scatter: Scatter

    def accuracy(self, found: Tensor, labels: Tensor) -> float:
        """Of clusters `found` (n,), numbered as k-means does, where `labels` (n,) are all there are."""
        novel = self.classes & (found >= len(self.names))
        again = cluster_accuracy(found[novel], labels[novel]) * int(novel.sum()) / int(self.classes.sum())
        if not bool(self.pictures.any()):
            return again
        own = torch.searchsorted(self.names, labels[self.pictures])
        return (again + float((found[self.pictures] == own).float().mean())) / 2


class Simulation:
    """The folds of a task, on which recipes and numbers of clusters are tried."""

    def __init__(
        self,
        u: Tensor,
        labels: Tensor,
        scatter: Scatter,
        candidates: Candidates,
        directional: bool,
        draw: torch.Generator,
    ) -> None:
        """Features u (n, D) with `labels` (n,); `scatter` is that of earlier tasks."""
        if len(u) > AT_MOST:
            some = torch.randperm(len(u), generator=draw)[:AT_MOST].sort().values
            u, labels = u[some], labels[some]
        self.u, self.labels, self.directional, self.draw = u, labels, directional, draw
        self.candidates = candidates
        self.known = len(labels[labels != UNLABELLED].unique())
        self.folds = list(self._folds(scatter)) if self.known >= LEAST else []
        self._components: dict[tuple[int, float], Tensor] = {}
        self._starts: dict[tuple[int, float, int, int], KMeans] = {}

    def _folds(self, scatter: Scatter) -> Iterator[_Fold]:
        labels = self.labels
        groups = self._groups(labels[labels != UNLABELLED].unique())
        turn = torch.randint(FOLDS, (len(labels),), generator=self.draw)
        for at, group in enumerate(groups):
            classes = torch.isin(labels, group)
            pictures = (labels != UNLABELLED) & (turn == at % FOLDS) & ~classes
            shown = labels.masked_fill(classes | pictures, UNLABELLED)
            kept = shown != UNLABELLED
            names = shown[kept].unique()
            pictures &= torch.isin(labels, names)  # a class that showed one picture alone is not counted
            yield _Fold(classes, pictures, shown, names, scatter.with_classes(self.u[kept], shown[kept]))

    def _groups(self, known: Tensor) -> list[Tensor]:
        """What each fold hides of the `known` classes.

        Two classes at least: of one alone nobody could tell that it shares its cluster with a novel one. Few classes are cut
        into groups several times.
        """
        count = min(FOLDS, self.known // 2)
        orders = [torch.randperm(self.known, generator=self.draw) for _ in range(-(-FOLDS // count))]
        return [group for order in orders for group in known[order].tensor_split(count)]

    def scores(self, recipe: Recipe, n_novel: int) -> list[float]:
        """How well each fold is found again with `n_novel` clusters beside those of all known classes."""
        return [self._score(at, fold, recipe, n_novel) for at, fold in enumerate(self.folds)]

    def _score(self, at: int, fold: _Fold, recipe: Recipe, n_novel: int) -> float:
        space = (at, recipe.shrinkage)
        if space not in self._components:
            self._components[space] = principal(
                self.u, fold.scatter, recipe.shrinkage, max(self.candidates.directions)
            )
        p = points(self._components[space], recipe.directions, self.directional)
        clusters = min(self.known - len(fold.names) + n_novel, int((fold.shown == UNLABELLED).sum()))
        if (key := (*space, recipe.directions, clusters)) not in self._starts:
            self._starts[key] = semi_supervised_kmeans(
                p, fold.shown, clusters, n_init=_RUNS, generator=self.draw
            )
        return fold.accuracy(balanced(p, fold.shown, self._starts[key], recipe.balance), self.labels)


def choose(simulation: Simulation, told: int | None, most: int, progress: Progress) -> Choice:
    """The recipe for a task, and its number of novel clusters, at most `most`, unless it is `told`."""
    candidates = simulation.candidates
    recipe, error, curve = candidates.default(), None, None
    if not simulation.folds:
        return Choice(recipe, told if told is not None else 0, None, None, None)
    if told is None:
        n_novel, error, curve = _number(simulation, recipe, most, progress)
    else:
        n_novel = told
    spaces = candidates.spaces(recipe)
    with progress.track("Simulated novelty", len(spaces) + len(candidates.balances(recipe))) as bar:
        recipe, _ = _best(simulation, spaces, n_novel, bar)
        recipe, score = _best(simulation, candidates.balances(recipe), n_novel, bar)
    return Choice(recipe, n_novel, error, curve, score)


def _best(simulation: Simulation, recipes: Sequence[Recipe], n_novel: int, bar: Bar) -> tuple[Recipe, float]:
    """The recipe with the highest mean score, and that score."""
    scores = []
    for recipe in recipes:
        scores.append(_mean(simulation.scores(recipe, n_novel)))
        bar.advance()
    at = max(range(len(recipes)), key=lambda i: (scores[i], -i))
    return recipes[at], scores[at]


def _number(
    simulation: Simulation, recipe: Recipe, most: int, progress: Progress
) -> tuple[int, float, tuple[tuple[int, float], ...]]:
    """The number of novel clusters, its standard error and the curve, from coarse to fine."""
    scores: dict[int, list[float]] = {}
    step = -(-most // COARSE) or 1
    grid = [*range(0, most, step), most]
    with progress.track("Number of categories", len(grid)) as bar:
        while True:
            for n_novel in grid:
                scores[n_novel] = simulation.scores(recipe, n_novel)
                bar.advance()
                bar.say(f"{simulation.known + n_novel} categories score {_mean(scores[n_novel]):.3f}")
            best = _peak(scores, _mean)
            if step == 1:
                break
            step = -(-step // 2)
            grid = [n for n in (best - step, best + step) if 0 <= n <= most and n not in scores]
            bar.total += len(grid)
    own = torch.tensor([_peak(scores, itemgetter(at)) for at in range(len(simulation.folds))])
    error = float(own.double().std()) / math.sqrt(len(own))
    curve = tuple((simulation.known + n, _mean(scores[n])) for n in sorted(scores))
    return best, error, curve


def _peak(scores: dict[int, list[float]], worth: Callable[[list[float]], float]) -> int:
    """The number of the highest score, the greatest of equal ones.

    Too many clusters always cost something. Too few may cost nothing: a hidden class that shares its cluster with one that is
    truly novel is still found.
    """
    return max(sorted(scores, reverse=True), key=lambda n: worth(scores[n]))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
