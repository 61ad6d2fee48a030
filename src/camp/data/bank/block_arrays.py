"""Blocks of views as numpy arrays, in which processes send them to each other."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from camp.data.bank.fill import Block

BlockArrays = list[tuple[list[str], dict[str, str], dict[str, np.ndarray]]]
"""Blocks with numpy arrays in place of tensors."""


def to_arrays(blocks: Iterable[Block]) -> BlockArrays:
    """Convert blocks to be sent."""
    return [
        (good, faults, {name: x.cpu().numpy() for name, x in batch.items()}) for good, faults, batch in blocks
    ]


def from_arrays(blocks: BlockArrays) -> Iterator[Block]:
    """Convert blocks that were sent; arrays of another process cannot be written to, hence the copy."""
    for good, faults, batch in blocks:
        yield good, faults, {name: torch.from_numpy(x.copy()) for name, x in batch.items()}
