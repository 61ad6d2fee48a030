"""Calibrate distances to centroids on held-out images: acceptance radii and temperature.

An image pulls the centroid of its category towards itself and takes part in fitting the metric, so
its own distance says little about images to come. When a batch is learned, `held_out_calibration` splits
the images into N_FOLDS folds and measures each fold with a metric and centroids of the others. With
these distances D_i, and d_i the distance of image i to the centroid of the others of its category
under the metric of all:

    T    minimises  -sum_i log p(k_i | p_i),    p(k | .) as in `open_set`
    a    = COVERAGE quantile of D_i / COVERAGE quantile of d_i

a is far above 1 for images whose label the metric was fitted with. It is below 1 for the others:
principal components capture variation of the images they were fitted on, labelled or not. So there
is one ratio for each. Whenever categories change, `fit_regions` fits the radii of a classifier:

    m_k, s_k   mean and standard deviation of a d_i in category k, shrunk to those of all images by PRIOR images
    r_k        = m_k + q s_k

so that an image is unknown where its score min_k (d_k - m_k) / s_k is above q. q is the quantile of
the scores of held-out images that leaves the wanted rate of false alarms. In each fold some whole
categories are hidden as well: neither the metric nor the centroids know their images, and the share
of these with a score above q is the rate at which images of unseen categories are detected.
Quantiles of both distributions are kept, so that any rate can be set later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from camp.core.errors import CampError
from camp.core.types import FALSE_ALARMS
from camp.discovery.class_metric import MAX_SAMPLES, ClassMetric, Floats, Index

MAX_FALSE_ALARMS = 0.5
PRIOR = 10

Flags = npt.NDArray[np.bool_]


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
    """Quantiles of the scores of images of hidden categories; empty where there are few of them."""

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

    def ratios(self, fitted: Flags) -> Floats:
        """Ratio a (n,) of images; `fitted` (n,): the metric was fitted with their label."""
        unlabelled = self.unseen if self.unlabelled is None else self.unlabelled
        ratios: Floats = np.where(fitted, self.unseen, unlabelled)
        return ratios


@dataclass(frozen=True)
class CategoryRegions:
    """The points that belong to each category, as `open_set` classifies them."""

    centroids: Floats
    """(K, d)"""
    radii: Floats
    """(K,)"""
    temperature: float
    """T"""


def fit_regions(
    points: Floats,
    positions: Index,
    fitted: Flags,
    metric: ClassMetric,
    calibration: Calibration,
    count: int,
    false_alarms: float = FALSE_ALARMS,
) -> CategoryRegions:
    """Fit the regions of `count` categories to points (n, d) of the metric.

    `positions` (n,) are their categories, and `fitted` (n,) says whether the metric was fitted with them.
    About the share `false_alarms` of images of these categories will be called unknown.
    """
    distances = calibration.ratios(fitted) * metric.leave_one_out_distances(points, positions, count)
    centroids = metric.centroids(points, positions, count)
    return with_radii(centroids, distances, positions, calibration, false_alarms)


def with_radii(
    centroids: Floats,
    distances: Floats,
    positions: Index,
    calibration: Calibration,
    false_alarms: float = FALSE_ALARMS,
) -> CategoryRegions:
    """Fit the radii of categories with `centroids` (K, d) to the distances a d_i (n,) of images; see `fit_regions`."""
    q = calibration.threshold(false_alarms)
    radii = _radii(distances, positions, len(centroids), q, false_alarms)
    return CategoryRegions(centroids, radii, calibration.temperature)


def check_false_alarms(rate: float) -> float:
    """Return the rate of false alarms, or raise a `CampError` if it is none that can be set."""
    if not 0 < rate <= MAX_FALSE_ALARMS:
        raise CampError(
            f"The rate of false alarms is a share above 0 and up to {MAX_FALSE_ALARMS:g}, such as 0.05; "
            f"{rate:g} is not."
        )
    return rate


@dataclass(frozen=True)
class Spread:
    """Distances of the images of each category to its centroid."""

    mean: Floats
    """m (K,)"""
    deviation: Floats
    """s (K,), above 0"""

    @classmethod
    def of(cls, distances: Floats, positions: Index, count: int) -> Self | None:
        """Spread of distances (n,), NaN where unknown, of categories `positions` (n,); None if all are unknown."""
        valid = ~np.isnan(distances)
        if not valid.any():
            return None
        d, index = distances[valid], positions[valid]
        n = np.bincount(index, minlength=count)

        def shrunk_means(values: Floats) -> Floats:
            """Means by category (K,), shrunk to the mean of all."""
            sums = np.bincount(index, values, minlength=count)
            means: Floats = (sums + PRIOR * values.mean()) / (n + PRIOR)
            return means

        mean = np.maximum(shrunk_means(d), 1e-12)
        deviation = np.sqrt(shrunk_means(np.square(d - mean[index])))
        return cls(mean, np.maximum(deviation, 1e-3 * mean))  # equal images have no deviation

    def scores(self, distances: Floats, present: Index) -> Floats:
        """Scores (n,) of images at distances (n, k) to the centroids of the categories `present` (k,)."""
        scores: Floats = ((distances - self.mean[present]) / self.deviation[present]).min(axis=1)
        return scores


def _radii(distances: Floats, positions: Index, count: int, q: float | None, false_alarms: float) -> Floats:
    """Radii (K,) of leave-one-out distances (n,); infinite if no category has two images.

    Without q it is estimated from the distances, as the score of an image in its own category.
    """
    spread = Spread.of(distances, positions, count)
    if spread is None:
        return np.full(count, np.inf, dtype=np.float32)
    if q is None:
        own = ((distances - spread.mean[positions]) / spread.deviation[positions])[~np.isnan(distances)]
        q = float(np.quantile(own[:: max(1, -(-len(own) // MAX_SAMPLES))], 1 - false_alarms))
    radii: Floats = np.maximum(spread.mean + q * spread.deviation, 1e-3 * spread.mean)
    return radii.astype(np.float32)
