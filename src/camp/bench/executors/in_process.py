"""An executor that runs jobs one after another in this process, or together in all processes of torchrun."""

from collections.abc import Iterator, Sequence

from camp.bench.executors.base import Job, JobResult
from camp.bench.executors.job import run_job
from camp.bench.settings import RunSettings
from camp.core.progress import Progress


class InProcessExecutor:
    """Runs jobs one after another and shows the progress of each."""

    shows_progress = True

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def fill_bank(self, settings: RunSettings, progress: Progress) -> None:
        """Leave the bank to the first run that reads it."""

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult | None]:
        """Yield the result of each job in turn."""
        for number, job in enumerate(jobs, start=1):
            self.progress.note(f"Run {number} of {len(jobs)}: {job.label}")
            yield JobResult(job, run_job(job, self.progress))
