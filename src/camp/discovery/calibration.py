"""Calibrate distances to centroids on held-out images: acceptance radii and temperature.

An image pulls the centroid of its category towards itself and takes part in fitting the metric, so
its own distance says little about images to come. When a batch is learned, `calibrate` splits the
images into N_FOLDS folds and measures each fold with a metric and centroids of the others. With
these distances D_i, and d_i the distance of image i to the centroid of the others of its category
under the metric of all:

    T    minimises  -sum_i log p(k_i | p_i),    p(k | .) as in `open_set`
    a    = COVERAGE quantile of D_i / COVERAGE quantile of d_i

a is far above 1 for images whose label the metric was fitted with. It is below 1 for the others:
principal components capture variation of the images they were fitted on, labelled or not. So there
is one ratio for each. Whenever categories change, `fit_open_set` fits the radii of a classifier:

    m_k, s_k   mean and standard deviation of a d_i in category k, shrunk to those of all images by PRIOR images
    r_k        = m_k + q s_k

so that an image is unknown where its score min_k (d_k - m_k) / s_k is above q. q is the quantile of
the scores of held-out images that leaves the wanted rate of false alarms. In each fold some whole
categories are hidden as well: neither the metric nor the centroids know their images, and the share
of these with a score above q is the rate at which images of unseen categories are detected.
Quantiles of both distributions are kept, so that any rate can be set later.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from camp.core.errors import CampError
from camp.core.types import FALSE_ALARMS, UNLABELLED
from camp.discovery.class_metric import MAX_SAMPLES, ClassMetric
from camp.discovery.open_set import OpenSet

COVERAGE = 0.95
"""Quantile at which held-out and other distances are compared."""
MAX_FALSE_ALARMS = 0.5
PRIOR = 10
N_FOLDS = 4
HIDDEN_PER_FOLD, MIN_CATEGORIES = 1 / 8, 8
"""Share of the categories that a fold hides; fewer than MIN_CATEGORIES tell little about unseen ones."""
N_QUANTILES = 201
MIN_RATIO, MIN_IMAGES = 0.5, 50
"""Lower bound of the ratio a; 1 where it is estimated from fewer images, so that learned images stay recognised."""


@dataclass(frozen=True)
class Calibration:
    """How distances of images that the metric was fitted on transfer to new images."""

    unseen: float = 1.0
    """Ratio a for images whose label the metric was fitted with."""
    temperature: float = 1.0
    """T of the probabilities."""
    unlabelled: float | None = None
    """Ratio a for images without a label; None if it is that of the others."""
    known_scores: tuple[float, ...] = ()
    """Quantiles of the scores of held-out images, from 0 to 1; empty in workspaces of earlier versions."""
    hidden_scores: tuple[float, ...] = ()
    """Quantiles of the scores of images of hidden categories; empty with fewer than MIN_CATEGORIES."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Calibration of `dataclasses.asdict`, whose tuples are lists in JSON."""
        tuples: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        return cls(**tuples)

    def threshold(self, false_alarms: float) -> float | None:
        """Score q that the share `false_alarms` of held-out images exceeds; None without their scores."""
        if not self.known_scores:
            return None
        return float(
            np.interp(1 - false_alarms, np.linspace(0, 1, len(self.known_scores)), self.known_scores)
        )

    def detection_rate(self, false_alarms: float) -> float | None:
        """Expected share of images of unseen categories that are called unknown; None if it is not known."""
        q = self.threshold(false_alarms)
        if q is None or not self.hidden_scores:
            return None
        below = np.interp(q, self.hidden_scores, np.linspace(0, 1, len(self.hidden_scores)))
        return 1 - float(below)

    def ratios(self, fitted: Tensor) -> Tensor:
        """Ratio a (n,) of images; `fitted` (n,): the metric was fitted with their label."""
        return torch.where(fitted, self.unseen, self.unseen if self.unlabelled is None else self.unlabelled)


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


def calibrate(members: Members, metric: ClassMetric, count: int) -> Calibration:
    """Calibrate distances of `metric`, which was fitted on `members` of `count` categories."""
    step = max(1, -(-len(members.features) // MAX_SAMPLES))
    features, index = members.features[::step], members.positions[::step]
    trusted, fitted = members.trusted[::step], members.fitted[::step]
    if not bool(trusted.any()):
        trusted = torch.ones_like(trusted)
    sample = Members(features, index, trusted, fitted)
    n_components = metric.projection.shape[1]
    folds = [fold for number in range(N_FOLDS) if (fold := _fold(sample, number, count, n_components))]
    if not folds:
        return Calibration()
    inside = metric.leave_one_out_distances(metric.transform(features), index, count)
    unseen, unlabelled = (
        _ratio(torch.cat([fold.own[fold.fitted == label] for fold in folds]), inside[fitted == label])
        for label in (True, False)
    )
    calibration = Calibration(unseen, _temperature(folds), unlabelled)
    spread = _spread(calibration.ratios(fitted) * inside, index, count)
    if spread is None or sum(len(fold.answers) for fold in folds) < MIN_IMAGES:
        return calibration
    known = [spread.scores(fold.distances, fold.present) for fold in folds]
    hidden = [spread.scores(fold.hidden_distances, fold.present) for fold in folds]
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
    centroids = metric.centroids(metric.transform(features[rest]), columns[rest], len(present)).double()
    return _Fold(
        distances=torch.cdist(metric.transform(features[held_out]).double(), centroids),
        answers=columns[held_out],
        trusted=members.trusted[held_out],
        fitted=fitted[held_out],
        hidden_distances=torch.cdist(metric.transform(features[hidden]).double(), centroids),
        present=present,
    )


def fit_open_set(
    points: Tensor,
    positions: Tensor,
    fitted: Tensor,
    metric: ClassMetric,
    calibration: Calibration,
    count: int,
    false_alarms: float = FALSE_ALARMS,
) -> OpenSet:
    """Fit a classifier of `count` categories to points (n, d) of the metric.

    `positions` (n,) are their categories, and `fitted` (n,) says whether the metric was fitted with them.
    About the share `false_alarms` of images of these categories will be called unknown.
    """
    distances = calibration.ratios(fitted) * metric.leave_one_out_distances(points, positions, count)
    centroids = metric.centroids(points, positions, count)
    return with_radii(centroids, distances, positions, calibration, false_alarms)


def with_radii(
    centroids: Tensor,
    distances: Tensor,
    positions: Tensor,
    calibration: Calibration,
    false_alarms: float = FALSE_ALARMS,
) -> OpenSet:
    """Fit the radii of categories with `centroids` (K, d) to the distances a d_i (n,) of images; see `fit_open_set`."""
    q = calibration.threshold(false_alarms)
    radii = _radii(distances, positions, len(centroids), q, false_alarms)
    return OpenSet(centroids, radii, calibration.temperature)


def check_false_alarms(rate: float) -> float:
    """Return the rate of false alarms, or raise a `CampError` if it is none that can be set."""
    if not 0 < rate <= MAX_FALSE_ALARMS:
        raise CampError(
            f"The rate of false alarms is a share above 0 and up to {MAX_FALSE_ALARMS:g}, such as 0.05; "
            f"{rate:g} is not."
        )
    return rate


@dataclass(frozen=True)
class _Spread:
    """Distances of the images of each category to its centroid."""

    mean: Tensor
    """m (K,) float64"""
    deviation: Tensor
    """s (K,), above 0"""

    def scores(self, distances: Tensor, present: Tensor) -> Tensor:
        """Scores (n,) of images at distances (n, k) to the centroids of the categories `present` (k,)."""
        return ((distances - self.mean[present]) / self.deviation[present]).amin(dim=1)


def _hidden_categories(fold: int, count: int) -> Tensor:
    """Which of `count` categories (K,) a fold hides; no category is hidden twice."""
    if count < MIN_CATEGORIES:
        return torch.zeros(count, dtype=torch.bool)
    return torch.arange(count) % round(1 / HIDDEN_PER_FOLD) == fold


def _quantiles(scores: list[Tensor]) -> tuple[float, ...]:
    """N_QUANTILES quantiles of scores (n,), of all folds together; empty without any."""
    values = torch.cat([torch.empty(0, dtype=torch.float64), *scores])
    if not len(values):
        return ()
    found = torch.quantile(values, torch.linspace(0, 1, N_QUANTILES, dtype=torch.float64))
    return tuple(found.tolist())


def _ratio(outside: Tensor, inside: Tensor) -> float:
    """Ratio of the COVERAGE quantiles of held-out and of other distances, NaN where unknown."""
    outside, inside = outside[~outside.isnan()], inside[~inside.isnan()]
    if not len(outside) or not len(inside):
        return 1.0
    seen = float(torch.quantile(inside, COVERAGE))
    lowest = MIN_RATIO if len(outside) >= MIN_IMAGES else 1.0
    return max(lowest, float(torch.quantile(outside, COVERAGE)) / seen) if seen else 1.0


def _radii(distances: Tensor, positions: Tensor, count: int, q: float | None, false_alarms: float) -> Tensor:
    """Radii (K,) of leave-one-out distances (n,); infinite if no category has two images.

    Without q it is estimated from the distances, as the score of an image in its own category.
    """
    spread = _spread(distances, positions, count)
    if spread is None:
        return torch.full((count,), math.inf)
    if q is None:
        own = ((distances - spread.mean[positions]) / spread.deviation[positions])[~distances.isnan()]
        q = float(torch.quantile(own[:: max(1, -(-len(own) // MAX_SAMPLES))], 1 - false_alarms))
    return torch.maximum(spread.mean + q * spread.deviation, 1e-3 * spread.mean).float()


def _spread(distances: Tensor, positions: Tensor, count: int) -> _Spread | None:
    """Mean and deviation by category of distances (n,), NaN where unknown; None if all are."""
    valid = ~distances.isnan()
    if not bool(valid.any()):
        return None
    d, index = distances[valid], positions[valid]
    n = torch.bincount(index, minlength=count).double()

    def shrunk_means(values: Tensor) -> Tensor:
        """Means by category (K,), shrunk to the mean of all."""
        sums = torch.zeros(count, dtype=torch.float64).index_add_(0, index, values)
        return (sums + PRIOR * values.mean()) / (n + PRIOR)

    mean = shrunk_means(d).clamp_min(1e-12)
    deviation = shrunk_means((d - mean[index]).square()).sqrt()
    return _Spread(mean, torch.maximum(deviation, 1e-3 * mean))  # equal images have no deviation


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
