"""Real processes that train together, as torchrun starts them, for the tests of camp.core.distributed."""

import os
import socket
import subprocess
import sys
from pathlib import Path

TORCHRUN = Path(sys.executable).parent / "torchrun"


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def started(script: str, number: int, count: int, port: int, **options: object) -> subprocess.Popen:
    """Process `number` of `count` running the Python text `script`."""
    env = os.environ | {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", script]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=env, **pipes, **options)  # type: ignore[call-overload]


def together(script: str, count: int = 2) -> list[str]:
    """What each of `count` processes prints that run `script` together; all must end well."""
    port = free_port()
    running = [started(script, number, count, port) for number in range(count)]
    outputs = [process.communicate(timeout=300) for process in running]
    for process, (_, errors) in zip(running, outputs):
        assert process.returncode == 0, errors
    return [printed for printed, _ in outputs]
