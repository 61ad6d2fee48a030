"""One-to-one matching of minimum cost (Kuhn 1955), and clustering accuracy."""

import numpy as np
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def match(cost: Tensor | np.ndarray) -> list[tuple[int, int]]:
    """Match rows and columns of a cost matrix one to one; returns pairs (row, column), by row.

    The smaller side is matched completely.

    >>> match(np.array([[1.0, 9.0, 2.0], [1.0, 8.0, 9.0]]))
    [(0, 2), (1, 0)]
    """
    matrix = cost.detach().cpu().numpy() if isinstance(cost, Tensor) else cost
    rows, columns = linear_sum_assignment(matrix)
    return [(int(row), int(column)) for row, column in zip(rows, columns)]


def cluster_accuracy(predicted: Tensor, true: Tensor) -> float:
    """Share of points in the cluster matched to their class, for clusters (n,) and classes (n,).

    >>> import torch
    >>> cluster_accuracy(torch.tensor([5, 5, 2, 2]), torch.tensor([0, 0, 1, 0]))
    0.75
    """
    from sklearn.metrics.cluster import contingency_matrix  # takes long to import

    if predicted.shape != true.shape or predicted.ndim != 1:
        raise ValueError(f"Need two vectors of equal length, got {predicted.shape}, {true.shape}.")
    if len(true) == 0:
        return 0.0
    contingency = contingency_matrix(predicted.cpu().numpy(), true.cpu().numpy())
    return sum(int(contingency[pair]) for pair in match(-contingency)) / len(true)
