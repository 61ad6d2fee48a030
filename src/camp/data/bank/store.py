"""Append-only store of fixed-size records, addressed by digest: the file format of the view bank.

A folder holds one raw file per column and `index.bin`. Records are written before their index
entries, so a process that is killed loses at most its last block; each index entry carries a
checksum of its record, which is compared when the record is first read. `sealed.json` says how many
records are known to be on disk, with a checksum of their index (not in banks of version 0.1.0).

A damaged record is removed by clearing its digest in the index; its place stays, and the record is
appended again.
"""

import mmap
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.files import atomic_write, checksum, make_folder, read_json, sync_file, sync_folder, write_json
from camp.data.images import DIGEST_BYTES

_REMOVED = b"\xff" * DIGEST_BYTES
"""Digest of a removed record."""
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


class DamagedBankError(CampError):
    """Records are not what was written."""


class Store:
    """Records in `folder`, in the order in which they were appended."""

    def __init__(self, folder: Path, columns: tuple[Column, ...]) -> None:
        self.folder = folder
        self.columns = columns
        self._rows: dict[bytes, int] = {}
        self._entries = np.empty(0, dtype=_ENTRY)
        self._intact = np.empty(0, dtype=bool)  # of each row, whether it was compared with its checksum
        self._maps: dict[str, np.memmap] = {}
        self._read_bytes = 0
        self._lock = threading.Lock()
        self.reload()

    def __len__(self) -> int:
        return len(self._entries)

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
        self._entries = entries[:count].copy()
        digests = (bytes(digest) for digest in self._entries["digest"])
        self._rows = {digest: row for row, digest in enumerate(digests) if digest != _REMOVED}
        self._intact = np.zeros(count, dtype=bool)
        self._maps = {}

    def sealed(self) -> int:
        """Return the number of leading records that are known to be on disk, 0 if their index is damaged."""
        return min(self._seal()[0], len(self)) if self.index_is_intact() else 0

    def index_is_intact(self) -> bool:
        """Return whether the index of the sealed records is what was written; True if records are missing."""
        records, index = self._seal()
        return records > len(self) or index in (None, checksum(self._entries[:records].tobytes()))

    def missing(self) -> int:
        """Return the number of sealed records that are missing."""
        return max(self._seal()[0] - len(self), 0)

    def _seal(self) -> tuple[int, str | None]:
        """Return the number of records and the checksum of their index in `sealed.json`."""
        path = self.folder / "sealed.json"
        if not path.exists():
            return 0, None
        try:
            values = read_json(path)
            return max(0, int(values["records"])), values.get("index")
        except (CampError, AttributeError, LookupError, TypeError, ValueError):
            return 0, None  # then everything is compared with its checksum again

    def seal(self) -> None:
        """Flush all records to the disk and write their number to `sealed.json`."""
        for path in (*(self.file(c) for c in self.columns), self.folder / "index.bin"):
            sync_file(path)
        sync_folder(self.folder)
        self._write_seal(len(self))

    def _write_seal(self, records: int) -> None:
        index = checksum(self._entries[:records].tobytes())
        write_json(self.folder / "sealed.json", {"records": records, "index": index})

    def repair(self) -> int:
        """Remove incomplete records after a crash; only the process that writes may call it.

        Records written since the last `seal` are compared with their checksums; the first damaged
        one and all after it are removed. Returns the number of remaining records.
        """
        make_folder(self.folder)
        self.reload()
        sealed, (ever_sealed, _) = self.sealed(), self._seal()
        damaged = [row for row in range(sealed, len(self)) if not self._is_intact(row)]
        # Behind what was sealed it is a crash that left them incomplete, before that they were changed later.
        count = next((row for row in damaged if row >= ever_sealed), len(self))
        if damaged and damaged[0] < count:
            self.remove([row for row in damaged if row < count])
        if ever_sealed > count or (ever_sealed and not sealed):
            self._write_seal(min(ever_sealed, count))
        self._maps = {}
        sizes = [(self.file(c), c.nbytes) for c in self.columns]
        for path, size in [*sizes, (self.folder / "index.bin", _ENTRY.itemsize)]:
            with path.open("ab") as file:
                file.truncate(count * size)
        self.reload()
        return count

    def remove(self, rows: list[int]) -> None:
        """Remove records from the index, which is replaced; only the process that writes may call it."""
        self._entries["digest"][rows] = np.frombuffer(_REMOVED, np.uint8)
        with atomic_write(self.folder / "index.bin") as file:
            file.write(self._entries.tobytes())
        self._write_seal(min(self._seal()[0], len(self)))
        self.reload()

    def verify(self) -> list[int]:
        """Return the rows whose record does not match its checksum."""
        found = []
        for row in range(len(self)):
            if not self._is_intact(row):
                found.append(row)
            self._count_read(self._record_bytes())
        return found

    def _is_intact(self, row: int) -> bool:
        """Return whether a record matches its checksum, or was removed."""
        if bytes(self._entries["digest"][row]) == _REMOVED:
            return True
        crc = 0
        for column in self.columns:
            crc = zlib.crc32(self._map(column)[row].data, crc)
        return crc == int(self._entries["crc"][row])

    def _record_bytes(self) -> int:
        return sum(column.nbytes for column in self.columns)

    def _check(self, rows: np.ndarray) -> None:
        """Compare the records `rows` with their checksums, each once; raise an error for a damaged one."""
        new = rows[~self._intact[rows]] if len(rows) else rows
        if not len(new):
            return
        new = np.unique(new)
        damaged = [row for row in new.tolist() if not self._is_intact(row)]
        if damaged:
            bank = self.folder.parent
            raise DamagedBankError(
                f"The view bank {bank} is damaged: {len(damaged)} of {len(new)} records that were read are not what was "
                f"written. `camp check {bank} --repair` removes damaged records, and the next run computes them again."
            )
        self._intact[new] = True
        self._count_read(len(new) * self._record_bytes())

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
        self._rows.update((digest, row) for row, digest in enumerate(digests, start=len(self)))
        self._entries = np.concatenate([self._entries, entries])
        self._intact = np.concatenate([self._intact, np.zeros(len(digests), dtype=bool)])
        self._maps = {}

    def rows(self, digests: list[bytes]) -> Tensor:
        """Return the rows (n,) of the records with these digests."""
        return torch.tensor([self._rows[digest] for digest in digests], dtype=torch.long)

    def digests(self) -> list[bytes]:
        """Return the digest of each record, in the order of their rows."""
        return list(self._rows)

    def gather(self, column: Column, rows: Tensor, parts: int = 1) -> Tensor:
        """Read the values of `rows` (n,) through the memory map, as (n, *shape).

        With `parts` > 1 the first axis of a record is an axis of parts, and `rows` index parts:
        part v of record r is r * parts + v, and the result is (n, *shape[1:]). A record is compared
        with its checksum when it is read for the first time.
        """
        self._check(rows.numpy() // parts)
        values = torch.from_numpy(self._map(column))
        if parts > 1:
            values = values.flatten(0, 1)
        selected = values.index_select(0, rows)
        self._count_read(selected.nbytes)
        return selected

    def _count_read(self, nbytes: int) -> None:
        """Release the pages of the memory maps after many bytes were read."""
        with self._lock:
            self._read_bytes += nbytes
            if self._read_bytes > _RESIDENT_BYTES:
                self._read_bytes = 0
                if hasattr(mmap, "MADV_DONTNEED"):
                    for mapped in self._maps.values():
                        mapped._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]

    def _map(self, column: Column) -> np.memmap:
        mapped = self._maps.get(column.name)
        if mapped is None:
            # Copy-on-write, because torch requires writable memory; nothing writes to it.
            shape = (len(self), *column.shape)
            mapped = np.memmap(self.file(column), dtype=column.dtype, mode="c", shape=shape)
            self._maps[column.name] = mapped
        return mapped
