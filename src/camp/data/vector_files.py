"""Files of feature vectors, one per row, that are read from the disk while they are used.

- `.npy`: an array (n, D).
- `.npz`: the array `vectors` (n, D), and perhaps `labels` (n,) and `test` (n,). It is read from the disk as well if it is
  not compressed, as `numpy.savez` writes it.
"""

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, overload

import numpy as np

from camp.core.errors import CampError
from camp.data.images import UnreadableImageError

SUFFIXES = (".npy", ".npz")
BLOCK_BYTES = 1 << 24
"""Bytes of vectors that are worked on at a time."""
_LOCAL_HEADER = 30
"""Size in bytes of the fixed part of the header of a file in a ZIP archive."""


class RowNames(Sequence[str]):
    """The numbers of n rows as strings, behind a prefix; they are made when they are used.

    >>> list(RowNames(3, "row ")), RowNames(3)[1:][0]
    (['row 0', 'row 1', 'row 2'], '1')
    """

    def __init__(self, count: int, prefix: str = "") -> None:
        self._rows, self._prefix = range(count), prefix

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [f"{self._prefix}{at}" for at in self._rows[row]]
        return f"{self._prefix}{self._rows[row]}"

    def __iter__(self) -> Iterator[str]:
        return (f"{self._prefix}{row}" for row in self._rows)


class VectorReader:
    """Reader of vectors (n, D); a key ends with the number of the row, as in "17" or "row 17"."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def read(self, key: str) -> bytes:
        """Return the vector as little-endian bytes."""
        row = int(key.rpartition(" ")[2])
        with np.errstate(over="ignore"):
            return bytes(self.vectors[row].astype("<f4").tobytes())

    def decode(self, data: bytes, min_size: int | None = None) -> np.ndarray:
        """Decode the bytes to a vector (D,) float32."""
        vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
        if len(vector) != self.vectors.shape[1]:
            raise UnreadableImageError(f"{len(vector)} numbers are not a vector of {self.vectors.shape[1]}")
        return vector


def is_vector_file(path: Path) -> bool:
    """Return whether a file holds vectors, by its suffix.

    >>> is_vector_file(Path("january.npy")), is_vector_file(Path("january"))
    (True, False)
    """
    return path.suffix.lower() in SUFFIXES


def open_vectors(path: Path) -> np.ndarray:
    """Open vectors (n, D) of any type of number, memory-mapped unless they are compressed; n is at least 1."""
    vectors = open_array(path, "vectors")
    if vectors is None:
        raise CampError(f"{path} lacks the array 'vectors'; expected `vectors` (N, D).")
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu" or not vectors.size:
        raise CampError(
            f"`vectors` of {path} has shape {vectors.shape} and type {vectors.dtype}, not numbers (N, D)."
        )
    return vectors


def open_array(path: Path, name: str) -> np.ndarray | None:
    """Open the array `name` of an .npz file, or the only one of an .npy file; None if it is not there."""
    if not path.is_file():
        raise CampError(f"There is no file {path}; expected vectors in an .npy or .npz file.")
    try:
        if path.suffix.lower() == ".npy":
            _check_magic(path)
            array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
            return array
        with zipfile.ZipFile(path) as archive:
            if f"{name}.npy" not in archive.namelist():
                return None
            about = archive.getinfo(f"{name}.npy")
        if about.compress_type == zipfile.ZIP_STORED and about.file_size > BLOCK_BYTES:
            return _map_member(path, about.header_offset)
        with np.load(path, allow_pickle=False) as file:
            return np.asarray(file[name])
    except Exception as error:
        raise CampError(
            f"{path} cannot be read as plain arrays ({error}); arrays of objects are not opened."
        ) from error


def _check_magic(path: Path) -> None:
    """Refuse a file that is not an .npy file, which NumPy takes for a pickle and advises to load as one."""
    with path.open("rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            raise ValueError("it does not begin as an .npy file does")


def _map_member(path: Path, header_offset: int) -> np.ndarray:
    """Map an array that is stored without compression in a ZIP archive, at the offset of its local header."""
    with path.open("rb") as file:
        file.seek(header_offset)
        header = file.read(_LOCAL_HEADER)
        name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
        file.seek(header_offset + _LOCAL_HEADER + name + extra)
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read_header = np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError("it holds objects")
        order: Literal["F", "C"] = "F" if is_fortran else "C"
        array: np.ndarray = np.memmap(
            path, dtype=dtype, mode="r", offset=file.tell(), shape=shape, order=order
        )
        return array


def blocks(vectors: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield vectors (n, D) as float32 arrays of BLOCK_BYTES, with the rows of each."""
    size = max(1, BLOCK_BYTES // (4 * vectors.shape[1]))
    for start in range(0, len(vectors), size):
        rows = slice(start, min(start + size, len(vectors)))
        with np.errstate(over="ignore"):
            yield rows, np.ascontiguousarray(vectors[rows], dtype=np.float32)
