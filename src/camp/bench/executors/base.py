"""Jobs, how one is carried out, and the interface of executors."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from camp.bench.settings import RunSettings
from camp.core import distributed
from camp.core.errors import CampError, LostProcessError
from camp.core.progress import Progress


@dataclass(frozen=True)
class Job:
    """A run to carry out."""

    label: str
    """Names the run in messages."""
    settings: RunSettings
    folder: Path
    """The run folder."""
    log: Path | None = None
    """File for everything that the run prints; None for the screen."""
    tips: Path | None = None
    """Folder of trained networks that runs share."""
    command: str = "camp study"
    """The command that started the run."""


@dataclass(frozen=True)
class JobResult:
    """The outcome of a job."""

    job: Job
    error: str | None
    """Why it failed, in a sentence; None if it succeeded."""


class Executor(Protocol):
    """Carries out jobs."""

    shows_progress: bool
    """Whether the jobs themselves show their progress on the screen."""

    def fill_bank(self, settings: RunSettings, progress: Progress) -> None:
        """Fill the view bank of a run in advance, if that is faster than leaving it to the run."""
        ...

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult | None]:
        """Yield results in any order as jobs end, and None about twice a second while none does."""
        ...


def run_job(job: Job, progress: Progress) -> str | None:
    """Start or continue the run of a job; returns why it failed, in a sentence, or None.

    A run that was started before keeps the settings of its folder.
    """
    from camp.bench.run_folder import RunFolder
    from camp.bench.run_loop import run_or_resume
    from camp.bench.trained_tips import TrainedTips

    tips = TrainedTips(job.tips) if job.tips is not None else None
    started = distributed.broadcast(RunFolder(job.folder).is_started())
    try:
        run_or_resume(None if started else job.settings, job.folder, progress, job.command, tips)
    except LostProcessError:
        raise
    except CampError as error:
        return str(error)
    return None


def run_logged_job(job: Job, threads: int) -> str | None:
    """Carry out a job with `threads` threads and everything it prints in its log."""
    import torch

    torch.set_num_threads(threads)
    assert job.log is not None
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("a", encoding="utf-8", buffering=1) as log, _redirected(log):
        try:
            error = run_job(job, Progress())
        except Exception as unexpected:
            traceback.print_exc()
            return f"{type(unexpected).__name__}: {unexpected}"
        if error is not None:
            print(f"camp: {error}")
        return error


@contextlib.contextmanager
def _redirected(log: TextIO) -> Iterator[None]:
    """Send both outputs of the process to `log`, those of libraries in other languages too."""
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
