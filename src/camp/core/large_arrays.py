"""Arrays that are in memory while they are small, and in a temporary file from LARGE_BYTES on.

The system writes pages of such a file to the disk when memory is short, so that arrays may be larger than the memory. The file has
no name and is gone with the array. It is in the folder of temporary files ($TMPDIR), which must be on a disk.
"""

import tempfile
from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike

LARGE_BYTES = 1 << 28
"""Bytes of an array from which on it is in a file."""
BLOCK = 16_384
"""Rows that are copied at a time."""


def empty_array(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """Make an array whose values are not set."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size < LARGE_BYTES:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        array: np.ndarray = np.memmap(file, dtype=dtype, mode="r+", shape=shape)
        return array


def copy_rows(array: np.ndarray, rows: np.ndarray, dtype: DTypeLike | None = None) -> np.ndarray:
    """Copy the `rows` (m,) of an array (n, ...) a block at a time."""
    found = empty_array((len(rows), *array.shape[1:]), dtype or array.dtype)
    for part in row_blocks(len(rows)):
        found[part] = array[rows[part]]
    return found


def row_blocks(count: int) -> Iterator[slice]:
    """Divide `count` rows into blocks.

    >>> [part.stop - part.start for part in row_blocks(20_000)]
    [16384, 3616]
    """
    return (slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK))
