"""Jobs, and the interface of executors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from camp.bench.settings import RunSettings
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
