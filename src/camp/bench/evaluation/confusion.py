"""Confusion between tasks: to the categories of which task test images are assigned."""

import numpy as np
import numpy.typing as npt

from camp.bench.evaluation.class_groups import ByGroup, group_masks

Tasks = npt.NDArray[np.int64]


class TaskConfusion(ByGroup[list[list[int]]]):
    """Counts [true task][predicted task] of test images for each group of classes."""


def task_confusion(true: Tasks, predicted: Tasks, n_tasks: int) -> npt.NDArray[np.int64]:
    """Counts (N, N) of images of task `true` (n,) assigned to a category of task `predicted` (n,).

    >>> task_confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
    array([[1, 1],
           [0, 1]])
    """
    counts = np.zeros((n_tasks, n_tasks), dtype=np.int64)
    np.add.at(counts, (true, predicted), 1)
    return counts


def split_confusion(
    true: Tasks, predicted: Tasks, novel: npt.NDArray[np.bool_], n_tasks: int
) -> TaskConfusion:
    """The task confusion of each group of classes; `novel` (n,) marks images of novel classes."""
    masks = group_masks(novel)
    return TaskConfusion.of(
        lambda group: task_confusion(true[masks[group]], predicted[masks[group]], n_tasks).tolist()
    )


def normalised_rows(counts: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Each row divided by its sum (N, N); a row without images is NaN.

    >>> normalised_rows(np.array([[1, 3], [0, 0]]))
    array([[0.25, 0.75],
           [ nan,  nan]])
    """
    counts = np.asarray(counts)
    sums = counts.sum(axis=1, keepdims=True)
    shares: npt.NDArray[np.float64] = np.divide(
        counts, sums, out=np.full(counts.shape, np.nan), where=sums > 0
    )
    return shares
