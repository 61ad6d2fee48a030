"""A copy, on this machine's disk, of images that are slow to read again."""

import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from camp.app.inputs.listed import SourceReader
from camp.core.errors import CampError
from camp.data.images import UnreadableImageError


class CopyingReader(SourceReader):
    """Reader that copies what it reads into a temporary file, from which it is read the next time.

    The file has no name and is gone with the process. `TMPDIR` sets the folder.
    """

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader
        self._places: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the reader exists)
        self._end = 0

    def read(self, key: str) -> bytes:
        """Return the bytes of image `key`."""
        if key not in self._places:
            data = self._reader.read(key)
            with self._lock:
                self._append(key, data)
            return data
        with self._lock:
            start, size = self._places[key]
            self._file.seek(start)
            return self._file.read(size)

    def _append(self, key: str, data: bytes) -> None:
        try:
            self._file.seek(self._end)
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise CampError(
                f"There is no room for a copy of the pictures in {tempfile.gettempdir()} ({error.strerror or error}); "
                "set TMPDIR to a folder with more."
            ) from error
        self._places[key] = self._end, len(data)
        self._end += len(data)

    def part(self, keys: Sequence[str]) -> SourceReader:
        """Return a reader that holds the bytes of these images, as the copy is on this machine only."""
        return BytesReader({key: self.read(key) for key in keys})


@dataclass(frozen=True)
class BytesReader(SourceReader):
    """Reader of images that are in memory."""

    content: Mapping[str, bytes]

    def read(self, key: str) -> bytes:
        """Return the bytes of image `key`."""
        if key not in self.content:
            raise UnreadableImageError("it is not among the pictures that were sent")
        return self.content[key]
