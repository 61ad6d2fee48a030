"""Principal components of whitened features, and the scale of points."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.discovery.class_scatter import WithinClassScatter

UNIT_LENGTH_FROM = 32
"""Features of more dimensions are compared by their direction."""


@dataclass(frozen=True)
class Components:
    """Principal components of whitened features."""

    scores: Tensor
    """(n, d) float32 coordinates of the features, centred."""
    projection: Tensor
    """(D, d): scores = features @ projection - offset, up to rounding."""
    offset: Tensor
    """(d,)"""

    def points(self, n_components: int, unit: bool) -> Tensor:
        """Points (n, d) of the first `n_components`, scaled to unit length or to mean length 1."""
        p = self.scores[:, :n_components]
        return F.normalize(p, dim=1) if unit else p / mean_length(p)

    def points_of(self, features: Tensor, n_components: int, unit: bool) -> Tensor:
        """Points (m, d) of other features (m, D)."""
        p = features @ self.projection[:, :n_components] - self.offset[:n_components]
        return F.normalize(p, dim=1) if unit else p / mean_length(self.scores[:, :n_components])

    def expected_points(
        self, features: Tensor, counts: Tensor, scatter: WithinClassScatter, n_components: int, unit: bool
    ) -> tuple[Tensor, float]:
        """Points (m, d) of means of several images, and the sum of squared distances of the points of these images.

        The n images of which a feature is the mean have p = mean + e, and E |e|^2 = v follows from the scatter. Their
        unit points p / |p| have about the mean p / sqrt(|p|^2 + v (1 - 1 / n)).

        Args:
            features: (m, D) means of images.
            counts: (m,) numbers of images n.
            scatter: Of the features; v is its part in the components.
        """
        projection = self.projection[:, :n_components]
        p = features @ projection - self.offset[:n_components]
        variance = scatter.variance(projection)
        if unit:
            lost = variance * (1 - 1 / counts)
            scale = (p.square().sum(dim=1) + lost).clamp_min(1e-12).rsqrt()
        else:
            scale = (1 / mean_length(self.scores[:, :n_components])).expand(len(p))
        return p * scale[:, None], float(((counts - 1) * scale.square()).sum()) * variance


def fit_components(
    features: Tensor,
    scatter: WithinClassScatter,
    n_components: int,
    shrinkage: float,
    total: Tensor | None = None,
) -> Components:
    """Whiten features (n, D) by the shrunk scatter, and fit at most `n_components` principal components.

    `total` is their `total_scatter`, which several fits to the same features can share.
    """
    whitening = scatter.whitening(shrinkage)
    total = total_scatter(features) if total is None else total
    axes = _leading_eigenvectors(whitening.T @ total @ whitening, min(n_components, *features.shape))
    projection = whitening @ axes
    offset = features.mean(dim=0) @ projection
    return Components(features @ projection - offset, projection, offset)


def total_scatter(x: Tensor) -> Tensor:
    """Scatter (D, D) of x (n, D) around its mean."""
    centred = x - x.mean(dim=0)
    return centred.T @ centred


def principal_axes(x: Tensor, n_axes: int) -> Tensor:
    """First principal axes (D, n_axes) of x (n, D), by decreasing variance.

    By the scatter matrix in torch, which is several times faster than scikit-learn's PCA here.
    """
    return _leading_eigenvectors(total_scatter(x.double()), n_axes).to(x.dtype)


def _leading_eigenvectors(matrix: Tensor, count: int) -> Tensor:
    """Eigenvectors (D, count) of a symmetric matrix (D, D) with the greatest eigenvalues, descending."""
    try:
        vectors: Tensor = torch.linalg.eigh(matrix).eigenvectors
    except RuntimeError:  # LinAlgError: LAPACK's float32 does not converge for some matrices of low rank
        vectors = torch.linalg.eigh(matrix.double()).eigenvectors.to(matrix.dtype)
    return vectors.flip(1)[:, :count].contiguous()


def compares_directions(dim: int) -> bool:
    """Whether features of `dim` dimensions are compared by direction alone."""
    return dim > UNIT_LENGTH_FROM


def mean_length(x: Tensor) -> Tensor:
    """Mean norm of the rows of x (n, d), above 0."""
    length: Tensor = x.norm(dim=1).mean()
    return length.clamp_min(1e-12)


def normalized(x: Tensor, unit: bool) -> Tensor:
    """Scale the rows of x (n, d) to unit length, if vectors are compared by direction."""
    return F.normalize(x, dim=1) if unit else x
