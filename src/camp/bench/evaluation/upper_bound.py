"""The upper bound of a nearest-centroid method: the same features with the true class means as centroids."""

import numpy as np
import numpy.typing as npt

from camp.bench.evaluation.class_groups import Classes, Vectors


def true_means(features: Vectors, classes: Classes) -> tuple[Classes, npt.NDArray[np.float64]]:
    """The classes (c,), ascending, and their mean features (c, D), from `features` (n, D) of `classes` (n,).

    >>> true_means(np.array([[1.0], [3.0], [5.0]]), np.array([7, 7, 2]))
    (array([2, 7]), array([[5.],
           [2.]]))
    """
    present, rows = np.unique(classes, return_inverse=True)
    sums = np.zeros((len(present), features.shape[1]), dtype=np.float64)
    np.add.at(sums, rows, features)
    return present, sums / np.bincount(rows, minlength=len(present))[:, None]


def nearest_mean(features: Vectors, means: Vectors, classes: Classes) -> Classes:
    """The class (n,) of the nearest mean in L2, for `features` (n, D), `means` (c, D), `classes` (c,).

    >>> nearest_mean(np.array([[0.9], [4.0]]), np.array([[5.0], [2.0]]), np.array([2, 7]))
    array([7, 2])
    """
    if not len(features):
        return np.empty(0, dtype=classes.dtype)
    features, means = features.astype(np.float64), means.astype(np.float64)
    # ||x - m||^2 without ||x||^2, which is the same for every mean.
    distances = (means**2).sum(axis=1) - 2 * features @ means.T
    nearest: Classes = classes[distances.argmin(axis=1)]
    return nearest
