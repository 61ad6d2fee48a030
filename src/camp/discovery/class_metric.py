"""A metric in which new categories stand apart as the known ones do.

How pictures of one known class differ (pose, light, background) says how pictures of any class differ. With unit-length
features u, and W the scatter of labelled features around the mean of their class:

    S = (1 - s) W + s tr(W) / D I           shrunk, since there are fewer labels than dimensions
    y = S^{-1/2} u                          differences within a class count alike in all directions
    p = the first d principal components of y, at unit length

Directions in which pictures of a class merely vary are shortened, and k-means no longer spends clusters on odd pictures.
Without labels the second line is left out. Distances between points p are the metric.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from scipy.linalg import eigh
from torch import Tensor

from camp.core.types import UNLABELLED

SHRINKAGE = 0.6
"""s. With less, pictures that shaped the metric lie much nearer to their centroids than others of their kind do. Once, in
the first of the guide's months, 95 % of the former lay within 0.68 with s = 0.3 and of the latter within 0.91; with 0.6 it was
0.90 and 0.99, and recognition no worse (a script that was not kept)."""
_CHUNK = 8192
AT_MOST = 20_000
"""Pictures that a metric is learned from; more would not change it."""


@dataclass(frozen=True)
class Metric:
    """Features z (n, D) -> points (n, d): unit((unit(z - origin)) P - offset), or without the unit length."""

    origin: Tensor
    """(D,)"""
    projection: Tensor
    """P (D, d)"""
    offset: Tensor
    """(d,)"""
    unit: bool
    """Whether directions alone count. Features of few dimensions keep their length: it says something."""

    def __call__(self, z: Tensor) -> Tensor:
        """The points (n, d) of features z (n, D)."""
        parts = [self._points(part.to(self.projection.dtype)) for part in z.split(_CHUNK)]
        return torch.cat(parts) if parts else self.projection.new_empty(0, len(self.offset))

    def _points(self, z: Tensor) -> Tensor:
        points = self._length(z - self.origin) @ self.projection - self.offset
        return self._length(points)

    def _length(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1) if self.unit else x

    def left_out(self, points: Tensor, positions: Tensor, count: int) -> Tensor:
        """(n,) distance of each point to the centroid of the others of its category; NaN where it is alone."""
        sizes = torch.bincount(positions, minlength=count)
        sums = _sums(points, positions, count).to(points.dtype)
        parts = [torch.empty(0, dtype=torch.float64)]
        for part, at in zip(points.split(_CHUNK), positions.split(_CHUNK)):
            others = self._length((sums[at] - part) / (sizes[at, None] - 1).clamp_min(1))
            parts.append(torch.where(sizes[at] > 1, (part - others).norm(dim=1).double(), math.nan))
        return torch.cat(parts)

    def means(self, points: Tensor, positions: Tensor, count: int) -> Tensor:
        """Centroids (K, d) of `points` (n, d) in categories `positions` (n,): means, at unit length where points are."""
        return self._length(means_of(points, positions, count)).to(points.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """For a safetensors file."""
        unit = torch.tensor([self.unit], dtype=torch.uint8)
        return {"origin": self.origin, "projection": self.projection, "offset": self.offset, "unit": unit}

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Self:
        """Back from `tensors`."""
        unit = bool(tensors["unit"].item())
        return cls(tensors["origin"], tensors["projection"], tensors["offset"], unit)


def means_of(x: Tensor, positions: Tensor, count: int) -> Tensor:
    """(K, D) float64 means of the rows of x (n, D) in each of `count` categories; `positions` (n,) are theirs."""
    return _sums(x, positions, count) / torch.bincount(positions, minlength=count)[:, None]


def _sums(points: Tensor, positions: Tensor, count: int) -> Tensor:
    """(K, d) float64 sums by category, a part at a time: all points in double precision at once are slow to make."""
    sums = torch.zeros(count, points.shape[1], dtype=torch.float64)
    for part, at in zip(points.split(_CHUNK), positions.split(_CHUNK)):
        sums.index_add_(0, at, part.double())
    return sums


def fit_metric(features: Tensor, labels: Tensor, directions: int, shrinkage: float = SHRINKAGE) -> Metric:
    """The metric of `features` (n, D) with `labels` (n,), UNLABELLED where there is none, in `directions` dimensions."""
    step = max(1, -(-len(features) // AT_MOST))
    features, labels = features[::step], labels[::step]
    unit = features.shape[1] > 32
    origin = features.mean(dim=0)
    u = F.normalize(features - origin, dim=1) if unit else features - origin
    whiten = _whitening(u, labels, shrinkage)
    y = u @ whiten if whiten is not None else u
    mean, axes = _principal(y, min(directions, *y.shape))
    return Metric(origin, whiten @ axes if whiten is not None else axes, mean @ axes, unit)


def _whitening(features: Tensor, labels: Tensor, shrinkage: float) -> Tensor | None:
    """S^{-1/2} (D, D) for features u (n, D); None where no two pictures that differ share a label."""
    labelled = labels != UNLABELLED
    x, own = features[labelled], labels[labelled]
    classes, own = own.unique(return_inverse=True)
    free = len(x) - len(classes)
    if free < 1:
        return None
    counts = torch.bincount(own, minlength=len(classes))[:, None]
    means = torch.zeros(len(classes), x.shape[1], dtype=x.dtype).index_add_(0, own, x) / counts
    residuals = x - means[own]
    # S differs from a multiple of the identity only where the residuals reach, and so does its inverse root.
    if len(residuals) > residuals.shape[1]:
        values, vectors = torch.linalg.eigh(residuals.T @ residuals)
        directions, scatter = vectors.T, values.clamp_min(0) / free
    else:
        _, lengths, directions = torch.linalg.svd(residuals, full_matrices=False)
        scatter = lengths.square() / free
    floor = shrinkage * scatter.sum() / x.shape[1]
    if float(floor) <= 0:
        return None
    shortened = 1 - (floor / ((1 - shrinkage) * scatter + floor)).sqrt()
    identity = torch.eye(x.shape[1], dtype=x.dtype)
    return (identity - (directions.T * shortened) @ directions) / floor.sqrt()


def _principal(y: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean (D,) and the `count` principal directions (D, count) of y (n, D)."""
    mean = y.mean(dim=0)
    covariance = ((y - mean).T @ (y - mean)).double().numpy()
    size = len(covariance)
    _, vectors = eigh(covariance, subset_by_index=[size - count, size - 1])
    return mean, torch.from_numpy(vectors[:, ::-1].copy()).to(y.dtype)
