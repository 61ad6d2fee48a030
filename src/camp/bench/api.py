"""CAMP from Python: `camp.run(...)` and `camp.load(...)`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from camp.bench.report.page import write_page
from camp.bench.report.run_tables import run_table
from camp.bench.results import StoredRun, load_run
from camp.core.progress import Progress


@dataclass(frozen=True)
class Finished:
    """A run in its folder."""

    folder: Path
    results: StoredRun

    @property
    def accuracy(self) -> dict[str, float | None]:
        """Task-agnostic accuracy after the last task: all, known, novel."""
        return self.results.results.summary["agnostic"].final.model_dump()

    def table(self, format: Literal["text", "md", "csv", "latex"] = "text") -> str:
        """The metrics as text, md, csv or latex."""
        return run_table([self.results], format=format)

    def page(self, path: str | Path | None = None) -> Path:
        """Write the HTML page; by default report.html in the run's folder."""
        target = Path(path) if path is not None else self.folder / "report.html"
        write_page([self.results], target)
        return target


def run(dataset: str, out: str | Path, method: str = "camp", quiet: bool = False, **options: Any) -> Finished:
    """Run `method` over `dataset` in the folder `out`; a run that was stopped there goes on.

    `options` are those of `camp run`, by name with underscores: data, tasks, epochs, weights, seed, ...
    """
    from camp.bench.experiment import resume, start
    from camp.bench.run_folder import read_config
    from camp.bench.settings import from_flat
    from camp.core import distributed
    from camp.core.errors import CampError

    folder, progress = Path(out), Progress(quiet)
    settings = from_flat(method, {"dataset": dataset, **options})
    settings.check_labels()
    with distributed.process_group():
        begun = distributed.broadcast((folder / "config.json").exists())
        with distributed.synchronized_errors():
            if begun and distributed.is_main_process() and read_config(folder)[0] != settings:
                raise CampError(f"{folder} holds a run with other settings; choose another folder.")
        if begun:
            resume(folder, progress)
        else:
            start(settings, folder, progress, command="camp.run")
    return load(folder)


def load(folder: str | Path) -> Finished:
    """A run from its folder."""
    return Finished(Path(folder), load_run(Path(folder)))
