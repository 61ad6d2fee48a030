"""Files that a person names as the output of a command: `--out`, or the file of `camp export`.

A regular file is replaced once the new one is complete. A device, a FIFO or `/dev/stdout` is written through, and a
symbolic link stays one: the file that it leads to is replaced. Files that a command reads are refused.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from camp.core.errors import CampError
from camp.core.files import atomic_write


def is_stream(path: Path) -> bool:
    """Return whether `path` leads to something that cannot be replaced: a device, a FIFO, a file descriptor.

    >>> is_stream(Path("/dev/null")), is_stream(Path("birds.csv"))
    (True, False)
    """
    if path.absolute().parts[:2] in (("/", "dev"), ("/", "proc")):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def check_output(path: Path, option: str, folders: Iterable[Path] = (), files: Iterable[Path] = ()) -> None:
    """Raise a `CampError` if `path` cannot be the output of a command.

    Args:
        path: The path that was given.
        option: What the path was given as, for the message: "--out".
        folders: Folders in which nothing may be written, such as a workspace.
        files: Files that may not be replaced, such as the input.
    """
    try:
        if path.is_dir():
            raise CampError(f"{option} {path} is a folder; give the name of a file.")
        target = Path(os.path.realpath(path))
        for folder in folders:
            if target.is_relative_to(os.path.realpath(folder)):
                raise CampError(
                    f"{option} {path} is in {folder}, whose files would be damaged; choose another place."
                )
        if target.is_file():
            about = target.stat()
            for file in files:
                with contextlib.suppress(OSError):  # it cannot be read either
                    if os.path.samestat(about, file.stat()):
                        raise CampError(
                            f"{option} {path} would replace {file}, which is read; choose another name."
                        )
    except OSError as error:
        raise CampError(f"Could not write {path}: {error.strerror or error}.") from error


@contextlib.contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """Open the output of a command for writing, see the module.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "birds.csv"
    >>> with open_output(target) as file:
    ...     _ = file.write(b"file,category")
    >>> target.read_bytes()
    b'file,category'
    """
    if not is_stream(path):
        with atomic_write(Path(os.path.realpath(path)) if path.is_symlink() else path) as file:
            yield file
        return
    try:
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise CampError(f"Could not write {path}: {error.strerror or error}.") from error


def write_output(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to the output of a command."""
    with open_output(path) as file:
        file.write(text.encode())
