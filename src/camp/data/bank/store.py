"""An append-only store of fixed-size records, found by fingerprint: the disk side of the view bank.

A folder holds one raw file a field and `index.bin`. Records are written first and entered into the index
afterwards, so a kill at any moment costs at most the last block; each index entry carries a checksum of its
record.
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
"""Bytes read through the map before its pages are handed back: the page cache keeps them, our memory does not.

Pages come in large folios, so a batch of scattered records makes several times its own size resident.
"""


@dataclass(frozen=True)
class Column:
    """A tensor of fixed shape and type that every record has."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of one record's value."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


class Store:
    """Records of some columns in `folder`, in the order in which they came."""

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
        """Where a column's values lie."""
        return self.folder / f"{column.name}.bin"

    def reload(self) -> None:
        """Read the index again; entries whose record is not wholly on disk do not count."""
        index = self.folder / "index.bin"
        entries = np.empty(0, dtype=_ENTRY)
        if index.exists():
            raw = index.read_bytes()
            entries = np.frombuffer(raw[: len(raw) // _ENTRY.itemsize * _ENTRY.itemsize], dtype=_ENTRY)
        whole = [self.file(c).stat().st_size // c.nbytes for c in self.columns if self.file(c).exists()]
        count = min([len(entries), *whole]) if len(whole) == len(self.columns) else 0
        self._rows = {bytes(entry["digest"]): row for row, entry in enumerate(entries[:count])}
        self._crcs = entries["crc"][:count].copy()
        self._maps = {}

    def sealed(self) -> int:
        """Number of first records that are known to have reached the disk whole."""
        path = self.folder / "sealed.json"
        return min(int(read_json(path)["records"]), len(self)) if path.exists() else 0

    def seal(self) -> None:
        """See everything to the disk and note that it is there."""
        for path in (*(self.file(c) for c in self.columns), self.folder / "index.bin"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        write_json(self.folder / "sealed.json", {"records": len(self)})

    def repair(self) -> int:
        """Cut off what a kill or a power cut left behind; to be called by the one process that writes.

        Records written since the last seal are held against their checksums, and the first bad one and all
        behind it go. Returns the number of records kept.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.reload()
        sealed = self.sealed()
        unsound = (row for row in range(sealed, len(self)) if not self._sound(row))
        count = next(unsound, len(self))
        self._maps = {}
        sizes = [(self.file(c), c.nbytes) for c in self.columns]
        for path, size in [*sizes, (self.folder / "index.bin", _ENTRY.itemsize)]:
            with path.open("ab") as file:
                file.truncate(count * size)
        self.reload()
        return count

    def verify(self) -> list[int]:
        """Rows whose record does not have the checksum it was written with."""
        return [row for row in range(len(self)) if not self._sound(row)]

    def _sound(self, row: int) -> bool:
        crc = 0
        for column in self.columns:
            crc = zlib.crc32(np.ascontiguousarray(self._map(column)[row]).data, crc)
        return crc == int(self._crcs[row])

    def append(self, digests: list[bytes], values: Mapping[str, np.ndarray]) -> None:
        """Add records: `values[name]` is (n, *shape). Data first, the index last."""
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
                f"The view bank in {self.folder} could not grow ({error.strerror or error}); what it held is kept: "
                "free some disk space, or choose another folder with --bank, and run again."
            ) from error
        for digest in digests:
            self._rows[digest] = len(self._rows)
        self._crcs = np.concatenate([self._crcs, np.array(crcs, dtype=np.uint32)])
        self._maps = {}

    def rows(self, digests: list[bytes]) -> Tensor:
        """(n,) rows of the records with these fingerprints."""
        return torch.tensor([self._rows[digest] for digest in digests], dtype=torch.long)

    def digests(self) -> list[bytes]:
        """The fingerprint of each row."""
        return list(self._rows)

    def gather(self, column: Column, rows: Tensor, parts: int = 1) -> Tensor:
        """Values of `rows` (n,), read through the memory map, as (n, *shape).

        With `parts` > 1 a record is taken as that many equal parts on its first axis and `rows` counts parts:
        part v of record r is r * parts + v, and the result is (n, *shape[1:]).
        """
        values = torch.from_numpy(self._map(column))
        if parts > 1:
            values = values.flatten(0, 1)
        taken = values.index_select(0, rows)
        with self._lock:
            self._read_bytes += taken.nbytes
            if self._read_bytes > _RESIDENT_BYTES:
                self._read_bytes = 0
                if hasattr(mmap, "MADV_DONTNEED"):
                    for mapped in self._maps.values():
                        mapped._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        return taken

    def _map(self, column: Column) -> np.memmap:
        mapped = self._maps.get(column.name)
        if mapped is None:
            # Copy-on-write: torch wants writable memory; nothing here writes, and the file could not change.
            shape = (len(self), *column.shape)
            mapped = np.memmap(self.file(column), dtype=column.dtype, mode="c", shape=shape)
            self._maps[column.name] = mapped
        return mapped
