"""What the machine offers, on every supported system."""

import os
from pathlib import Path

PROCESSES = Path("/proc")
"""Where Linux describes processes."""


def available_cores() -> int:
    """Return the number of cores that this process may use; where the system does not say, that of the machine."""
    if hasattr(os, "sched_getaffinity"):  # Linux alone has it
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def let_waiting_threads_sleep() -> None:
    """Let the threads of numerical libraries sleep while they wait for each other, unless the environment says otherwise.

    By default they keep their cores busy, which takes several times as long where other programs need the cores. It has
    an effect before such a library is imported, and in processes that are started afterwards.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def has_ended(process: int) -> bool:
    """Return whether a process has ended and its parent has not noticed yet; False where the system does not say."""
    try:
        status = (PROCESSES / str(process) / "stat").read_bytes()
    except OSError:
        return False
    return status.rpartition(b")")[2].split()[:1] == [b"Z"]
