"""A map of the feature space in two dimensions: a sample of test images, and the centroids."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Strict

from camp.bench.evaluation.class_groups import NO_CLASS, Record, Vectors

if TYPE_CHECKING:
    from camp.data.tasks import TaskTruth
    from camp.methods.base import Method

Kind = Literal["known", "novel"]

Position = Annotated[tuple[float, float], Strict(False)]
"""(x, y) on the map."""
MapPoint = Annotated[tuple[float, float, int, int, int], Strict(False)]
"""(x, y, task, 1 for a known and 0 for a novel class, class) of a test image."""

_MAX_POINTS = 1500


class MapCentroid(Record):
    """A centroid before the last task, after it, and the true mean of its class now."""

    id: int
    task: int
    kind: Kind
    name: str
    stored: Position | None
    adapted: Position
    true: Position | None


class FeatureMap(Record):
    """The feature space after the last task, projected to its first two principal directions."""

    points: list[MapPoint]
    centroids: list[MapCentroid]


@dataclass(frozen=True)
class Plane:
    """The plane through `mean` (D,) along two orthonormal `axes` (2, D); where D is 1 the second is zero."""

    mean: npt.NDArray[np.float64]
    axes: npt.NDArray[np.float64]

    def project(self, features: Vectors) -> npt.NDArray[np.float64]:
        """Coordinates (n, 2) of `features` (n, D)."""
        projected: npt.NDArray[np.float64] = (features.astype(np.float64) - self.mean) @ self.axes.T
        return projected


def fit_plane(features: Vectors) -> Plane:
    """The plane of the two largest principal components of `features` (n, D), n >= 1.

    The sign of a principal direction is arbitrary; its entry of largest magnitude is made positive, so the
    same features always give the same map.

    >>> plane = fit_plane(np.array([[0.0, -3.0], [0.0, 3.0], [1.0, 0.0], [-1.0, 0.0]]))
    >>> plane.project(np.array([[0.5, 2.0]]))
    array([[2. , 0.5]])
    """
    from scipy.linalg import eigh  # reports read maps without it

    features = np.asarray(features, dtype=np.float64)
    mean, size = features.mean(axis=0), features.shape[1]
    covariance = (features - mean).T @ (features - mean)
    _, vectors = eigh(covariance, subset_by_index=[max(size - 2, 0), size - 1])
    axes = np.zeros((2, size))
    axes[: vectors.shape[1]] = vectors.T[::-1]
    largest = axes[np.arange(2), np.abs(axes).argmax(axis=1)]
    return Plane(mean, axes * np.where(largest < 0, -1.0, 1.0)[:, None])


def feature_map(
    method: "Method",
    truths: "Sequence[TaskTruth]",
    test: Sequence[Vectors],
    class_of_category: Sequence[int],
    means: dict[int, Vectors],
) -> FeatureMap | None:
    """The map of `test` features, one array (m_i, D) per task; None for a method without centroids.

    `means` holds the true mean (D,) of each class. Categories that match no class are left out.
    """
    if method.centroids is None:
        return None
    features = np.concatenate([z for z in test if len(z)])
    about = [(t.index, int(c not in t.novel), int(c)) for t in truths for c in t.test_classes]
    plane = fit_plane(features)
    sample = np.linspace(0, len(features) - 1, min(len(features), _MAX_POINTS)).astype(int)
    points = [(*_rounded(xy), *about[i]) for i, xy in zip(sample, plane.project(features[sample]))]
    now = method.centroids.cpu().numpy()
    before = now.copy()
    if method.drift is not None:
        before[: len(method.drift.stored)] = method.drift.stored.cpu().numpy()
    stored, adapted = plane.project(before), plane.project(now)
    centroids = [
        MapCentroid(
            id=category.id,
            task=category.task,
            kind="novel" if category.label is None else "known",
            name=truths[0].class_names[class_],
            stored=_rounded(stored[i]),
            adapted=_rounded(adapted[i]),
            true=_rounded(plane.project(means[class_][None])[0]),
        )
        for i, (category, class_) in enumerate(zip(method.categories, class_of_category))
        if class_ != NO_CLASS
    ]
    return FeatureMap(points=points, centroids=centroids)


def _rounded(xy: Vectors) -> tuple[float, float]:
    return round(float(xy[0]), 4), round(float(xy[1]), 4)
