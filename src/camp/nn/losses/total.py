"""Total loss of CAMP: L = (1 - alpha) ((1 - beta) L_SSL + beta L_SL) + alpha L_KD."""

from typing import TypeVar

from torch import Tensor

Number = TypeVar("Number", Tensor, float)


def balanced(ssl: Number, sl: Number, beta: float) -> Number:
    """Compute L_new = (1 - beta) L_SSL + beta L_SL.

    >>> balanced(1.0, 2.0, beta=0.25)
    1.25
    """
    if not 0 <= beta <= 1:
        raise ValueError(f"beta must be between 0 and 1, not {beta}")
    return (1 - beta) * ssl + beta * sl


def distilled(new: Number, kd: Number, alpha: float) -> Number:
    """Compute L = (1 - alpha) L_new + alpha L_KD, from the second task on.

    >>> distilled(1.0, 3.0, alpha=0.5)
    2.0
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be between 0 and 1, not {alpha}")
    return (1 - alpha) * new + alpha * kd
