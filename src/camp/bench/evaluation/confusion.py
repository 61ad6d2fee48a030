"""To which task a test picture is sent: the picture of a bias towards recent tasks."""

from typing import TypedDict

import numpy as np


class Confusion(TypedDict):
    """Counts [true task][predicted task] for the test pictures of all, known and novel classes."""

    all: list[list[int]]
    known: list[list[int]]
    novel: list[list[int]]


def task_confusion(true: np.ndarray, predicted: np.ndarray, n_tasks: int) -> np.ndarray:
    """Counts (N, N): pictures of task `true` (n,) for which a category of task `predicted` (n,) won.

    >>> task_confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
    array([[1, 1],
           [0, 1]])
    """
    counts = np.zeros((n_tasks, n_tasks), dtype=np.int64)
    np.add.at(counts, (true, predicted), 1)
    return counts


def split_confusion(true: np.ndarray, predicted: np.ndarray, novel: np.ndarray, n_tasks: int) -> Confusion:
    """The task confusion for all, known and novel classes; `novel` (n,) marks pictures of novel ones."""
    is_novel = np.asarray(novel, dtype=bool)
    return {
        "all": task_confusion(true, predicted, n_tasks).tolist(),
        "known": task_confusion(true[~is_novel], predicted[~is_novel], n_tasks).tolist(),
        "novel": task_confusion(true[is_novel], predicted[is_novel], n_tasks).tolist(),
    }


def normalised_rows(counts: np.ndarray) -> np.ndarray:
    """Each row divided by its sum (N, N); a row without pictures is NaN.

    >>> normalised_rows(np.array([[1, 3], [0, 0]]))
    array([[0.25, 0.75],
           [ nan,  nan]])
    """
    counts = np.asarray(counts)
    sums = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, sums, out=np.full(counts.shape, np.nan), where=sums > 0)
