"""Processes of a distributed run, for the tests of camp.core.distributed."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TORCHRUN = Path(sys.executable).parent / "torchrun"


def free_port() -> int:
    """An unused port of this machine."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def process_env(rank: int, count: int, port: int) -> dict[str, str]:
    """Environment variables that torchrun sets for process `rank` of `count`."""
    return os.environ | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }


def run_together(script: str, count: int, codes: Sequence[int] | None = None) -> list[str]:
    """Run the Python text `script` in `count` processes, check their exit codes, and return what each prints."""
    port = free_port()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=process_env(rank, count, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    outputs = [process.communicate(timeout=300) for process in running]
    for process, code, (_, errors) in zip(running, codes or [0] * count, outputs):
        assert process.returncode == code, errors
    return [printed for printed, _ in outputs]
