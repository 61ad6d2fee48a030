"""The within-class scatter: how pictures of one class differ, pooled over all labelled classes so far.

    T = sum_c sum_{i in c} (u_i - mu_c)(u_i - mu_c)^T        W = T / (pictures - classes)

T is all that is kept of the pictures, D x D numbers however many there were. When the tip changes and psi(u) = A u + b
predicts the new features up to an error e, the scatter follows as the centroids do:

    T <- A T A^T + (pictures - classes) Cov(e)

since what psi can not predict spreads the pictures of a class as well.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from camp.discovery.class_metric import means_of


@dataclass(frozen=True)
class Scatter:
    """T and what it was made of."""

    total: Tensor
    """T (D, D) float64."""
    freedom: int
    """Pictures less classes."""

    @classmethod
    def none(cls, dim: int) -> Self:
        """Of no pictures yet."""
        return cls(torch.zeros(dim, dim, dtype=torch.float64), 0)

    def with_classes(self, u: Tensor, labels: Tensor) -> "Scatter":
        """The same and the pictures u (n, D) of classes `labels` (n,)."""
        classes, own = labels.unique(return_inverse=True)
        residuals = u - means_of(u, own, len(classes)).to(u.dtype)[own]
        return Scatter(self.total + (residuals.T @ residuals).double(), self.freedom + len(u) - len(classes))

    def carried(self, weight: Tensor, error: Tensor) -> "Scatter":
        """In the space of psi(u) = `weight` u + b, which leaves differences of covariance `error` (D, D)."""
        weight, error = weight.double(), error.double()
        return Scatter(weight @ self.total @ weight.T + self.freedom * error, self.freedom)

    def whitening(self, shrinkage: float) -> Tensor:
        """P (D, D) float32: distances of u P are Mahalanobis distances of S = (1 - s) W + s tr(W) / D I.

        P = L^{-T} of the Cholesky factor S = L L^T, which is S^{-1/2} up to a rotation and much cheaper. The identity
        where no two pictures that differ ever shared a label.

        >>> scatter = Scatter.none(2).with_classes(torch.tensor([[0.0, 0.0], [4.0, 0.0]]), torch.tensor([0, 0]))
        >>> scatter.whitening(0.5).diagonal()  # variance 8 and 0, with half of their mean in its place: 6 and 2
        tensor([0.4082, 0.7071])
        """
        identity = torch.eye(len(self.total))
        if self.freedom < 1 or float(self.total.trace()) <= 0:
            return identity
        within = (self.total * (len(self.total) / self.total.trace())).float()  # of mean variance 1
        # The least eigenvalue is s, so single precision will do.
        factor = torch.linalg.cholesky((1 - shrinkage) * within + shrinkage * identity)
        scale = (len(self.total) * self.freedom / self.total.trace()).sqrt().float()
        return scale * torch.linalg.solve_triangular(factor, identity, upper=False).T
