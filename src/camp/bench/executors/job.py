"""Carrying out a job, the same for all executors."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from typing import TextIO

import torch

from camp.bench.executors.base import Job
from camp.bench.run_folder import RunFolder
from camp.bench.run_loop import run_or_resume
from camp.bench.trained_tips import TrainedTips
from camp.core import distributed
from camp.core.errors import CampError, LostProcessError
from camp.core.progress import Progress


def run_job(job: Job, progress: Progress) -> str | None:
    """Start or continue the run of a job; returns why it failed, in a sentence, or None.

    A run that was started before keeps the settings of its folder.
    """
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
