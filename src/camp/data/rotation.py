"""Rotations of images by quarter turns, which PASS predicts."""

import torch
from torch import Tensor

TURNS = 4
"""Number of rotations: 0, 90, 180 and 270 degrees."""


def quarter_turns(images: Tensor) -> Tensor:
    """Rotate images (n, C, R, R) counter-clockwise by 0, 90, 180, 270 degrees: (4 n, C, R, R).

    >>> quarter_turns(torch.tensor([[[[1, 2], [3, 4]]]])).flatten(1).tolist()
    [[1, 2, 3, 4], [2, 4, 1, 3], [4, 3, 2, 1], [3, 1, 4, 2]]
    """
    return torch.cat([torch.rot90(images, turns, (2, 3)) for turns in range(TURNS)])
