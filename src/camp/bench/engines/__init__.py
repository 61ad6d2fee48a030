"""Where the runs of a study are carried out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from camp.bench.settings import RunSettings
from camp.bench.studies.jobs import Job
from camp.core.progress import Progress


@dataclass(frozen=True)
class Ended:
    """A job that is over."""

    job: Job
    fault: str | None
    """Why it failed; None if it went well."""


class Engine(Protocol):
    """Carries out jobs, several at a time."""

    jobs: int
    """How many at a time."""

    def fill_bank(self, settings: RunSettings, progress: Progress) -> None:
        """Make the view bank of a run before it, if that is faster than leaving it to the run."""
        ...

    def carry_out(self, jobs: Sequence[Job]) -> Iterator[Ended | None]:
        """Jobs as they end, in any order, and None about twice a second while nothing does."""
        ...
