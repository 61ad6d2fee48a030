"""Categories as directions: von Mises-Fisher densities of one concentration, for points of unit length.

With the direction c_k of category k, a unit vector, and r, the expected cosine of an image with the direction of its
category,

    x ~ N(r c_k, (1 - r^2) / d I),    which for unit x has the form of vMF(c_k, kappa),    kappa = r d / (1 - r^2)

The direction is that of the sum of the category's images. Densities are given relative to that of the image of an unseen
category, which has any direction, N(0, I / d):

    log p(x | k) = kappa (cos(x, c_k) - r) - d/2 log(1 - r^2)

The same kappa is used for categories of few and of many images. The predictive density of few images is wider (`plda`), but
the metric was fitted to the labelled images: all others are farther from the known categories than these let expect, and
where sizes differ much, the wide densities of the smallest categories take them.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch.nn.functional as F
from torch import Tensor

from camp.discovery.category_statistics import Assigned, Statistics

_LEAST, _GREATEST = 0.05, 0.95
"""Bounds of r^2."""


@dataclass(frozen=True)
class Directions:
    """Density of images around the directions of categories."""

    dim: int
    """d"""
    similarity: float
    """r^2, the expected cosine of two images of a category."""
    trusted_at_start: ClassVar[bool] = False
    """The first value is rough, and estimated again from the first assignments on."""

    @classmethod
    def start(cls, points: Tensor, sums: Tensor) -> Self:
        """Make the densities before anything is assigned, of points (n, d) and the sums (K, d) of known categories.

        Many of the points may be of other categories, so that r^2 is too low, and densities too wide, at first.
        """
        if not len(points):
            return cls(sums.shape[1], _GREATEST)
        best = (points @ F.normalize(sums, dim=1).T).amax(dim=1)
        return cls(sums.shape[1], _bounded(float(best.square().mean())))

    def log_density(self, points: Tensor, counts: Tensor, sums: Tensor) -> Tensor:
        """Log-density (n, K) of points (n, d) in categories with the sums (K, d), relative to an unseen category."""
        return self._log_density(points @ F.normalize(sums, dim=1).T, math.sqrt(self.similarity))

    def log_unseen(self, points: Tensor) -> Tensor:
        """Log-density (n,) of points (n, d) as the first image of a category."""
        return points.new_zeros(len(points))

    def log_second(self, points: Tensor, firsts: Tensor) -> Tensor:
        """Log-density (n, m) of points (n, d) as the second image of categories with the images `firsts` (m, d)."""
        return self._log_density(points @ firsts.T, self.similarity)

    def refit(self, assigned: Assigned, of_all: Statistics) -> Self:
        """Estimate r^2 by the mean cosine of each assigned point with the other images of its categories.

        `of_all` are the categories with these points.
        """
        pairs = assigned.pairs(of_all.counts)
        if pairs <= 0:
            return self
        return replace(self, similarity=_bounded(assigned.cosines(of_all.sums) / pairs))

    def _log_density(self, cosines: Tensor, expected: float) -> Tensor:
        noise = 1 - expected**2
        return expected * self.dim / noise * (cosines - expected) - self.dim / 2 * math.log(noise)


def _bounded(similarity: float) -> float:
    return min(max(similarity, _LEAST), _GREATEST)
