"""Processes of a Ray cluster on this machine, one of which is killed."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path


def workers(name: str) -> list[int]:
    """Processes that carry out the task or actor `name` now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(f"ray::{name}".encode()):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@contextlib.contextmanager
def killed_once(name: str, begun: Callable[[], bool]) -> Iterator[list[int]]:
    """Kill one worker once the work has begun; gives a list that holds its process id afterwards."""
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        while not killed and not ended.wait(0.002):
            if begun() and (found := workers(name)):
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(found[0], signal.SIGKILL)
                    killed.append(found[0])

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()
