"""Digests of many images at once, as rows of an array, which takes a tenth of the memory of as many `bytes`."""

import numpy as np


def rows_in(digests: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Return the row (n,) in `among` (m, 16) of each of `digests` (n, 16), or -1 if it is not there.

    >>> a = np.arange(64, dtype=np.uint8).reshape(4, 16)
    >>> rows_in(a[[2, 0]], a[[0, 1]]).tolist()
    [-1, 0]
    """
    wanted, present = as_scalars(digests), as_scalars(among)
    if not len(present):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(present, kind="stable")
    at = order[np.searchsorted(present, wanted, sorter=order).clip(max=len(present) - 1)]
    return np.where(present[at] == wanted, at, -1)


def groups(digests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row (g,) of each of the g different digests, and the number (n,) of each row's group."""
    _, first, group = np.unique(as_scalars(digests), return_index=True, return_inverse=True)
    return first, group


def as_scalars(digests: np.ndarray) -> np.ndarray:
    """Return digests (n, 16) uint8 as an array (n,) that can be sorted and compared."""
    return np.ascontiguousarray(digests).view(np.dtype((np.void, digests.shape[1])))[:, 0]
