"""Atomic file writing and JSON input and output."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from camp.core.errors import CampError


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file that replaces `path` only once it is complete and on disk.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_write(target) as file:
    ...     _ = file.write(b"whole")
    >>> target.read_bytes()
    b'whole'
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise CampError(f"Could not write {path}: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


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
    """Append one line to a JSON Lines file and flush it."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value, ensure_ascii=False) + "\n")
            file.flush()
    except OSError as error:
        raise CampError(f"Could not append to {path}: {error.strerror or error}.") from error


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
