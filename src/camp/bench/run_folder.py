"""The folder of a run: its files, its lock, and how far the run has come.

config.json        settings as they were given, the command, and the software that started the run
split.json         the images of each task, without unreadable ones
metrics.jsonl      one line per epoch
checkpoint/        state to continue from
results.json       everything measured so far
predictions.csv    predictions for all test images seen so far
skipped.csv        unreadable images, if there are any
report.html        the page
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from camp.bench.settings import RunSettings, from_dict, to_dict
from camp.core.abandoned import remove_abandoned
from camp.core.errors import CampError
from camp.core.files import (
    FileMark,
    append_json_line,
    make_folder,
    read_json,
    read_json_lines,
    write_json,
    write_text,
)
from camp.core.provenance import Provenance
from camp.core.settings import describe_error, options_of
from camp.data.split import Split

FORMAT = 1


class _ConfigFile(BaseModel):
    """The values in config.json."""

    settings: dict[str, Any]
    command: str = ""
    provenance: Provenance | None = None


@dataclass(frozen=True)
class RunConfig:
    """The content of config.json."""

    settings: RunSettings
    command: str = ""
    """The command that started the run."""
    provenance: Provenance | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the content as JSON values."""
        made = self.provenance.model_dump() if self.provenance else None
        return {
            "format": FORMAT,
            "provenance": made,
            "command": self.command,
            "settings": to_dict(self.settings),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read the content from JSON values."""
        try:
            file = _ConfigFile.model_validate(values)
        except ValidationError as error:
            raise CampError(f"{describe_error(error)}.") from error
        return cls(from_dict(file.settings), file.command, file.provenance)


class RunFolder:
    """A folder that holds a run, or will hold one; see the module for its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.split = path / "split.json"
        self.metrics = path / "metrics.jsonl"
        self.checkpoint = path / "checkpoint"
        self.results = path / "results.json"
        self.predictions = path / "predictions.csv"
        self.skipped = path / "skipped.csv"
        self.page = path / "report.html"

    # How far the run has come.

    def is_started(self) -> bool:
        """Whether the folder holds a run."""
        return self.config.exists()

    def is_finished(self) -> bool:
        """Whether the run has completed all of its tasks and its results are whole."""
        try:
            results = read_json(self.results)
            return bool(self.tasks_done() == results["tasks_planned"] == len(results["tasks"]))
        except (CampError, LookupError, TypeError):
            return False

    def tasks_done(self) -> int:
        """Return the number of tasks in the last checkpoint."""
        try:
            done = read_json(self.checkpoint / "state.json")["task"]
        except (CampError, LookupError, TypeError):
            return 0
        return done if isinstance(done, int) else 0

    def fraction_done(self) -> float:
        """Return how much of the run is done, from its tasks and the epochs of the present one.

        What follows the epochs of a task counts as half of it.
        """
        if not self.split.exists():
            return 0.0
        try:
            tasks = max(1, len(read_json(self.split)["tasks"]))
            option = options_of(self.read_config().settings).get("epochs")
        except (CampError, LookupError, TypeError):
            tasks, option = 1, None
        done, epochs = self.tasks_done(), option.default if option else None
        trained = len(self.metrics_of_task(done)) / epochs if isinstance(epochs, int) and epochs else 0.0
        return min(1.0, (done + 0.5 * min(1.0, trained)) / tasks)

    # Who may write.

    def check_free(self) -> None:
        """Refuse a folder that holds one run or several."""
        if self.is_started() or holds_comparison(self.path):
            raise CampError(
                f"{self.path} already holds a run: continue it with --resume {self.path}, or choose another --out."
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder if needed and hold its lock, so that no second process writes in it."""
        lock = FileLock(self.path / ".lock")
        try:
            make_folder(self.path)
            lock.acquire(timeout=0)
        except Timeout:
            raise CampError(f"Another process is working on {self.path}; wait for it or stop it.") from None
        except OSError as error:
            raise CampError(
                f"The folder {self.path} could not be made ({error.strerror or error})."
            ) from error
        try:
            remove_abandoned(self.path)
            yield
        finally:
            lock.release()

    # Files.

    def marks(self) -> dict[str, FileMark]:
        """Return sizes and checksums of the files beside the checkpoint, by name."""
        files = (self.config, self.split, self.metrics, self.results, self.predictions, self.skipped)
        return {path.name: FileMark.of(path) for path in files if path.exists()}

    def own_files(self) -> list[Path]:
        """Return the files and folders that `camp run` needs, and that other commands must not replace."""
        thumbnails = self.path / "thumbnails"
        files = [
            self.config,
            self.split,
            self.metrics,
            self.checkpoint,
            self.results,
            self.predictions,
            self.skipped,
        ]
        return [*files, thumbnails]

    def write_config(self, config: RunConfig) -> None:
        """Write config.json, which marks the folder as a run's."""
        write_json(self.config, config.to_json())

    def read_config(self) -> RunConfig:
        """Read config.json, of earlier versions too."""
        if not self.config.exists():
            raise CampError(f"{self.path} holds no run: there is no config.json in it.")
        values = read_json(self.config)
        if not isinstance(values, dict) or not isinstance(values.get("settings"), dict):
            raise CampError(f"{self.config} is not that of a run; choose another folder.")
        try:
            return RunConfig.from_json(values)
        except CampError as error:
            raise CampError(
                f"{self.config} was written by another version of camp: {str(error).rstrip('.')}; finish the run "
                "with that version, or start it again in another folder."
            ) from error

    def read_split(self) -> Split | None:
        """Return the split of a run that has read its images, else None."""
        return Split.from_json(read_json(self.split)) if self.split.exists() else None

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Add the line of an epoch to metrics.jsonl."""
        append_json_line(self.metrics, line)

    def metrics_of_task(self, task: int) -> list[dict[str, Any]]:
        """Return the lines of the epochs of a task."""
        return [line for line in self.epochs() if line["task"] == task]

    def forget_metrics(self, task: int, epoch: int) -> None:
        """Remove the lines from an epoch of a task on, and a line that a kill has torn."""
        if self.metrics.exists():
            kept = [line for line in self.epochs() if (line["task"], line["epoch"]) < (task, epoch)]
            write_text(self.metrics, "".join(json.dumps(line) + "\n" for line in kept))

    def epochs(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl; others that got into the file are left out."""
        lines = [line for line in read_json_lines(self.metrics) if isinstance(line, dict)]
        return [line for line in lines if all(isinstance(line.get(name), int) for name in ("task", "epoch"))]


STUDY_FILE, FORMER_STUDY_FILE = "study.json", "several.json"


def holds_comparison(folder: Path) -> bool:
    """Whether `folder` holds the runs of several methods, made by one `camp run`."""
    return (folder / STUDY_FILE).exists() or (folder / FORMER_STUDY_FILE).exists()


def comparison_runs(folder: Path) -> list[Path] | None:
    """Return the run folders of a comparison of methods in their order; None if `folder` holds none."""
    if not holds_comparison(folder):
        return None
    named = (folder / STUDY_FILE).exists()
    values = read_json(folder / (STUDY_FILE if named else FORMER_STUDY_FILE))
    try:
        names = [run["run"] for run in values["runs"]] if named else list(values["methods"])
        return [folder / name for name in names]
    except (LookupError, TypeError):
        raise CampError(f"{folder} does not hold a comparison of methods; choose another folder.") from None
