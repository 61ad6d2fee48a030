"""Estimate the number of novel categories by cross-validation that hides known classes.

The mixture is fitted with every number of novel categories, in every fold and with nothing hidden. Two sources tell about
the number m:

1. **Agreement.** Every fold f has a number N_f with which its hidden classes agree best with what they have where nothing is
   hidden. With J folds,

       m ~ N(mean N_f, (1 / J + 1 / (J - 1)) var N_f)            variance of cross-validation (Nadeau and Bengio 2003)

2. **Images.** Hidden images are novel with a share p+ of those of hidden classes and p- of others. Of the U truly
   unlabelled images a share p is, so that (Forman 2008)

       C + B = U (p - p-) / (p+ - p-)

   are of novel and of hidden classes, B = H (U - C) / L of the latter, if H of the L labelled images are. The m novel
   classes have the mean size E = (L + U - C) / K of the K known ones, and with V, the variance of sizes (`class_sizes`),

       C ~ N(m E, m V (1 + m / K) + (1 + K / m) var C)

   var C is the jackknife variance over the folds. Its factor adds that m other classes are recognised as novel, not the K
   that were hidden. With equal sizes this is precise, with a long tail it is not.

Both are independent but for the fits, and their product is the distribution of m. Sizes are not predicted in these fits, as a
prediction for m novel categories would confirm m.

Where unlabelled images may be of earlier categories, labels do not tell the size of a class, and the distribution is that of
the N_f alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.discovery.base import NumberEstimate
from camp.discovery.category_search import curve
from camp.discovery.class_sizes import size_moments
from camp.discovery.simulated_novelty import FoldNumbers, SimulatedNovelty

_LEAST_CONTRAST = 0.05
"""Lower bound of p+ - p-, by which is divided."""
_WIDTH = 2.0
"""Standard deviations above the number that the images tell up to which numbers are compared by agreement."""


def estimate_number(
    simulation: SimulatedNovelty, max_novel: int, progress: Progress, missed_cost: float = 1.0
) -> NumberEstimate:
    """Estimate the number of novel categories with the default parameters, by agreement alone with the best power.

    The estimate is the number n with the least expected loss c (m - n)^2 for m > n and (m - n)^2 for m < n, the mean of the
    distribution for c = 1. The error is its standard deviation.

    Args:
        simulation: With at least one fold.
        max_novel: Greatest number considered.
        progress: Receives a bar.
        missed_cost: c, what a missed category costs relative to a split one.
    """
    parameters = simulation.grid.default()
    candidates = simulation.grid.powers(parameters)
    if not simulation.returning:
        candidates = [replace(parameters, mixture=replace(parameters.mixture, size_prior=False))]
    fits = []
    with progress.track("Number of categories", len(candidates) * (len(simulation.folds) + 1)) as bar:
        for candidate in candidates:
            of_folds = simulation.score_numbers(candidate, max_novel, bar)
            fits.append((of_folds, _mean_agreement(of_folds)))
    folds, scores = max(fits, key=lambda fit: max(fit[1].values()))
    if simulation.returning or len(folds) < 2:
        best = [_best_number(fold.agreement, scores) for fold in folds]
        distribution = torch.bincount(torch.tensor(best), minlength=max_novel + 1).double() / len(folds)
    else:
        distribution = _posterior(folds, scores, simulation.labels, max_novel)
    numbers = torch.arange(max_novel + 1).double()
    mean = float(distribution @ numbers)
    error = float(distribution @ (numbers - mean).square()) ** 0.5
    n_novel = min(range(max_novel + 1), key=lambda number: _expected_loss(number, distribution, missed_cost))
    return NumberEstimate(n_novel, curve(scores, simulation.n_known), error)


def _posterior(
    folds: Sequence[FoldNumbers], scores: Mapping[int, float], labels: Tensor, max_novel: int
) -> Tensor:
    """Probability (max_novel + 1,) of every number, by agreement and images; `scores` are the mean agreements."""
    numbers = torch.arange(max_novel + 1).double()
    of_images = log_likelihood_of_images(estimate_novel_images(folds, labels), labels, max_novel)
    alone = of_images.softmax(dim=0)
    mean = float(alone @ numbers)
    limit = mean + _WIDTH * float(alone @ (numbers - mean).square()) ** 0.5
    best = [
        _best_number({n: score for n, score in fold.agreement.items() if n <= limit}, scores)
        for fold in folds
    ]
    return (of_images + log_likelihood_of_agreement(best, max_novel)).softmax(dim=0)


def log_likelihood_of_agreement(best: Sequence[int], max_novel: int) -> Tensor:
    """Log-likelihood (max_novel + 1,) of every number, by the `best` numbers N_f of two or more folds."""
    values, count = torch.tensor(best).double(), len(best)
    variance = (1 / count + 1 / (count - 1)) * values.var() + 1 / 12  # the last term is of rounding
    return -0.5 * (torch.arange(max_novel + 1) - values.mean()).square() / variance


@dataclass(frozen=True)
class NovelImages:
    """Estimated number of unlabelled images of novel classes."""

    count: float
    """C"""
    variance: float
    """var C, by the jackknife."""


def estimate_novel_images(folds: Sequence[FoldNumbers], labels: Tensor) -> NovelImages:
    """Estimate the images of novel classes, of the images with `labels` (n,), known or UNLABELLED.

    It is the mean over fits with an eighth to a half of the greatest number, all of which divide the images of novel classes.
    """
    most = max(folds[0].agreement)
    numbers = range(max(most // 8, min(most, 1)), max(most // 2, min(most, 1)) + 1)

    def count(of_folds: Sequence[FoldNumbers]) -> float:
        return _mean([_novel_images(of_folds, number, labels) for number in numbers])

    without = torch.tensor([count([*folds[:i], *folds[i + 1 :]]) for i in range(len(folds))]).double()
    variance = (len(folds) - 1) * float(without.var(correction=0))
    return NovelImages(count(folds), variance)


def _novel_images(folds: Sequence[FoldNumbers], number: int, labels: Tensor) -> float:
    """C, by the fits with `number` novel categories."""
    n_labelled = int((labels != UNLABELLED).sum())
    n_unlabelled = len(labels) - n_labelled
    hidden = [fold.n_hidden for fold in folds]
    of_hidden = sum(fold.found[number] * n for fold, n in zip(folds, hidden)) / max(sum(hidden), 1)
    of_others, of_all = (_mean([rate[number] for rate in rates]) for rates in _rates(folds))
    both = n_unlabelled * (of_all - of_others) / max(of_hidden - of_others, _LEAST_CONTRAST)
    share = _mean(hidden) / n_labelled
    return min(max((both - share * n_unlabelled) / (1 - share), 0.0), n_unlabelled - 1.0)


def _rates(folds: Sequence[FoldNumbers]) -> tuple[list[dict[int, float]], list[dict[int, float]]]:
    return [fold.mistaken for fold in folds], [fold.flagged for fold in folds]


def log_likelihood_of_images(images: NovelImages, labels: Tensor, max_novel: int) -> Tensor:
    """Log-likelihood (max_novel + 1,) of every number, by the images of novel classes and the sizes of known ones."""
    counts = labels[labels != UNLABELLED].unique(return_counts=True)[1].double()
    n_known = len(counts)
    _, size, variance = size_moments(
        counts, (len(labels) - float(counts.sum()) - images.count) / counts.sum()
    )
    m = torch.arange(max_novel + 1).double()
    of_sizes = m * variance * (1 + m / n_known) + size.square() / 12  # the last term is of rounding
    total = of_sizes + (1 + n_known / m.clamp_min(1)) * images.variance
    return -0.5 * ((images.count - m * size).square() / total + total.log())


def _mean_agreement(folds: Sequence[FoldNumbers]) -> dict[int, float]:
    """Mean agreement over the folds, by number."""
    return {number: _mean([fold.agreement[number] for fold in folds]) for number in folds[0].agreement}


def _best_number(of_fold: Mapping[int, float], scores: Mapping[int, float]) -> int:
    """Number with the highest score of a fold; of several the one with the highest mean score, or the greatest."""
    top = max(of_fold.values())
    return max((scores[number], number) for number, score in of_fold.items() if score == top)[1]


def _expected_loss(number: int, distribution: Tensor, missed_cost: float) -> float:
    """Expected squared difference of `number` from the true one, times `missed_cost` where it is too low."""
    differences = torch.arange(len(distribution)).double() - number
    costs = torch.where(differences > 0, missed_cost, 1.0) * differences.square()
    return float(distribution @ costs)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
