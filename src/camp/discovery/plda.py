"""Probabilistic linear discriminant analysis (PLDA): one Gaussian model of known, remembered and novel categories.

It is used for features of few dimensions, whose length carries information, and for others where it is better than
`directional`.

In coordinates in which the covariance between categories is diagonal and that within a category is isotropic,

    mu_k ~ N(m, diag b)           mean of category k
    x    ~ N(mu_k, s I)           image of category k

(Ioffe, ECCV 2006; the two-covariance model of Brummer and de Villiers, Odyssey 2010). n images of a category with the
sum S give the posterior of its mean and the predictive density of its next image:

    v = 1 / (1 / b + n / s),      mu = v (m / b + S / s),      x ~ N(mu, diag(s + v))

A category with few images thus has a wide predictive density and a mean near m, one with many images is N(S / n, s I),
and one without any is the density of an unseen category, N(m, diag(b + s)).
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from camp.discovery.category_statistics import Assigned, Statistics
from camp.discovery.class_scatter import class_sums

MIN_MEANS = 4
"""Number of classes from which on the variance between categories is estimated by their means."""
_LEAST_BETWEEN = 0.05
"""Lower bound of b relative to s: the few means of known classes may agree in a direction by chance."""


@dataclass(frozen=True)
class Posterior:
    """Posterior of the means of K categories."""

    mean: Tensor
    """mu (K, d)"""
    variance: Tensor
    """v (K, d)"""


@dataclass(frozen=True)
class Plda:
    """Distribution of categories and of their images."""

    mean: Tensor
    """m (d,), the mean of categories."""
    between: Tensor
    """b (d,), their variance."""
    within: float
    """s, the variance of the images of a category."""
    trusted_at_start: ClassVar[bool] = True
    """The variance of labelled images is kept in the first iterations of a mixture."""

    @classmethod
    def fit(
        cls,
        points: Tensor,
        index: Tensor,
        n_classes: int,
        weights: Tensor | None = None,
        spread: float = 0.0,
        others: Tensor | None = None,
    ) -> Self:
        """Estimate the model by the moments of points (n, d) of classes `index` (n,), 0 .. n_classes - 1.

        Args:
            weights: (n,) number of images of which each point is the mean; by default 1.
            spread: Sum over all images of their squared distances to the point that stands for them.
            others: (m, d) points of unknown classes. With fewer than MIN_MEANS classes, whose means tell little about
                the variance between categories, it is what the variance of all points has beyond that of images.
        """
        weights = points.new_ones(len(points)) if weights is None else weights
        counts = torch.bincount(index, weights, n_classes).to(points.dtype)
        sums = class_sums(weights[:, None] * points, index, n_classes)
        means = (sums / counts[:, None]).to(points.dtype)
        degrees_of_freedom = max(float(weights.sum()) - n_classes, 1) * points.shape[1]
        around = float((weights[:, None] * (points - means[index]).square()).sum()) + spread
        within = around / degrees_of_freedom
        within = (
            within or float(points.var(correction=0)) or 1.0
        )  # classes of one image each, or of equal images
        if n_classes >= MIN_MEANS:
            between = means.var(dim=0) - within * float((1 / counts).mean())  # less the noise of the means
        else:
            everything = points if others is None else torch.cat([points, others])
            between = everything.var(dim=0, correction=0) - within
        return cls(means.mean(dim=0), between.clamp_min(_LEAST_BETWEEN * within), within)

    def with_within(self, within: float) -> Self:
        """The model with another variance of the images of a category."""
        return replace(self, within=within)

    def posterior(self, counts: Tensor, sums: Tensor) -> Posterior:
        """Posterior of the means of categories with `counts` (K,) images that sum to `sums` (K, d)."""
        variance = 1 / (1 / self.between + counts[:, None] / self.within)
        return Posterior(variance * (self.mean / self.between + sums / self.within), variance)

    def log_density(self, points: Tensor, counts: Tensor, sums: Tensor) -> Tensor:
        """Log-density (n, K) of points (n, d) as the next image of each category, with `counts` (K,) and `sums` (K, d)."""
        return self.log_predictive(points, self.posterior(counts, sums))

    def log_second(self, points: Tensor, firsts: Tensor) -> Tensor:
        """Log-density (n, m) of points (n, d) as the second image of categories with the images `firsts` (m, d)."""
        return self.log_density(points, points.new_ones(len(firsts)), firsts)

    def refit(self, assigned: Assigned, of_all: Statistics) -> Self:
        """Estimate s by the squared distances of assigned points to the means of their categories.

        It is at most doubled or halved. `of_all` are the categories with these points.
        """
        posterior = self.posterior(of_all.counts, of_all.sums)
        distances = assigned.squared_distances(posterior.mean)
        uncertainty = float(assigned.counts @ posterior.variance.sum(dim=1))
        n, d = float(assigned.counts.sum()), len(self.mean)
        ratio = (distances + uncertainty) / (max(n, 1e-12) * d) / self.within
        return self.with_within(self.within * min(max(ratio, 0.5), 2.0))

    def log_predictive(self, points: Tensor, posterior: Posterior) -> Tensor:
        """Log-density (n, K) of points (n, d) as the next image of each category, up to a constant."""
        variance = self.within + posterior.variance
        precision, mean = 1 / variance, posterior.mean
        of_category = -0.5 * (mean.square() * precision + variance.log()).sum(dim=1)
        found = torch.addmm(of_category, points.square(), precision.T, alpha=-0.5)
        return found.addmm_(points, (mean * precision).T)

    def log_unseen(self, points: Tensor) -> Tensor:
        """Log-density (n,) of points (n, d) as the first image of a category, up to the same constant."""
        none = points.new_zeros(1)
        return self.log_predictive(points, self.posterior(none, none[:, None]))[:, 0]
