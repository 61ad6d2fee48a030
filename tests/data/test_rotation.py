"""Rotations against a loop over pixels."""

import torch
from torch import Tensor

from camp.data.rotation import TURNS, quarter_turns


def turned_once(image: Tensor) -> Tensor:
    """(C, R, R), counter-clockwise: what was the right edge becomes the top one."""
    turned, side = torch.empty_like(image), image.shape[1]
    for row in range(side):
        for column in range(side):
            turned[:, row, column] = image[:, column, side - 1 - row]
    return turned


def test_rotations_are_the_outer_axis() -> None:
    images = torch.randn(3, 2, 5, 5)
    result = quarter_turns(images).unflatten(0, (TURNS, 3))
    expected = images
    for turn in range(TURNS):
        assert torch.equal(result[turn], expected)
        expected = torch.stack([turned_once(image) for image in expected])
    assert torch.equal(expected, images)  # four of them are none


def test_rotations_of_an_empty_batch() -> None:
    assert quarter_turns(torch.empty(0, 3, 4, 4)).shape == (0, 3, 4, 4)
