"""A process whose children run `camp` and kill themselves at a named point of learning, as a crash would.

It reads lines `{"point": ..., "words": [...], "said": ...}`, forks a child for each, and answers with the signal that
ended it (0 for none) and its exit code; what the child says goes to the file `said`. Forked, because importing what
learning needs takes longer than learning a small batch.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sklearn.datasets  # noqa: F401
import torch._dynamo  # noqa: F401  (the optimiser brings it when it is first made)

from camp.app.workspace import pipeline, step_files, storage
from camp.app.workspace import thumbnails as thumbnail_files
from camp.app.workspace.events import Event
from camp.cli import main
from camp.data.bank.store import Store
from camp.discovery.open_world_discoverer import OpenWorldDiscoverer
from camp.methods.tip_method import TipMethod


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, number: int = 1, then: Callable[..., None] = lambda *_: die()) -> None:
    """Have `owner.name` do `then` first in the call with this number."""
    original, calls = getattr(owner, name), 0

    def replaced(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            then(*arguments)
        return original(*arguments, **options)

    setattr(owner, name, replaced)


def bank() -> None:
    """With half of a record in the bank."""

    def torn(store: Store, digests: list[bytes], values: Any) -> None:
        column = store.columns[0]
        block = values[column.name].astype(column.dtype).tobytes()
        with store.file(column).open("ab") as file:
            file.write(block[: len(block) // 2 + 1])
        die()

    before(Store, "append", 1, torn)


def training() -> None:
    """In the second epoch."""
    before(TipMethod, "train_epoch", 2)


def clustering() -> None:
    """Before the categories are found."""
    before(OpenWorldDiscoverer, "discover")


def thumbnails() -> None:
    """With two of the thumbnails there."""
    before(thumbnail_files, "save_thumbnail", 3)


def writing() -> None:
    """With half of the step's files there."""
    before(step_files, "_write", 2)


def entering() -> None:
    """With the step in its place, and nothing in the log."""
    before(storage, "append_event")


def event() -> None:
    """In the middle of the line in the log."""

    def torn(path: Path, event: Event) -> None:
        with path.open("a") as file:
            file.write(event.line()[:30])
        die()

    before(storage, "append_event", 1, torn)


def forgetting() -> None:
    """With the step in the log, and all that it replaces still there."""
    before(step_files, "remove_model")


def beginning() -> None:
    """With a workspace that was just begun."""
    before(storage.FolderStorage, "lock", 2)  # the first time is for creating it


def waiting() -> None:
    """It does not die but stays, with the lock, until it is killed."""

    def wait(*_: Any) -> None:
        Path("waiting").write_text(str(os.getpid()))
        signal.pause()

    before(pipeline, "learn", 1, wait)


def disk(largest: int) -> Callable[[], None]:
    """No file may grow beyond `largest` bytes; writing more fails, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))


POINTS = (bank, training, clustering, thumbnails, writing, entering, event, forgetting, beginning, waiting)


def serve() -> None:
    """Answer requests until there are no more."""
    points: dict[str, Callable[[], None]] = {point.__name__: point for point in POINTS}
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            said = os.open(request["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            for stream in (sys.stdout, sys.stderr):
                os.dup2(said, stream.fileno())
            os.chdir(request["folder"])
            (points.get(request["point"]) or disk(int(request["point"])))()
            os._exit(main(request["words"]))
        _, status = os.waitpid(child, 0)
        print(
            json.dumps([status & 0x7F, os.WEXITSTATUS(status) if os.WIFEXITED(status) else None]), flush=True
        )


if __name__ == "__main__":
    serve()
