"""One-to-one matching of least cost, and the accuracy of a clustering under the best matching."""

import numpy as np
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def match(cost: Tensor | np.ndarray) -> list[tuple[int, int]]:
    """Pairs (row, column) of the cheapest one-to-one matching of a (rows, columns) cost matrix.

    The smaller side is matched completely; rows come in ascending order.

    >>> match(np.array([[1.0, 9.0, 2.0], [1.0, 8.0, 9.0]]))
    [(0, 2), (1, 0)]
    """
    matrix = cost.detach().cpu().numpy() if isinstance(cost, Tensor) else cost
    rows, columns = linear_sum_assignment(matrix)
    return [(int(row), int(column)) for row, column in zip(rows, columns)]


def cluster_accuracy(predicted: Tensor, true: Tensor) -> float:
    """Share of points (n,) that are right when each cluster may stand for one class, in the best way.

    >>> import torch
    >>> cluster_accuracy(torch.tensor([5, 5, 2, 2]), torch.tensor([0, 0, 1, 0]))
    0.75
    """
    if predicted.shape != true.shape or predicted.ndim != 1:
        raise ValueError(
            f"Need two vectors of equal length, got {tuple(predicted.shape)}, {tuple(true.shape)}."
        )
    if len(true) == 0:
        return 0.0
    _, clusters = np.unique(predicted.cpu().numpy(), return_inverse=True)
    _, classes = np.unique(true.cpu().numpy(), return_inverse=True)
    together = np.zeros((clusters.max() + 1, classes.max() + 1), dtype=np.int64)
    np.add.at(together, (clusters, classes), 1)
    return sum(int(together[pair]) for pair in match(-together)) / len(true)
