"""Metric learned from labelled classes, in which unseen classes are compact as well.

How images of one class differ (pose, light, background) tells how images of any class differ. With
features u, whitening P of the pooled within-class scatter (`class_scatter`) and V the first d
principal axes of the whitened features:

    y = u P                       variation within a class has the same size in all directions
    p = (y - mean y) V            scaled to unit length, or to mean length 1

Euclidean distances between points p are the metric. Features of many dimensions
(`principal_components.UNIT_LENGTH_FROM`) are compared by their direction alone and scaled to unit
length; fewer dimensions keep their length, which carries information.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from camp.core.types import UNLABELLED

if TYPE_CHECKING:
    from torch import Tensor

SHRINKAGE = 0.6
"""Default shrinkage of the scatter. A small value overfits: images that the metric was fitted on
lie much nearer to their centroid than other images of their class."""
MAX_SAMPLES = 20_000
"""Number of images that a metric is fitted on; more do not change it."""
_CHUNK, _SUMMED = 8192, 65_536
"""Rows that are measured, and added up, at a time."""
_SHORTEST = 1e-12
"""Vectors are divided by this length at least."""

Floats = npt.NDArray[np.floating]
Index = npt.NDArray[np.integer]


@dataclass(frozen=True)
class ClassMetric:
    """Fitted metric: points (n, d) = scale(scale(x - origin) @ projection - offset).

    It is fitted to features and transforms them in torch. Points are NumPy arrays: to compare them needs no torch, which
    takes long to import.
    """

    origin: Floats
    """(D,) mean of the features."""
    projection: Floats
    """(D, d) whitening times principal axes, by decreasing variance."""
    offset: Floats
    """(d,) projection of the mean."""
    unit: bool
    """Whether vectors are scaled to unit length before and after the projection."""

    @classmethod
    def fit(
        cls, features: "Tensor", labels: "Tensor", n_components: int, shrinkage: float = SHRINKAGE
    ) -> Self:
        """Fit at most `n_components` to features (n, D), with the scatter of those that have labels (n,)."""
        from camp.discovery.class_scatter import WithinClassScatter
        from camp.discovery.principal_components import (
            compares_directions,
            fit_components,
            mean_length,
            normalized,
        )

        step = max(1, -(-len(features) // MAX_SAMPLES))
        features, labels = features[::step], labels[::step]
        origin, unit = features.mean(dim=0), compares_directions(features.shape[1])
        u = normalized(features - origin, unit)
        labelled = labels != UNLABELLED
        scatter = WithinClassScatter.empty(u.shape[1]).add(u[labelled], labels[labelled])
        components = fit_components(u, scatter, n_components, shrinkage)
        scale = 1.0 if unit else mean_length(components.scores)
        projection, offset = components.projection / scale, components.offset / scale
        return cls(origin.numpy(), projection.numpy(), offset.numpy(), unit)

    def transform(self, features: "Tensor") -> "Tensor":
        """Points (n, d) of features (n, D)."""
        import torch

        from camp.discovery.principal_components import normalized

        origin, projection, offset = map(torch.from_numpy, (self.origin, self.projection, self.offset))
        chunks = [
            normalized(
                normalized(rows.to(projection.dtype) - origin, self.unit) @ projection - offset, self.unit
            )
            for rows in features.split(_CHUNK)
        ]
        return torch.cat(chunks) if chunks else projection.new_empty(0, len(offset))

    def centroids(self, points: Floats, index: Index, n_classes: int) -> Floats:
        """Means (K, d) of points (n, d) of classes `index` (n,) that all occur, scaled like the points."""
        sizes = np.bincount(index, minlength=n_classes)
        return self._scaled(_class_sums(points, index, n_classes) / sizes[:, None]).astype(points.dtype)

    def leave_one_out_distances(
        self, points: Floats, index: Index, n_classes: int
    ) -> npt.NDArray[np.float64]:
        """Distance (n,) to the centroid of the others of the class; NaN where there are none."""
        sizes = np.bincount(index, minlength=n_classes)
        sums = _class_sums(points, index, n_classes).astype(points.dtype)
        distances = np.full(len(points), np.nan)
        for start in range(0, len(points), _CHUNK):
            rows, classes = points[start : start + _CHUNK], index[start : start + _CHUNK]
            numbers = np.maximum(sizes[classes] - 1, 1).astype(points.dtype)
            others = self._scaled((sums[classes] - rows) / numbers[:, None])
            distances[start : start + _CHUNK] = np.linalg.norm(rows - others, axis=1)
        return np.where(sizes[index] > 1, distances, np.nan)

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """Arrays for a safetensors file."""
        unit = np.array([self.unit], dtype=np.uint8)
        return {"origin": self.origin, "projection": self.projection, "offset": self.offset, "unit": unit}

    @classmethod
    def from_state(cls, state: Mapping[str, Floats]) -> Self:
        """The metric that `state` was taken of."""
        return cls(state["origin"], state["projection"], state["offset"], bool(state["unit"].item()))

    def _scaled(self, x: Floats) -> Floats:
        if not self.unit:
            return x
        lengths: Floats = np.linalg.norm(x, axis=1, keepdims=True)
        return x / np.maximum(lengths, _SHORTEST)


def _class_sums(x: Floats, index: Index, n_classes: int) -> npt.NDArray[np.float64]:
    """Sum of each class, (K, D), of x (n, D) with the classes `index` (n,).

    >>> _class_sums(np.array([[1.0], [2.0], [3.0]]), np.array([2, 0, 2]), 3).tolist()
    [[2.0], [0.0], [4.0]]
    """
    sums = np.zeros((n_classes, x.shape[1]))
    for start in range(0, len(x), _SUMMED):
        order = start + np.argsort(index[start : start + _SUMMED], kind="stable")
        classes, starts = np.unique(index[order], return_index=True)
        sums[classes] += np.add.reduceat(x[order], starts, axis=0, dtype=np.float64)
    return sums
