"""Carrying out one run of a study, in whatever process an engine gives it."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camp.core.errors import CampError


@dataclass(frozen=True)
class Job:
    """A run that is missing."""

    label: str
    settings: dict[str, Any]
    """As in config.json."""
    folder: Path
    """Of the run."""
    log: Path
    """What it says goes there."""
    tips: Path | None = None
    """Folder of the tips that runs with the same phase 1 share."""


def carry_out(job: Job, threads: int | None = None) -> str | None:
    """Begin or resume the run; why it failed, in a sentence, or None.

    Everything it prints goes to its log.
    """
    import torch

    from camp.bench.experiment import resume, start
    from camp.bench.settings import from_dict
    from camp.bench.trained_tips import TrainedTips
    from camp.core.progress import Progress

    if threads is not None:
        torch.set_num_threads(threads)
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("a", encoding="utf-8", buffering=1) as log, _said_to(log):
        tips = TrainedTips(job.tips) if job.tips is not None else None
        try:
            if (job.folder / "config.json").exists():
                resume(job.folder, Progress(), tips)
            else:
                start(from_dict(job.settings), job.folder, Progress(), "camp study", tips)
        except CampError as error:
            print(f"camp: {error}")
            return str(error)
        except Exception as error:
            traceback.print_exc()
            return f"{type(error).__name__}: {error}"
    return None


@contextlib.contextmanager
def _said_to(log: Any) -> Iterator[None]:
    """Both outputs of the process to `log`, those of libraries in other languages too."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in kept:
            os.dup2(log.fileno(), number)
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
