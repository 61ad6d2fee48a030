"""Files under temporary names, `.NAME.PID.tmp`, that processes have left behind when they were killed."""

import contextlib
import os
import re
import shutil
from pathlib import Path

from camp.core.machine import has_ended

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<process>[0-9]+)\.tmp")


def remove_abandoned(folder: Path, name: str | None = None) -> None:
    """Remove temporary files and folders of processes that are gone.

    Args:
        folder: Where they are looked for, with the folders below it.
        name: Only temporary files of this name, in `folder` itself.
    """
    for path in list(folder.glob(".*.tmp") if name is not None else folder.rglob(".*.tmp")):
        found = _TEMPORARY.fullmatch(path.name)
        if found is None or (name is not None and found["name"] != name) or _is_alive(int(found["process"])):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def _is_alive(process: int) -> bool:
    """Return whether a process runs on this machine."""
    if not process or has_ended(process):
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it belongs to another user
        return True
    return True
