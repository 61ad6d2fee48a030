"""Sigmoid ramp-up of a weight (Laine and Aila, 2017)."""

import math


def rampup(epoch: float, length: float) -> float:
    """Return exp(-5 (1 - epoch / length)^2), and 1 from `length` on.

    >>> [round(rampup(epoch, 4), 3) for epoch in range(6)]
    [0.007, 0.06, 0.287, 0.732, 1.0, 1.0]
    """
    if epoch < 0 or length < 0:
        raise ValueError(f"Epoch and length must not be negative, but are {epoch} and {length}.")
    if epoch >= length:
        return 1.0
    return math.exp(-5 * (1 - epoch / length) ** 2)
