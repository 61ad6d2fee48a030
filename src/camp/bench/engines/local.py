"""This machine: some processes that each carry out one run after another.

They are started once, so that torch is loaded once; each has its share of the cores. One that dies, for want of memory or by
a signal, loses its run: another process takes it up from its checkpoint, once.
"""

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from camp.bench.engines import Ended
from camp.bench.settings import RunSettings
from camp.bench.studies.banks import fill_bank
from camp.bench.studies.jobs import Job, carry_out
from camp.core.progress import Progress

TRIES = 2
"""Processes that a run may take down with it."""


class LocalEngine:
    """`jobs` processes of this machine, each with `threads`, or with its share of the cores."""

    def __init__(self, jobs: int = 1, threads: int | None = None) -> None:
        self.jobs = jobs
        self.threads = threads or max(1, len(os.sched_getaffinity(0)) // jobs)

    def fill_bank(self, settings: RunSettings, progress: Progress) -> None:
        """With all cores, where each run has only some of them."""
        if self.jobs > 1:
            fill_bank(settings, progress)

    def carry_out(self, jobs: Sequence[Job]) -> Iterator[Ended | None]:
        """Jobs as they end, and None while nothing does."""
        waiting = [(job, 1) for job in jobs]
        idle = [_Worker(self.threads) for _ in range(min(self.jobs, len(waiting)))]
        busy: dict[_Worker, tuple[Job, int]] = {}
        try:
            while waiting or busy:
                while waiting and idle:
                    worker, (job, attempt) = idle.pop(), waiting.pop(0)
                    worker.begin(job)
                    busy[worker] = (job, attempt)
                ready = wait([worker.pipe for worker in busy], timeout=0.5)
                if not ready:
                    yield None
                for worker in [worker for worker in busy if worker.pipe in ready]:
                    job, attempt = busy.pop(worker)
                    alive, fault = worker.answer()
                    idle.append(worker if alive else _Worker(self.threads))
                    if not alive and attempt < TRIES:
                        waiting.append((job, attempt + 1))
                        continue
                    yield Ended(job, fault)
        finally:
            for worker in (*idle, *busy):
                worker.stop()


class _Worker:
    """A process, and the pipe to it."""

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, threads), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, job: Job) -> None:
        self.pipe.send(job)

    def answer(self) -> tuple[bool, str | None]:
        """Whether the process is still there, and why the job failed."""
        try:
            return True, self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode or 0
            cause = f"signal {-code}" if code < 0 else f"exit code {code}"
            return False, f"The process ended before the run did ({cause}); perhaps memory ran out."

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _serve(pipe: Connection, threads: int) -> None:
    """Carry out jobs until there is nobody to ask for more."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        try:
            fault = carry_out(job, threads)
        except KeyboardInterrupt:
            return
        pipe.send(fault)


def _end_with_parent() -> None:
    """A study that was killed takes its runs with it, so that the same command can go on with them at once."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
