"""Pooled within-class scatter of labelled features, and the whitening that it defines.

    T = sum_c sum_{i in c} (x_i - mu_c)(x_i - mu_c)^T        W = T / (n_images - n_classes)

T is the only statistic that is kept, D x D numbers for any number of images. When the network
changes and the affine map A x + b predicts the new features up to an error e, the scatter is
carried into the new space like the centroids, and the covariance of the error, which spreads the
images of a class as well, is added:

    T <- A T A^T + (n_images - n_classes) Cov(e)
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

_CHUNK = 8192


@dataclass(frozen=True)
class WithinClassScatter:
    """Scatter of images around the mean of their class, summed over classes and tasks."""

    total: Tensor
    """T (D, D) float64."""
    degrees_of_freedom: int
    """Number of images minus number of classes."""
    dim: int
    """D, also where the scatter was projected to fewer dimensions."""

    @classmethod
    def empty(cls, dim: int) -> Self:
        """Scatter of no image."""
        return cls(torch.zeros(dim, dim, dtype=torch.float64), 0, dim)

    def add(self, features: Tensor, labels: Tensor) -> "WithinClassScatter":
        """Scatter with more classes: `features` (n, D) of the classes `labels` (n,)."""
        classes, index = labels.unique(return_inverse=True)
        residuals = features - class_means(features, index, len(classes)).to(features.dtype)[index]
        total = self.total + (residuals.T @ residuals).double()
        return replace(
            self, total=total, degrees_of_freedom=self.degrees_of_freedom + len(features) - len(classes)
        )

    def carry(self, weight: Tensor, error: Tensor) -> "WithinClassScatter":
        """Scatter in the space of the affine map of `weight` A (D, D); `error` is Cov(e) (D, D)."""
        weight, error = weight.double(), error.double()
        total = weight @ self.total @ weight.T + self.degrees_of_freedom * error
        return replace(self, total=total)

    def project(self, axes: Tensor) -> "WithinClassScatter":
        """Scatter of features x A, with `axes` A (D, r) that hold nearly all variance."""
        return replace(self, total=axes.double().T @ self.total @ axes.double())

    def variance(self, projection: Tensor) -> float:
        """Mean squared distance of images x B from the mean of their class, for `projection` B (D, d)."""
        b = projection.double()
        return float((b * (self.total @ b)).sum()) / max(self.degrees_of_freedom, 1)

    def whitening(self, shrinkage: float) -> Tensor:
        """Matrix P such that distances of x P are Mahalanobis distances of the shrunk scatter.

            S = (1 - s) W + s tr(W) / D I = L L^T,      P = L^{-T}

        The Cholesky factor gives S^{-1/2} up to a rotation at a fraction of the cost.
        P (D, D) is float32, and the identity if no class has two images that differ.

        >>> scatter = WithinClassScatter.empty(2).add(torch.tensor([[0.0, 0.0], [4.0, 0.0]]), torch.tensor([0, 0]))
        >>> scatter.whitening(0.5).diagonal()  # variances 8 and 0, shrunk halfway to their mean: 6 and 2
        tensor([0.4082, 0.7071])
        """
        identity = torch.eye(len(self.total))
        if self.degrees_of_freedom < 1 or float(self.total.trace()) <= 0:
            return identity
        within = (self.total * (self.dim / self.total.trace())).float()  # mean variance 1
        # The smallest eigenvalue is at least s, so single precision suffices.
        factor = torch.linalg.cholesky((1 - shrinkage) * within + shrinkage * identity)
        scale = (self.dim * self.degrees_of_freedom / self.total.trace()).sqrt().float()
        inverse: Tensor = torch.linalg.solve_triangular(factor, identity, upper=False)
        return scale * inverse.T


def class_means(x: Tensor, index: Tensor, n_classes: int) -> Tensor:
    """Mean (K, D) float64 of each class, for features x (n, D) of classes `index` (n,) that all occur."""
    return class_sums(x, index, n_classes) / torch.bincount(index, minlength=n_classes)[:, None]


def class_sums(x: Tensor, index: Tensor, n_classes: int, onto: Tensor | None = None) -> Tensor:
    """Sum of each class, (K, D) float64, in chunks to save memory; sums `onto` (K, D) are added to in place."""
    sums = onto
    if sums is None:
        sums = torch.zeros(n_classes, x.shape[1], dtype=torch.float64, device=x.device)
    for rows, classes in zip(x.split(_CHUNK), index.split(_CHUNK)):
        sums.index_add_(0, classes, rows.double())
    return sums
