"""Files that survive a crash: atomic replacement, appended lines, JSON, and checksums.

What a function here has written is on disk when it returns, with the entry of its folder, so that a power failure
cannot take it away or change the order: data, fsync, rename, fsync of the folder.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from camp.core.errors import CampError

_CHUNK = 2**20


@contextlib.contextmanager
def atomic_write(path: Path, sync_entry: bool = True) -> Iterator[BinaryIO]:
    """Open a binary file that replaces `path` only once it is complete and on disk.

    Args:
        path: The file; missing folders above it are made.
        sync_entry: Whether the new file is sure to be found after a power failure. Without it, which is faster, the
            former file may come back then, or none where there was none.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_write(target) as file:
    ...     _ = file.write(b"whole")
    >>> target.read_bytes()
    b'whole'
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        make_folder(path.parent)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        if sync_entry:
            sync_folder(path.parent)
    except OSError as error:
        raise CampError(f"Could not write {path}: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless they exist, and sync the entries of new ones."""
    missing = [path]
    while not missing[-1].exists() and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    path.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing[:-1]):
        sync_folder(made.parent)


def sync_folder(path: Path) -> None:
    """Write the entries of a folder (new, renamed and removed files) to the disk."""
    if os.name == "nt":  # where a folder cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Write the content of a file to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_tree(folder: Path) -> None:
    """Write all files and folders below `folder`, and its entries, to the disk."""
    for path in sorted(folder.rglob("*")):
        sync_folder(path) if path.is_dir() else sync_file(path)
    sync_folder(folder)


def replace_folder(temporary: Path, folder: Path) -> None:
    """Give the complete folder `temporary` the name `folder`, which does not exist or is empty."""
    sync_tree(temporary)
    temporary.replace(folder)
    sync_folder(folder.parent)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or damaged one is a `CampError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CampError(f"Could not read {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise CampError(f"{path} is not valid JSON ({error}).") from error


def append_json_line(path: Path, value: Any) -> None:
    """Append one line to a JSON Lines file; it is on disk when this returns."""
    try:
        append(path, (json.dumps(value, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise CampError(f"Could not append to {path}: {error.strerror or error}.") from error


def append(path: Path, data: bytes, end: int | None = None) -> None:
    """Append to a file, which is created if needed; without success the file is as it was before.

    Args:
        path: The file.
        data: What is appended.
        end: Where it is appended; what the file holds behind this place is removed. By default its end.
    """
    new = not path.exists()
    with path.open("ab") as file:
        end = file.seek(0, os.SEEK_END) if end is None else end
        try:
            file.truncate(end)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(end)
            raise
    if new:
        sync_folder(path.parent)


def read_json_lines(path: Path) -> list[Any]:
    """Read all complete lines of a JSON Lines file; lines that are not valid JSON are skipped."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CampError(f"Could not read {path}: {error.strerror or error}.") from error
    rows = []
    for line in content.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            rows.append(json.loads(line))
    return rows


def expand_user(path: str | os.PathLike[str]) -> Path:
    """Replace `~` by the user's home folder, and leave a home folder that does not exist as it is.

    >>> expand_user("~nobody-of-this-name/x").as_posix()
    '~nobody-of-this-name/x'
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111 - `Path.expanduser` raises RuntimeError


# Checksums.


def checksum(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file, as the program sha256sum prints it."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


@dataclass(frozen=True)
class FileMark:
    """What a file was at some time."""

    size: int
    checksum: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """Describe a file as it is."""
        return cls(path.stat().st_size, file_checksum(path))


def with_checksum(values: dict[str, Any]) -> dict[str, Any]:
    """Return JSON values with the key "checksum", which `checksum_fits` compares."""
    return {**values, "checksum": checksum(_canonical(values))}


def checksum_fits(values: dict[str, Any]) -> bool:
    """Return whether the values of a JSON file are those that were written; True if they have no checksum.

    >>> checksum_fits(with_checksum({"task": 1})), checksum_fits(with_checksum({"task": 1}) | {"task": 2})
    (True, False)
    """
    rest = {key: value for key, value in values.items() if key != "checksum"}
    return "checksum" not in values or values["checksum"] == checksum(_canonical(rest))


def _canonical(values: dict[str, Any]) -> bytes:
    read = json.loads(
        json.dumps(values)
    )  # keys are strings in the file, which are sorted otherwise than numbers
    return json.dumps(read, sort_keys=True).encode()
