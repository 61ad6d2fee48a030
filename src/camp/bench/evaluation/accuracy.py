"""Accuracy on the test sets of a stream, for all, known and novel classes."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from camp.bench.evaluation.class_groups import ByGroup, Classes, Group, group_masks

Share = float | None
"""A fraction 0..1, or None where there is no image to count."""

Matrix = list[list[Share]]
"""A[t][i] with i <= t: accuracy on the test images of task i after task t."""


class AccuracySplit(ByGroup[Share]):
    """One accuracy for each group of classes."""


class AccuracyRow(ByGroup[list[Share]]):
    """One row A[t][0..t] of the accuracy matrix for each group of classes."""


def split_accuracy(predicted: Classes, true: Classes, novel: Collection[int]) -> AccuracySplit:
    """Fraction of correct predictions, each image counting the same (micro accuracy).

    `predicted` (m,) and `true` (m,) are classes; a prediction of -1 (a category without a class) is never
    correct. `novel` are the novel classes of the task; its other classes are known.

    >>> split_accuracy(np.array([0, 1, 2, 1]), np.array([0, 1, 2, 2]), novel=[2])
    AccuracySplit(all=0.75, known=1.0, novel=0.5)
    """
    if predicted.shape != true.shape:
        raise ValueError(f"predicted has shape {predicted.shape} and true {true.shape}; they must agree")
    right = (predicted == true) & (true >= 0)
    masks = group_masks(np.isin(true, list(novel)))
    return AccuracySplit.of(lambda group: _mean(right[masks[group]]))


def accuracy_row(
    predicted: Sequence[Classes], true: Sequence[Classes], novel: Sequence[Collection[int]]
) -> AccuracyRow:
    """A[t][0..t]: the accuracy on each task so far, from one array (m_i,) per task.

    >>> row = accuracy_row([np.array([0, 5]), np.array([3])], [np.array([0, 1]), np.array([3])], [[1], []])
    >>> row.all, row.known, row.novel
    ([0.5, 1.0], [1.0, 1.0], [0.0, None])
    """
    if not len(predicted) == len(true) == len(novel):
        raise ValueError("predicted, true and novel must have one entry for each task")
    tasks = [split_accuracy(*task) for task in zip(predicted, true, novel)]
    return AccuracyRow.of(lambda group: [task[group] for task in tasks])


def matrix(rows: Sequence[AccuracyRow], group: Group) -> Matrix:
    """A[t][i] for one group of classes, from the rows of the tasks t = 0, 1, ...

    >>> rows = [AccuracyRow(all=[0.9], known=[1.0], novel=[None]),
    ...         AccuracyRow(all=[0.8, 0.7], known=[0.9, 0.8], novel=[None, 0.5])]
    >>> matrix(rows, "all")
    [[0.9], [0.8, 0.7]]
    """
    for t, row in enumerate(rows):
        if len(row[group]) != t + 1:
            raise ValueError(f"row {t} of an accuracy matrix has {t + 1} entries, not {len(row[group])}")
    return [list(row[group]) for row in rows]


def _mean(right: npt.NDArray[np.bool_]) -> Share:
    return float(right.mean()) if right.size else None
