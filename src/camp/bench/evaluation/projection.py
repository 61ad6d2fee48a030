"""Projection of a feature space to its first two principal directions."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh

Vectors = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Plane:
    """The plane through `mean` along two orthonormal `axes`."""

    mean: npt.NDArray[np.float64]
    """(D,)"""
    axes: npt.NDArray[np.float64]
    """(2, D); where D is 1 the second is zero."""

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
    features = np.asarray(features, dtype=np.float64)
    mean, size = features.mean(axis=0), features.shape[1]
    covariance = (features - mean).T @ (features - mean)
    _, vectors = eigh(covariance, subset_by_index=[max(size - 2, 0), size - 1])
    axes = np.zeros((2, size))
    axes[: vectors.shape[1]] = vectors.T[::-1]
    largest = axes[np.arange(2), np.abs(axes).argmax(axis=1)]
    return Plane(mean, axes * np.where(largest < 0, -1.0, 1.0)[:, None])
