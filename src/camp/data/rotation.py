"""Quarter turns of pictures, which PASS tells apart."""

import torch
from torch import Tensor

TURNS = 4
"""By 0, 90, 180 and 270 degrees."""


def quarter_turns(pictures: Tensor) -> Tensor:
    """(n, C, R, R) -> (4 n, C, R, R), turn-major: all as they are, then all turned once, counter-clockwise, ...

    >>> quarter_turns(torch.tensor([[[[1, 2], [3, 4]]]])).flatten(1).tolist()
    [[1, 2, 3, 4], [2, 4, 1, 3], [4, 3, 2, 1], [3, 1, 4, 2]]
    """
    return torch.cat([torch.rot90(pictures, turns, (2, 3)) for turns in range(TURNS)])
