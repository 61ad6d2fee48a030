"""Fit a calibration on held-out images; `calibration` says what it holds."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from camp.core.parallel import single_threaded, threaded_map
from camp.core.types import UNLABELLED
from camp.discovery.calibration import Calibration, Spread
from camp.discovery.class_metric import MAX_SAMPLES, ClassMetric, Floats

COVERAGE = 0.95
"""Quantile at which held-out and other distances are compared."""
N_FOLDS = 4
HIDDEN_PER_FOLD, MIN_CATEGORIES = 1 / 8, 8
"""Share of the categories that a fold hides; fewer than MIN_CATEGORIES tell little about unseen ones."""
N_QUANTILES = 201
MIN_RATIO, MIN_IMAGES = 0.5, 50
"""Lower bound of the ratio a; 1 where it is estimated from fewer images, so that learned images stay recognised."""


@dataclass(frozen=True)
class Members:
    """Images whose category is known."""

    features: Tensor
    """(n, D)"""
    positions: Tensor
    """(n,) category, 0 .. K - 1; each has at least one image."""
    trusted: Tensor
    """(n,) bool: the category comes from a label or a person, not from clustering. The temperature
    is fitted on trusted images, as clustering itself assigned the others to the nearest
    category."""
    fitted: Tensor
    """(n,) bool: the metric was fitted with the category as a label."""


@single_threaded()
def calibrate(members: Members, metric: ClassMetric, count: int) -> Calibration:
    """Calibrate distances of `metric`, which was fitted on `members` of `count` categories."""
    step = max(1, -(-len(members.features) // MAX_SAMPLES))
    features, index = members.features[::step], members.positions[::step]
    trusted, fitted = members.trusted[::step], members.fitted[::step]
    if not bool(trusted.any()):
        trusted = torch.ones_like(trusted)
    sample = Members(features, index, trusted, fitted)
    n_components = metric.projection.shape[1]
    found = threaded_map(lambda number: _fold(sample, number, count, n_components), range(N_FOLDS))
    folds = [fold for fold in found if fold is not None]
    if not folds:
        return Calibration()
    points = metric.transform(features).numpy()
    inside = torch.from_numpy(metric.leave_one_out_distances(points, index.numpy(), count))
    unseen, unlabelled = (
        _ratio(torch.cat([fold.own[fold.fitted == label] for fold in folds]), inside[fitted == label])
        for label in (True, False)
    )
    calibration = Calibration(unseen, _temperature(folds), unlabelled)
    spread = Spread.of(calibration.ratios(fitted.numpy()) * inside.numpy(), index.numpy(), count)
    if spread is None or sum(len(fold.answers) for fold in folds) < MIN_IMAGES:
        return calibration
    known = [spread.scores(fold.distances.numpy(), fold.present.numpy()) for fold in folds]
    hidden = [spread.scores(fold.hidden_distances.numpy(), fold.present.numpy()) for fold in folds]
    return replace(calibration, known_scores=_quantiles(known), hidden_scores=_quantiles(hidden))


@dataclass(frozen=True)
class _Fold:
    """Distances to the centroids of k categories, under a metric that is fitted without the images of a fold."""

    distances: Tensor
    """(n, k) of the held-out images."""
    answers: Tensor
    """(n,) their categories."""
    trusted: Tensor
    """(n,) as in `Members`"""
    fitted: Tensor
    """(n,) as in `Members`"""
    hidden_distances: Tensor
    """(m, k) of the images of hidden categories."""
    present: Tensor
    """(k,) the categories, of all K."""

    @property
    def own(self) -> Tensor:
        """(n,) distances of the held-out images to the centroid of their category."""
        return self.distances.gather(1, self.answers[:, None])[:, 0]


def _fold(members: Members, number: int, count: int, n_components: int) -> _Fold | None:
    """Fit a metric without the images of the fold `number` and without hidden categories; None if no image is left."""
    features, index, fitted = members.features, members.positions, members.fitted
    in_fold = torch.arange(len(index)) % N_FOLDS == number
    hidden = _hidden_categories(number, count)[index]
    rest = ~in_fold & ~hidden
    present = index[rest].unique()
    held_out = in_fold & torch.isin(index, present)
    if not bool(held_out.any()):
        return None
    labels = index.masked_fill(~fitted, UNLABELLED)
    metric = ClassMetric.fit(features[rest], labels[rest], n_components)
    columns = torch.searchsorted(present, index.contiguous())
    points = metric.transform(features[rest]).numpy()
    centroids = torch.from_numpy(metric.centroids(points, columns[rest].numpy(), len(present))).double()
    return _Fold(
        distances=torch.cdist(metric.transform(features[held_out]).double(), centroids),
        answers=columns[held_out],
        trusted=members.trusted[held_out],
        fitted=fitted[held_out],
        hidden_distances=torch.cdist(metric.transform(features[hidden]).double(), centroids),
        present=present,
    )


def _hidden_categories(fold: int, count: int) -> Tensor:
    """Which of `count` categories (K,) a fold hides; no category is hidden twice."""
    if count < MIN_CATEGORIES:
        return torch.zeros(count, dtype=torch.bool)
    return torch.arange(count) % round(1 / HIDDEN_PER_FOLD) == fold


def _quantiles(scores: list[Floats]) -> tuple[float, ...]:
    """N_QUANTILES quantiles of scores (n,), of all folds together; empty without any."""
    values = np.concatenate(scores)
    if not len(values):
        return ()
    return tuple(np.quantile(values, np.linspace(0, 1, N_QUANTILES)).tolist())


def _ratio(outside: Tensor, inside: Tensor) -> float:
    """Ratio of the COVERAGE quantiles of held-out and of other distances, NaN where unknown."""
    outside, inside = outside[~outside.isnan()], inside[~inside.isnan()]
    if not len(outside) or not len(inside):
        return 1.0
    seen = float(torch.quantile(inside, COVERAGE))
    lowest = MIN_RATIO if len(outside) >= MIN_IMAGES else 1.0
    return max(lowest, float(torch.quantile(outside, COVERAGE)) / seen) if seen else 1.0


def _temperature(folds: list[_Fold]) -> float:
    """Maximum-likelihood T for the trusted held-out images."""
    pairs = [
        (fold.distances[fold.trusted].square(), fold.answers[fold.trusted])
        for fold in folds
        if bool(fold.trusted.any()) and fold.distances.shape[1] > 1
    ]
    scale = float(torch.cat([d.flatten() for d, _ in pairs]).mean()) if pairs else 0.0
    if scale == 0.0:
        return 1.0

    def loss(log_temperature: float) -> float:
        t = math.exp(log_temperature)
        return sum(float(F.cross_entropy(-d / t, target, reduction="sum")) for d, target in pairs)

    low, high = math.log(scale) - 9, math.log(scale) + 3
    return math.exp(minimize_scalar(loss, bounds=(low, high), method="bounded").x)
