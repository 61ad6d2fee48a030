"""Verify a run folder: settings, split, metrics, checkpoint and results."""

import json
from collections.abc import Iterator
from pathlib import Path

from camp.bench.checkpoint import Checkpoint, load_checkpoint
from camp.bench.results import read_results
from camp.bench.run_folder import RunFolder, comparison_runs
from camp.core.errors import CampError
from camp.core.files import FileMark, checksum
from camp.core.finding import Finding

REWRITTEN = ("results.json", "predictions.csv", "skipped.csv")
"""Files that a run writes after a task, before the checkpoint."""


def check_runs(folder: Path) -> list[Finding]:
    """Verify a run folder, or all runs of a comparison of methods."""
    runs = comparison_runs(folder)
    return [finding for run in ([folder] if runs is None else runs) for finding in _check_run(RunFolder(run))]


def _check_run(run: RunFolder) -> Iterator[Finding]:
    resume = f"`camp run --resume {run.path}`"
    for read, path, remedy in (
        (run.read_config, run.config, "restore it from a copy, or start the run again in another folder"),
        (
            run.read_split,
            run.split,
            f"restore it from a copy, or remove it; {resume} makes the same one again",
        ),
    ):
        try:
            read()
        except (CampError, AttributeError, KeyError, TypeError, ValueError) as error:
            yield Finding(f"{path} is damaged ({_reason(error)})", remedy)
    begin_again = f"restore it from a copy, or remove {run.checkpoint}; {resume} begins again"
    try:
        saved = load_checkpoint(run.checkpoint)
    except CampError as error:
        yield Finding(_reason(error).partition("; delete")[0], begin_again)
        return
    finished = run.is_finished()
    if run.results.exists():
        try:
            read_results(run.results)
        except CampError as error:
            yield Finding(_reason(error).partition("; continue")[0], begin_again if finished else resume)
    yield from _check_metrics(run)
    if saved is not None:
        yield from _check_marks(run, saved, finished)


def _check_metrics(run: RunFolder) -> Iterator[Finding]:
    """Read the lines of metrics.jsonl; the last one may be incomplete."""
    if not run.metrics.exists():
        return
    *lines, _ = run.metrics.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
            assert (int(values["task"]), int(values["epoch"])) >= (0, 0)
        except (AssertionError, KeyError, TypeError, ValueError):
            said = f"Line {number} of {run.metrics} is damaged"
            yield Finding(said, "restore it from a copy; only the curves of the report depend on it")


def _check_marks(run: RunFolder, saved: Checkpoint, finished: bool) -> Iterator[Finding]:
    """Compare files with what they were when the checkpoint was made; checkpoints of version 0.1.0 do not say."""
    for name, mark in saved.files.items():
        path = run.path / name
        if not finished and name in REWRITTEN:
            continue  # a run that was killed may have written them again
        if not path.exists():
            yield Finding(f"{path} is missing", "restore it from a copy")
        elif _differs(path, mark, prefix=name == run.metrics.name):
            yield Finding(f"{path} was changed since it was written", "restore it from a copy")


def _differs(path: Path, mark: FileMark, prefix: bool) -> bool:
    """Return whether a file, or with `prefix` its beginning, is another than it was."""
    if prefix:
        with path.open("rb") as file:
            return checksum(file.read(mark.size)) != mark.checksum
    return FileMark.of(path) != mark


def _reason(error: Exception) -> str:
    return str(error).rstrip(".")
