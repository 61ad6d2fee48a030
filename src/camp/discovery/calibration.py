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
    r_k        = m_k + q s_k,    q: the COVERAGE quantile of (a d_i - m_k) / s_k over all images

so that about 1 - COVERAGE of the images of a category are rejected as unknown.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from camp.core.types import UNLABELLED
from camp.discovery.class_metric import MAX_SAMPLES, ClassMetric
from camp.discovery.open_set import OpenSet

COVERAGE = 0.95
"""Share of the images of a category that lie within its radius."""
PRIOR = 10
N_FOLDS = 4
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
    labels = index.masked_fill(~fitted, UNLABELLED)
    if not bool(trusted.any()):
        trusted = torch.ones_like(trusted)
    folds, n_components = torch.arange(len(index)) % N_FOLDS, metric.projection.shape[1]
    outside = torch.full((len(index),), math.nan, dtype=torch.float64)
    squares, answers = [], []
    for fold in range(N_FOLDS):
        rest = folds != fold
        present = index[rest].unique()
        held_out = (folds == fold) & torch.isin(index, present)
        if not bool(held_out.any()):
            continue
        refitted = ClassMetric.fit(features[rest], labels[rest], n_components)
        columns = torch.searchsorted(present, index)
        centroids = refitted.centroids(refitted.transform(features[rest]), columns[rest], len(present))
        d = torch.cdist(refitted.transform(features[held_out]).double(), centroids.double())
        outside[held_out] = d.gather(1, columns[held_out, None])[:, 0]
        used = trusted[held_out]
        squares.append(d[used].square())
        answers.append(columns[held_out][used])
    inside = metric.leave_one_out_distances(metric.transform(features), index, count)
    if bool(outside.isnan().all()):
        return Calibration()
    unseen, unlabelled = (_ratio(outside[rows], inside[rows]) for rows in (fitted, ~fitted))
    return Calibration(unseen, _temperature(squares, answers), unlabelled)


def fit_open_set(
    points: Tensor,
    positions: Tensor,
    fitted: Tensor,
    metric: ClassMetric,
    calibration: Calibration,
    count: int,
) -> OpenSet:
    """Fit a classifier of `count` categories to points (n, d) of the metric.

    `positions` (n,) are their categories, and `fitted` (n,) says whether the metric was fitted with them.
    """
    distances = calibration.ratios(fitted) * metric.leave_one_out_distances(points, positions, count)
    centroids = metric.centroids(points, positions, count)
    return OpenSet(centroids, _radii(distances, positions, count), calibration.temperature)


def _ratio(outside: Tensor, inside: Tensor) -> float:
    """Ratio of the COVERAGE quantiles of held-out and of other distances, NaN where unknown."""
    outside, inside = outside[~outside.isnan()], inside[~inside.isnan()]
    if not len(outside) or not len(inside):
        return 1.0
    seen = float(torch.quantile(inside, COVERAGE))
    lowest = MIN_RATIO if len(outside) >= MIN_IMAGES else 1.0
    return max(lowest, float(torch.quantile(outside, COVERAGE)) / seen) if seen else 1.0


def _radii(distances: Tensor, positions: Tensor, count: int) -> Tensor:
    """Radii (K,) of leave-one-out distances (n,); infinite if no category has two images."""
    valid = ~distances.isnan()
    if not bool(valid.any()):
        return torch.full((count,), math.inf)
    d, index = distances[valid], positions[valid]
    n = torch.bincount(index, minlength=count).double()

    def shrunk_means(values: Tensor) -> Tensor:
        """Means by category (K,), shrunk to the mean of all."""
        sums = torch.zeros(count, dtype=torch.float64).index_add_(0, index, values)
        return (sums + PRIOR * values.mean()) / (n + PRIOR)

    mean = shrunk_means(d)
    deviation = shrunk_means((d - mean[index]).square()).sqrt()
    deviation = torch.maximum(deviation, 1e-3 * mean.clamp_min(1e-12))  # equal images have no deviation
    standardised = (d - mean[index]) / deviation[index]
    q = torch.quantile(standardised[:: max(1, -(-len(standardised) // MAX_SAMPLES))], COVERAGE)
    return (mean + q * deviation).float()


def _temperature(squares: list[Tensor], answers: list[Tensor]) -> float:
    """Maximum-likelihood T for squared distances (n, K) and answers (n,), a pair per fold."""
    pairs = [(d, target) for d, target in zip(squares, answers) if len(target) and d.shape[1] > 1]
    scale = float(torch.cat([d.flatten() for d, _ in pairs]).mean()) if pairs else 0.0
    if scale == 0.0:
        return 1.0

    def loss(log_temperature: float) -> float:
        t = math.exp(log_temperature)
        return sum(float(F.cross_entropy(-d / t, target, reduction="sum")) for d, target in pairs)

    low, high = math.log(scale) - 9, math.log(scale) + 3
    return math.exp(minimize_scalar(loss, bounds=(low, high), method="bounded").x)
