"""A weight that grows from next to nothing to 1 (Laine and Aila 2017)."""

import math


def rampup(epoch: float, length: float) -> float:
    """exp(-5 (1 - epoch / length)^2), and 1 from `length` on.

    >>> [round(rampup(epoch, 4), 3) for epoch in range(6)]
    [0.007, 0.06, 0.287, 0.732, 1.0, 1.0]
    """
    if epoch < 0 or length < 0:
        raise ValueError(f"Epochs count from 0, but are {epoch} of {length}.")
    if epoch >= length:
        return 1.0
    return math.exp(-5 * (1 - epoch / length) ** 2)
