"""Append-only store of fixed-size records, addressed by digest: the file format of the view bank.

A folder holds one raw file per column and `index.bin`. Records are written before their index
entries, so a process that is killed loses at most its last block; each index entry carries a
checksum of its record.
"""

import mmap
import os
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.files import read_json, write_json

DIGEST_BYTES = 16
_ENTRY = np.dtype([("digest", "u1", DIGEST_BYTES), ("crc", "<u4")])
_RESIDENT_BYTES = 128 * 2**20
"""Bytes read through the memory map before its pages are released; the page cache keeps them.

A batch of scattered records makes several times its own size resident.
"""


@dataclass(frozen=True)
class Column:
    """Name, shape and NumPy dtype of one value of a record."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Size of the value in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


class Store:
    """Records in `folder`, in the order in which they were appended."""

    def __init__(self, folder: Path, columns: tuple[Column, ...]) -> None:
        self.folder = folder
        self.columns = columns
        self._rows: dict[bytes, int] = {}
        self._crcs = np.empty(0, dtype=np.uint32)
        self._maps: dict[str, np.memmap] = {}
        self._read_bytes = 0
        self._lock = threading.Lock()
        self.reload()

    def __len__(self) -> int:
        return len(self._crcs)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._rows

    def file(self, column: Column) -> Path:
        """Return the file of a column."""
        return self.folder / f"{column.name}.bin"

    def reload(self) -> None:
        """Read the index; entries whose record is incomplete on disk are ignored."""
        index = self.folder / "index.bin"
        entries = np.empty(0, dtype=_ENTRY)
        if index.exists():
            raw = index.read_bytes()
            entries = np.frombuffer(raw[: len(raw) // _ENTRY.itemsize * _ENTRY.itemsize], dtype=_ENTRY)
        complete = [self.file(c).stat().st_size // c.nbytes for c in self.columns if self.file(c).exists()]
        count = min([len(entries), *complete]) if len(complete) == len(self.columns) else 0
        self._rows = {bytes(entry["digest"]): row for row, entry in enumerate(entries[:count])}
        self._crcs = entries["crc"][:count].copy()
        self._maps = {}

    def sealed(self) -> int:
        """Return the number of leading records that are known to be on disk."""
        try:
            records = read_json(self.folder / "sealed.json")["records"]
        except (CampError, LookupError, TypeError):  # missing or damaged: nothing is known
            return 0
        return max(0, min(records, len(self))) if isinstance(records, int) else 0

    def seal(self) -> None:
        """Flush all records to the disk and write their number to `sealed.json`."""
        for path in (*(self.file(c) for c in self.columns), self.folder / "index.bin"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        write_json(self.folder / "sealed.json", {"records": len(self)})

    def repair(self) -> int:
        """Remove incomplete records after a crash; only the process that writes may call it.

        Records written since the last `seal` are compared with their checksums; the first damaged
        one and all after it are removed. Returns the number of remaining records.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.reload()
        sealed = self.sealed()
        damaged = (row for row in range(sealed, len(self)) if not self._is_intact(row))
        count = next(damaged, len(self))
        self._maps = {}
        sizes = [(self.file(c), c.nbytes) for c in self.columns]
        for path, size in [*sizes, (self.folder / "index.bin", _ENTRY.itemsize)]:
            with path.open("ab") as file:
                file.truncate(count * size)
        self.reload()
        return count

    def verify(self) -> list[int]:
        """Return the rows whose record does not match its checksum."""
        return [row for row in range(len(self)) if not self._is_intact(row)]

    def _is_intact(self, row: int) -> bool:
        crc = 0
        for column in self.columns:
            crc = zlib.crc32(np.ascontiguousarray(self._map(column)[row]).data, crc)
        return crc == int(self._crcs[row])

    def append(self, digests: list[bytes], values: Mapping[str, np.ndarray]) -> None:
        """Append n records, data first and index last; `values[name]` is (n, *shape)."""
        if not digests:
            return
        crcs = [0] * len(digests)
        try:
            for column in self.columns:
                block = np.ascontiguousarray(values[column.name], dtype=column.dtype)
                if block.shape != (len(digests), *column.shape):
                    raise ValueError(
                        f"{column.name}: {block.shape} for {len(digests)} records of {column.shape}"
                    )
                crcs = [zlib.crc32(record, crc) for record, crc in zip(block, crcs)]
                with self.file(column).open("ab") as file:
                    file.write(block.data)
            entries = np.empty(len(digests), dtype=_ENTRY)
            entries["digest"] = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
            entries["crc"] = crcs
            with (self.folder / "index.bin").open("ab") as file:
                file.write(entries.tobytes())
        except OSError as error:
            raise CampError(
                f"The view bank in {self.folder} could not be extended ({error.strerror or error}); its content is kept: "
                "free some disk space, or choose another folder with --bank, and run again."
            ) from error
        for digest in digests:
            self._rows[digest] = len(self._rows)
        self._crcs = np.concatenate([self._crcs, np.array(crcs, dtype=np.uint32)])
        self._maps = {}

    def rows(self, digests: list[bytes]) -> Tensor:
        """Return the rows (n,) of the records with these digests."""
        return torch.tensor([self._rows[digest] for digest in digests], dtype=torch.long)

    def digests(self) -> list[bytes]:
        """Return the digest of each row."""
        return list(self._rows)

    def gather(self, column: Column, rows: Tensor, parts: int = 1) -> Tensor:
        """Read the values of `rows` (n,) through the memory map, as (n, *shape).

        With `parts` > 1 the first axis of a record is an axis of parts, and `rows` index parts:
        part v of record r is r * parts + v, and the result is (n, *shape[1:]).
        """
        values = torch.from_numpy(self._map(column))
        if parts > 1:
            values = values.flatten(0, 1)
        selected = values.index_select(0, rows)
        with self._lock:
            self._read_bytes += selected.nbytes
            if self._read_bytes > _RESIDENT_BYTES:
                self._read_bytes = 0
                if hasattr(mmap, "MADV_DONTNEED"):
                    for mapped in self._maps.values():
                        mapped._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        return selected

    def _map(self, column: Column) -> np.memmap:
        mapped = self._maps.get(column.name)
        if mapped is None:
            # Copy-on-write, because torch requires writable memory; nothing writes to it.
            shape = (len(self), *column.shape)
            mapped = np.memmap(self.file(column), dtype=column.dtype, mode="c", shape=shape)
            self._maps[column.name] = mapped
        return mapped
