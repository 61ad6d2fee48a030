"""Distances between stored centroids and the true class means after the feature space has drifted."""

import numpy as np
import numpy.typing as npt

from camp.bench.evaluation.class_groups import ByGroup, Record, Vectors, group_masks


class CentroidDistance(Record):
    """Mean L2 distance of centroids to the true class means in the new feature space."""

    stored: float
    """Of the centroids as stored before the task."""
    adapted: float
    """Of the centroids after adaptation."""

    @property
    def relative_reduction(self) -> float | None:
        """Fraction of the distance removed by adaptation; negative if the distance grew.

        >>> CentroidDistance(stored=5.0, adapted=1.0).relative_reduction
        0.8
        """
        return 1 - self.adapted / self.stored if self.stored else None


class DriftMeasurement(ByGroup[CentroidDistance | None]):
    """Distances of the categories of earlier tasks; None for a group without categories."""


def centroid_drift(
    stored: Vectors, adapted: Vectors, true: Vectors, novel: npt.NDArray[np.bool_]
) -> DriftMeasurement:
    """Distances of k categories of earlier tasks before and after adaptation.

    `stored` and `adapted` (k, D) are centroids before the task and after adaptation, `true` (k, D) the
    means of their classes under the new network; `novel` (k,) marks discovered categories. A category
    that matches no class has no true mean and must be left out.

    >>> stored, adapted, true = np.array([[3.0, 4.0]]), np.array([[0.0, 1.0]]), np.zeros((1, 2))
    >>> drift = centroid_drift(stored, adapted, true, novel=np.array([False]))
    >>> drift.known, drift.novel
    (CentroidDistance(stored=5.0, adapted=1.0), None)
    """
    before = np.linalg.norm(stored - true, axis=1)
    after = np.linalg.norm(adapted - true, axis=1)
    masks = group_masks(novel)
    return DriftMeasurement.of(lambda group: _mean_distance(before[masks[group]], after[masks[group]]))


def _mean_distance(before: Vectors, after: Vectors) -> CentroidDistance | None:
    if not before.size:
        return None
    return CentroidDistance(stored=float(before.mean()), adapted=float(after.mean()))
