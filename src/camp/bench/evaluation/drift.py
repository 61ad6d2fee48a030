"""How far remembered centroids are from where their classes have moved."""

from typing import TypedDict

import numpy as np


class Distance(TypedDict):
    """Mean L2 distance to the true class means in the new feature space."""

    stored: float
    """Of the centroids as they were remembered."""
    adapted: float
    """Of the centroids after adaptation."""


class Drift(TypedDict):
    """Distances of the earlier categories; None for a group that has none."""

    all: Distance | None
    known: Distance | None
    novel: Distance | None


def centroid_drift(stored: np.ndarray, adapted: np.ndarray, true: np.ndarray, novel: np.ndarray) -> Drift:
    """Distances of k earlier categories before and after adaptation.

    `stored`, `adapted` and `true` are (k, D): the centroid remembered from before the task, the same after
    adaptation, and the true mean of its class under the new network. `novel` (k,) says which categories were
    discovered. A category without a class has no true mean and is not to be given.

    >>> stored, adapted, true = np.array([[3.0, 4.0]]), np.array([[0.0, 1.0]]), np.zeros((1, 2))
    >>> drift = centroid_drift(stored, adapted, true, novel=np.array([False]))
    >>> drift["known"], drift["novel"]
    ({'stored': 5.0, 'adapted': 1.0}, None)
    """
    before = np.linalg.norm(stored - true, axis=1)
    after = np.linalg.norm(adapted - true, axis=1)
    is_novel = np.asarray(novel, dtype=bool)
    return {
        "all": _distance(before, after),
        "known": _distance(before[~is_novel], after[~is_novel]),
        "novel": _distance(before[is_novel], after[is_novel]),
    }


def relative_reduction(distance: Distance) -> float | None:
    """The share of the distance that adaptation took away; negative if it made it longer.

    >>> relative_reduction({"stored": 5.0, "adapted": 1.0})
    0.8
    """
    return 1 - distance["adapted"] / distance["stored"] if distance["stored"] else None


def _distance(before: np.ndarray, after: np.ndarray) -> Distance | None:
    return {"stored": float(before.mean()), "adapted": float(after.mean())} if before.size else None
