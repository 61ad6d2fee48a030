"""Metric learned from labelled classes, in which unseen classes are compact as well.

How images of one class differ (pose, light, background) tells how images of any class differ. With
features u, whitening P of the pooled within-class scatter (`class_scatter`) and V the first d
principal axes of the whitened features:

    y = u P                       variation within a class has the same size in all directions
    p = (y - mean y) V            scaled to unit length, or to mean length 1

Euclidean distances between points p are the metric. Features of more than UNIT_LENGTH_FROM
dimensions are compared by their direction alone and scaled to unit length; fewer dimensions keep
their length, which carries information.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.types import UNLABELLED
from camp.discovery.class_scatter import WithinClassScatter, class_means, class_sums

SHRINKAGE = 0.6
"""Default shrinkage of the scatter. A small value overfits: images that the metric was fitted on
lie much nearer to their centroid than other images of their class."""
UNIT_LENGTH_FROM = 32
MAX_SAMPLES = 20_000
"""Number of images that a metric is fitted on; more do not change it."""
_CHUNK = 8192


@dataclass(frozen=True)
class ClassMetric:
    """Fitted metric: points (n, d) = scale(scale(x - origin) @ projection - offset)."""

    origin: Tensor
    """(D,) mean of the features."""
    projection: Tensor
    """(D, d) whitening times principal axes, by decreasing variance."""
    offset: Tensor
    """(d,) projection of the mean."""
    unit: bool
    """Whether vectors are scaled to unit length before and after the projection."""

    @classmethod
    def fit(cls, features: Tensor, labels: Tensor, n_components: int, shrinkage: float = SHRINKAGE) -> Self:
        """Fit at most `n_components` to features (n, D), with the scatter of those that have labels (n,)."""
        step = max(1, -(-len(features) // MAX_SAMPLES))
        features, labels = features[::step], labels[::step]
        origin, unit = features.mean(dim=0), compares_directions(features.shape[1])
        u = F.normalize(features - origin, dim=1) if unit else features - origin
        labelled = labels != UNLABELLED
        scatter = WithinClassScatter.empty(u.shape[1]).add(u[labelled], labels[labelled])
        components = fit_components(u, scatter, n_components, shrinkage)
        scale = 1.0 if unit else mean_length(components.scores)
        return cls(origin, components.projection / scale, components.offset / scale, unit)

    def transform(self, features: Tensor) -> Tensor:
        """Points (n, d) of features (n, D)."""
        projection, offset = self.projection, self.offset
        chunks = [
            self._scale(self._scale(rows.to(projection.dtype) - self.origin) @ projection - offset)
            for rows in features.split(_CHUNK)
        ]
        return torch.cat(chunks) if chunks else projection.new_empty(0, len(offset))

    def centroids(self, points: Tensor, index: Tensor, n_classes: int) -> Tensor:
        """Means (K, d) of points (n, d) of classes `index` (n,), scaled like the points."""
        return self._scale(class_means(points, index, n_classes)).to(points.dtype)

    def leave_one_out_distances(self, points: Tensor, index: Tensor, n_classes: int) -> Tensor:
        """Distance (n,) to the centroid of the others of the class; NaN where there are none."""
        sizes = torch.bincount(index, minlength=n_classes)
        sums = class_sums(points, index, n_classes).to(points.dtype)
        chunks = [torch.empty(0, dtype=torch.float64)]
        for rows, classes in zip(points.split(_CHUNK), index.split(_CHUNK)):
            others = self._scale((sums[classes] - rows) / (sizes[classes, None] - 1).clamp_min(1))
            distances = (rows - others).norm(dim=1).double()
            chunks.append(torch.where(sizes[classes] > 1, distances, math.nan))
        return torch.cat(chunks)

    def state(self) -> dict[str, Tensor]:
        """Tensors for a safetensors file."""
        unit = torch.tensor([self.unit], dtype=torch.uint8)
        return {"origin": self.origin, "projection": self.projection, "offset": self.offset, "unit": unit}

    @classmethod
    def from_state(cls, state: dict[str, Tensor]) -> Self:
        """The metric that `state` was taken of."""
        return cls(state["origin"], state["projection"], state["offset"], bool(state["unit"].item()))

    def _scale(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1) if self.unit else x


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
    vectors: Tensor = torch.linalg.eigh(matrix).eigenvectors.flip(1)[:, :count]
    return vectors.contiguous()


def compares_directions(dim: int) -> bool:
    """Whether features of `dim` dimensions are compared by direction alone."""
    return dim > UNIT_LENGTH_FROM


def mean_length(x: Tensor) -> Tensor:
    """Mean norm of the rows of x (n, d), above 0."""
    length: Tensor = x.norm(dim=1).mean()
    return length.clamp_min(1e-12)
