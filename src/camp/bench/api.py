"""Experiments from Python: `camp.run(...)` and `camp.load(...)`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from camp.bench.report.page import write_page
from camp.bench.report.run_tables import run_table
from camp.bench.results import StoredRun, load_run
from camp.core.errors import CampError
from camp.core.progress import Progress


@dataclass(frozen=True)
class RunResult:
    """A run in its folder."""

    folder: Path
    results: StoredRun

    @property
    def accuracy(self) -> dict[str, float | None]:
        """Task-agnostic accuracy after the last task, of all, known and novel classes."""
        return self.results.results.summary["agnostic"].final.model_dump()

    def table(self, format: Literal["text", "md", "csv", "latex"] = "text") -> str:
        """Return the results as a table."""
        return run_table([self.results], format=format)

    def page(self, path: str | Path | None = None) -> Path:
        """Write the HTML page; by default report.html in the run folder."""
        target = Path(path) if path is not None else self.folder / "report.html"
        write_page([self.results], target)
        return target


def run(
    dataset: str, out: str | Path, method: str = "camp", quiet: bool = False, **options: Any
) -> RunResult:
    """Run a method on a data set in the folder `out`, or continue the run that the folder holds.

    `options` are those of `camp run`, with underscores: data, tasks, epochs, weights, seed, ...
    """
    from camp.bench.run_loop import run_or_resume
    from camp.bench.settings import from_flat

    if not str(out).strip():
        raise CampError("`out` is empty; give the name of a folder for the run.")
    settings = from_flat(method, {"dataset": dataset, **options})
    settings.check_labels()
    run_or_resume(settings, Path(out), Progress(quiet), command="camp.run")
    return load(out)


def load(folder: str | Path) -> RunResult:
    """Read a run from its folder."""
    return RunResult(Path(folder), load_run(Path(folder)))
