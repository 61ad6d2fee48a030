"""An executor with processes of this machine, each of which carries out one run after another.

The processes are started once, so that torch is loaded once; each has its share of the cores. The run of a process
that dies is continued from its checkpoint by another one, once.
"""

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from camp.bench.executors.base import Job, JobResult
from camp.bench.executors.job import run_logged_job
from camp.bench.experiment import Experiment
from camp.bench.settings import RunSettings
from camp.core.machine import available_cores
from camp.core.progress import Progress

MAX_ATTEMPTS = 2
"""Number of processes in which a run is tried."""


class LocalExecutor:
    """Runs jobs in processes of this machine.

    Args:
        jobs: Number of processes.
        threads: Threads of each process; by default its share of the cores.
    """

    shows_progress = False

    def __init__(self, jobs: int = 1, threads: int | None = None) -> None:
        self.jobs = jobs
        self.threads = threads or max(1, available_cores() // jobs)

    def fill_bank(self, settings: RunSettings, progress: Progress) -> None:
        """Fill the bank with all cores, where each run has only some of them."""
        if self.jobs > 1:
            Experiment.prepare(settings).fill_bank(progress)

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult | None]:
        """Yield results as jobs end, and None while none does."""
        waiting = [(job, 1) for job in jobs]
        idle = [_Worker(self.threads) for _ in range(min(self.jobs, len(waiting)))]
        busy: dict[_Worker, tuple[Job, int]] = {}
        try:
            while waiting or busy:
                while waiting and idle:
                    worker, (job, attempt) = idle.pop(), waiting.pop(0)
                    worker.start(job)
                    busy[worker] = (job, attempt)
                ready = wait([worker.pipe for worker in busy], timeout=0.5)
                if not ready:
                    yield None
                for worker in [worker for worker in busy if worker.pipe in ready]:
                    job, attempt = busy.pop(worker)
                    alive, error = worker.result()
                    idle.append(worker if alive else _Worker(self.threads))
                    if not alive and attempt < MAX_ATTEMPTS:
                        waiting.append((job, attempt + 1))
                        continue
                    yield JobResult(job, error)
        finally:
            for worker in (*idle, *busy):
                worker.stop()


class _Worker:
    """A process and the pipe to it."""

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, threads), daemon=True)
        self.process.start()
        theirs.close()

    def start(self, job: Job) -> None:
        self.pipe.send(job)

    def result(self) -> tuple[bool, str | None]:
        """Return whether the process is alive, and why the job failed."""
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
    """Carry out jobs until the pipe is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        try:
            error = run_logged_job(job, threads)
        except KeyboardInterrupt:
            return
        pipe.send(error)


def _end_with_parent() -> None:
    """End with the process of the study, so that the same command can continue its runs at once."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
