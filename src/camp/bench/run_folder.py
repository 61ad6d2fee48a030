"""The folder of a run: whether it is free, whose it is, and who may write in it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from camp.bench.settings import RunSettings, from_dict
from camp.core import distributed
from camp.core.errors import CampError
from camp.core.files import read_json


def read_config(out: Path) -> tuple[RunSettings, str]:
    """Settings and command of the run in `out`."""
    config = config_of(out)
    return from_dict(config["settings"]), config.get("command", "")


def config_of(out: Path) -> dict[str, Any]:
    """The config.json of the run in `out`."""
    path = out / "config.json"
    if not path.exists():
        raise CampError(f"{out} holds no run: there is no config.json in it.")
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("settings"), dict):
        raise CampError(f"{path} is not that of a run; choose another folder.")
    return config


def check_free(out: Path) -> None:
    """Refuse a folder that holds a run, or several; that of the first process counts."""
    if not distributed.is_main_process():
        return
    if (out / "config.json").exists() or (out / "several.json").exists():
        raise CampError(
            f"{out} already holds a run: continue it with --resume {out}, or choose another --out."
        )


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[None]:
    """Make the folder `out` and hold its lock; one that holds a run already is refused."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CampError(f"The folder {out} could not be made ({error.strerror or error}).") from error
    with alone_in(out):
        check_free(out)  # another process may have been faster
        yield


@contextlib.contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Hold the folder's lock: two processes in one folder would spoil it."""
    lock = FileLock(out / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise CampError(f"Another process is working on {out}; wait for it or stop it.") from None
    try:
        yield
    finally:
        lock.release()
