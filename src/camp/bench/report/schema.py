"""The `results.json` of a run folder, and reading it back.

The typed dictionaries below are the format: whoever writes results writes these, and `load_run` holds a file
against them. `results.json` is written after every task, so an interrupted run can be reported as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from camp.bench.evaluation.accuracy import Split, SplitRow
from camp.bench.evaluation.confusion import Confusion
from camp.bench.evaluation.drift import Drift
from camp.bench.evaluation.summary import Summary
from camp.bench.report.checks import check
from camp.bench.run_folder import comparison_runs
from camp.core.errors import CampError
from camp.core.files import read_json, read_json_lines

FORMAT = 1

Protocol = Literal["agnostic", "aware", "test_hungarian", "task_hungarian"]
"""Ways of counting what a method got right."""

Kind = Literal["known", "novel"]
Point = list[float]
"""[x, y]"""


class TaskResults(TypedDict):
    """What is known after task t; rows have the entries i = 0..t."""

    task: int
    known: list[str]
    """Names of the classes that carry labels."""
    novel: list[str]
    """Names of the classes that do not."""
    labelled: int
    unlabelled: int
    test: int
    """Numbers of pictures."""
    novel_true: int
    novel_used: int
    """Novel categories there are, and that were looked for (they differ where k is estimated)."""
    curve: list[list[float]] | None
    """[k, score] pairs where k was estimated."""
    novel_error: NotRequired[float | None]
    """Standard error of `novel_used`, where the method estimated one."""
    recipe: NotRequired[dict[str, float | None]]
    """What the method chose for this task, where it chooses (CAMP+)."""
    agnostic: SplitRow
    aware: SplitRow
    test_hungarian: SplitRow
    task_hungarian: NotRequired[SplitRow]
    """Runs made before there was this protocol lack it, here and in the summary."""
    upper_bound: SplitRow
    stored: NotRequired[SplitRow]
    """Task not told, by centroids of earlier tasks as they were stored; where they were moved since."""
    drift: Drift | None
    """Of the earlier tasks' centroids; None after the first task."""


class UpperBound(TypedDict):
    """Nearest true means after the last task."""

    final: Split


class Protocols(TypedDict):
    """The summary of a run under each way of counting."""

    agnostic: Summary
    aware: Summary
    test_hungarian: Summary
    task_hungarian: NotRequired[Summary]
    upper_bound: UpperBound


class MapCentroid(TypedDict):
    """A centroid on the map: before the last task, after it, and where its class truly is now."""

    id: int
    task: int
    kind: Kind
    name: str
    stored: Point | None
    adapted: Point
    true: Point | None


class LatentMap(TypedDict):
    """The feature space after the last task, flattened."""

    points: list[list[float]]
    """[x, y, task, 1 for known and 0 for novel, class number] for a sample of the test pictures."""
    centroids: list[MapCentroid]


class CategoryResults(TypedDict):
    """One category and a few of its pictures (paths inside the run folder)."""

    id: int
    task: int
    kind: Kind
    name: str
    matched: str | None
    size: int
    purity: float | None
    """Share of its pictures that are of the matched class."""
    pictures: list[str]


class Results(TypedDict):
    """The whole of `results.json`. Accuracies are fractions 0..1."""

    format: int
    name: str
    method: str
    dataset: str
    dataset_title: str
    backbone: str
    seed: int
    exemplars: int
    k: Literal["known", "estimated"]
    resolution: int
    views: int | None
    """Augmented views a picture has in the bank, or None where every step makes new ones."""
    epochs: int
    tasks_planned: int
    seconds: dict[str, float]
    notes: list[str]
    tasks: list[TaskResults]
    """The tasks done so far."""
    summary: Protocols
    confusion: Confusion
    map: LatentMap | None
    categories: list[CategoryResults]
    command: NotRequired[str]
    """What to type to make the run again."""


@dataclass(frozen=True)
class RunResults:
    """A run folder, read."""

    folder: Path
    results: Results
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """The lines of `metrics.jsonl`."""
    config: dict[str, Any] = field(default_factory=dict)
    """`config.json`, which tells apart runs of one method with different settings."""

    @property
    def unfinished(self) -> bool:
        """Whether tasks are still to come."""
        return len(self.results["tasks"]) < self.results["tasks_planned"]

    @property
    def all_labelled(self) -> bool:
        """Whether every picture had its label: class-incremental learning."""
        return not any(task["unlabelled"] or task["novel"] for task in self.results["tasks"])


def load_runs(folders: Sequence[Path]) -> list[RunResults]:
    """Read run folders; one that holds others stands for those of them that have results."""
    return [load_run(run) for folder in folders for run in _runs_in(folder)]


def _runs_in(folder: Path) -> list[Path]:
    """`folder`, or the run folders in it, in the order of its study.json if there is one and else by their names."""
    if (folder / "results.json").exists() or (folder / "config.json").exists():
        return [folder]
    runs = comparison_runs(folder) or sorted(path.parent for path in folder.glob("*/config.json"))
    if not runs:
        return [folder]
    begun = [run for run in runs if (run / "results.json").exists()]
    if not begun:
        raise CampError(
            f"No run in {folder} has finished its first task; "
            f"continue them with `camp run --resume {folder}`."
        )
    return begun


def load_run(folder: Path) -> RunResults:
    """Read a run folder; a missing, damaged or barely begun one is a `CampError`."""
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
    results = read_json(path)
    written = results.get("format") if isinstance(results, dict) else None
    if written != FORMAT:
        raise CampError(
            f"{path} has format {written!r}, this version reads {FORMAT}; run the experiment again."
        )
    fault = check(results, Results) or _fault(results)
    if fault:
        raise CampError(
            f"{path} is damaged: {fault}; continue with `camp run --resume {folder}` or run it again."
        )
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    epochs = [line for line in read_json_lines(folder / "metrics.jsonl") if isinstance(line, dict)]
    return RunResults(folder, results, epochs, config if isinstance(config, dict) else {})


def _fault(results: Results) -> str | None:
    """What the types cannot say: a task has as many entries as tasks were seen."""
    tasks = results["tasks"]
    if not tasks:
        return "it has no task"
    if len(tasks) > results["tasks_planned"]:
        return f"it has {len(tasks)} tasks of {results['tasks_planned']} planned"
    for t, task in enumerate(tasks):
        rows = [task["agnostic"], task["aware"], task["test_hungarian"], task["upper_bound"]]
        rows += [task["task_hungarian"]] if "task_hungarian" in task else []
        for row in rows:
            if not len(row["all"]) == len(row["known"]) == len(row["novel"]) == t + 1:
                return f"the accuracies of task {t} do not have {t + 1} entries"
    confusion = results["confusion"]
    for counts in (confusion["all"], confusion["known"], confusion["novel"]):
        if len(counts) != len(tasks) or any(len(row) != len(tasks) for row in counts):
            return f"the task confusion is not {len(tasks)} x {len(tasks)}"
    if any(len(pair) != 2 for task in tasks for pair in task["curve"] or []):
        return "a curve has an entry that is not [k, score]"
    if results["map"] and any(len(point) != 5 for point in results["map"]["points"]):
        return "the map has a point without 5 entries"
    centroids = results["map"]["centroids"] if results["map"] else []
    if any(place and len(place) != 2 for c in centroids for place in (c["stored"], c["adapted"], c["true"])):
        return "the map has a centroid without 2 coordinates"
    return None
