"""The schema of results.json, for the run that writes it and the reports that read it.

results.json is written after every task, so an interrupted run can be reported as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import AliasChoices, Field, ValidationError, model_validator

from camp.bench.evaluation.accuracy import AccuracyRow
from camp.bench.evaluation.class_groups import GROUPS, Protocol, Record
from camp.bench.evaluation.confusion import TaskConfusion
from camp.bench.evaluation.drift import DriftMeasurement
from camp.bench.evaluation.feature_map import FeatureMap, Kind
from camp.bench.evaluation.summary import Summary
from camp.bench.run_folder import RunFolder, comparison_runs
from camp.core.errors import CampError
from camp.core.files import read_json

FORMAT = 2
"""Format 1 called the images of a category `pictures` and the parameters of a task `recipe`."""


class TaskResults(Record):
    """What is known after task t; accuracies have an entry for each task 0..t."""

    task: int
    known: list[str]
    """Names of the classes with labelled images."""
    novel: list[str]
    """Names of the classes without."""
    labelled: int
    unlabelled: int
    test: int
    """Number of test images."""
    novel_true: int
    novel_used: int
    """Number of novel categories used for clustering; it may differ from the true one if estimated."""
    curve: list[list[float]] | None
    """[k, score] pairs where the number of categories k was estimated."""
    novel_error: float | None = None
    """Standard error of `novel_used`, where the method estimates it."""
    parameters: dict[str, float | None] | None = Field(
        default=None, validation_alias=AliasChoices("parameters", "recipe")
    )
    """Hyperparameters that the method chose on this task (CAMP+)."""
    agnostic: AccuracyRow
    aware: AccuracyRow
    test_hungarian: AccuracyRow
    task_hungarian: AccuracyRow | None = None
    """None for a run started by a version without this protocol."""
    upper_bound: AccuracyRow
    stored: AccuracyRow | None = None
    """Task-agnostic accuracy by the centroids as stored before the task; None where none was adapted."""
    drift: DriftMeasurement | None
    """Distances of the centroids of earlier tasks; None after the first task."""

    def accuracy(self, protocol: Protocol) -> AccuracyRow | None:
        """The accuracies under `protocol`; None where the run does not have it."""
        row: AccuracyRow | None = getattr(self, protocol)
        return row

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if any(len(pair) != 2 for pair in self.curve or []):
            raise ValueError("a curve has an entry that is not [k, score]")
        return self


class CategoryResults(Record):
    """A category, and thumbnails of a few of its images (paths inside the run folder)."""

    id: int
    task: int
    kind: Kind
    name: str
    matched: str | None
    """The true class it was matched with."""
    size: int
    purity: float | None
    """Fraction of its images that are of the matched class."""
    images: list[str] = Field(validation_alias=AliasChoices("images", "pictures"))


class Results(Record):
    """The content of results.json. Accuracies are fractions 0..1."""

    format: int = FORMAT
    name: str
    command: str = ""
    """The command that repeats the run."""
    method: str
    dataset: str
    dataset_title: str
    backbone: str
    seed: int
    exemplars: int
    k: Literal["known", "estimated"]
    resolution: int
    views: int | None
    """Augmented views per image in the bank, or None where every step makes new ones."""
    epochs: int
    settings: dict[str, Any] = Field(default_factory=dict)
    notes: list[str]
    tasks_planned: int
    tasks: list[TaskResults]
    """The tasks done so far."""
    summary: dict[Protocol, Summary]
    confusion: TaskConfusion
    map: FeatureMap | None
    categories: list[CategoryResults]
    seconds: dict[str, float]
    """Time by phase, and their `total`."""

    @property
    def unfinished(self) -> bool:
        """Whether tasks are still to come."""
        return len(self.tasks) < self.tasks_planned

    @property
    def all_labelled(self) -> bool:
        """Whether every image had its label: class-incremental learning."""
        return not any(task.unlabelled or task.novel for task in self.tasks)

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        n = len(self.tasks)
        if not n:
            raise ValueError("it has no task")
        if n > self.tasks_planned:
            raise ValueError(f"it has {n} tasks of {self.tasks_planned} planned")
        for t, task in enumerate(self.tasks):
            rows = [task.agnostic, task.aware, task.test_hungarian, task.task_hungarian, task.upper_bound]
            if any(len(row[group]) != t + 1 for row in rows if row for group in GROUPS):
                raise ValueError(f"the accuracies of task {t} do not have {t + 1} entries")
        if any(len(self.confusion[group]) != n for group in GROUPS) or any(
            len(row) != n for group in GROUPS for row in self.confusion[group]
        ):
            raise ValueError(f"the task confusion is not {n} x {n}")
        if missing := {"agnostic", "aware", "test_hungarian", "upper_bound"} - self.summary.keys():
            raise ValueError(f"summary lacks {min(missing)!r}")
        return self


@dataclass(frozen=True)
class StoredRun:
    """A run folder, read."""

    folder: Path
    results: Results
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """The lines of metrics.jsonl."""
    config: dict[str, Any] = field(default_factory=dict)
    """config.json, which distinguishes runs of one method with different settings."""


def load_runs(folders: Sequence[Path]) -> list[StoredRun]:
    """Read run folders; a folder of run folders stands for those of them that have results."""
    return [load_run(run) for folder in folders for run in _runs_in(folder)]


def _runs_in(folder: Path) -> list[Path]:
    """`folder`, or the run folders in it, in the order of its study.json or else by name."""
    if (folder / "results.json").exists() or (folder / "config.json").exists():
        return [folder]
    runs = comparison_runs(folder) or sorted(path.parent for path in folder.glob("*/config.json"))
    if not runs:
        return [folder]
    started = [run for run in runs if (run / "results.json").exists()]
    if not started:
        raise CampError(
            f"No run in {folder} has finished its first task; "
            f"continue them with `camp run --resume {folder}`."
        )
    return started


def load_run(folder: Path) -> StoredRun:
    """Read a run folder; a missing, damaged or just started one is a `CampError`."""
    if not folder.is_dir():
        raise CampError(f"There is no run folder {folder}; give the folder that `camp run --out` wrote.")
    path = folder / "results.json"
    if not path.exists():
        if (folder / "config.json").exists():
            raise CampError(
                f"The run in {folder} has not finished its first task; "
                f"continue it with `camp run --resume {folder}`."
            )
        raise CampError(f"{folder} is not a run folder: it has neither results.json nor config.json.")
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    if not isinstance(config, dict) or not isinstance(config.get("settings", {}), dict):
        config = {}
    return StoredRun(folder, read_results(path), RunFolder(folder).epochs(), config)


def read_results(path: Path) -> Results:
    """Read results.json; a damaged one, or one of another format, is a `CampError`."""
    value = read_json(path)
    written = value.get("format") if isinstance(value, dict) else None
    if written != 1 and written != FORMAT:
        raise CampError(
            f"{path} has format {written!r}, this version reads 1 to {FORMAT}; run the experiment again."
        )
    try:
        return Results.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in first["loc"]).lstrip(".")
        raise CampError(
            f"{path} is damaged: {place + ': ' if place else ''}{first['msg'].removeprefix('Value error, ')}; "
            f"continue with `camp run --resume {path.parent}` or run it again."
        ) from error
