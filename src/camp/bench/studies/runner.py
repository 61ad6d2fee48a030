"""Running studies: carry out the runs that are missing, and collect those that are finished."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from camp.bench.executors.base import Executor, Job
from camp.bench.results import load_run
from camp.bench.run_folder import STUDY_FILE, RunFolder
from camp.bench.settings import RunSettings, to_dict
from camp.bench.studies.figures.rows import Row
from camp.bench.studies.store import StudyStore
from camp.bench.studies.study import Study
from camp.core import distributed
from camp.core.errors import CampError
from camp.core.files import write_json
from camp.core.progress import Bar, Progress
from camp.core.version import __version__


class Failure(NamedTuple):
    """Why a run did not finish."""

    error: str
    log: Path | None
    """What it printed; None if that was on the screen."""


@dataclass
class StudyOutcome:
    """What became of the runs of a study."""

    rows: list[Row]
    """Rows with finished runs, in the study's order."""
    failed: dict[str, Failure] = field(default_factory=dict)
    """The runs that failed, by label."""


def run_study(study: Study, store: StudyStore, executor: Executor, progress: Progress) -> StudyOutcome:
    """Carry out the runs that are missing; the failure of one does not stop the others."""
    jobs = store.jobs(study)
    finished = distributed.broadcast([RunFolder(job.folder).is_finished() for job in jobs])
    todo = [job for job, done in zip(jobs, finished) if not done]
    if distributed.is_main_process():
        _describe(study, store)
    failed: dict[str, Failure] = {}
    if todo:
        if not executor.shows_progress:
            progress.note(
                f"{study.name}: {len(jobs) - len(todo)} of {len(jobs)} runs are done, {len(todo)} to do."
            )
        for settings in _one_of_each_bank(todo):
            with contextlib.suppress(CampError):  # the runs will report what is wrong
                executor.fill_bank(settings, progress)
        shown = Progress(quiet=progress.quiet or executor.shows_progress)
        with shown.track(study.name, len(todo)) as bar:
            tracker = _Tracker(todo, bar)
            for result in executor.run(todo):
                if result is not None:
                    tracker.finish(result.job)
                    if result.error is not None:
                        failed[result.job.label] = Failure(result.error, result.job.log)
                        progress.note(f"{result.job.label} did not finish: {result.error}")
                tracker.update()
    return StudyOutcome(finished_rows(study, store) if distributed.is_main_process() else [], failed)


def finished_rows(study: Study, store: StudyStore) -> list[Row]:
    """Return the rows of a study with their finished runs; a row without any is left out."""
    rows = []
    for options in study.rows:
        folders = [store.run_folder(study.point(options, seed)) for seed in study.seeds]
        runs = tuple(load_run(folder) for folder in folders if RunFolder(folder).is_finished())
        if runs:
            rows.append(Row(options, runs))
    return rows


def _describe(study: Study, store: StudyStore) -> None:
    """Write study.json."""
    runs = [
        {"row": dict(point.row), "seed": point.settings.seed, "run": store.run_folder(point).name}
        for point in study.points()
    ]
    described = {
        "format": 1,
        "version": __version__,
        "name": study.name,
        "title": study.title,
        "draw": study.draw,
        "look": dict(study.look),
        "command": store.command,
        "base": dict(study.base),
        "runs": runs,
    }
    write_json(store.study_folder(study) / STUDY_FILE, described)


def _one_of_each_bank(jobs: Sequence[Job]) -> list[RunSettings]:
    """Return settings of one run for each view bank."""

    def bank(settings: RunSettings) -> str:
        values = to_dict(settings)
        return json.dumps([values[part] for part in ("data", "backbone", "views")], sort_keys=True)

    each = {bank(job.settings): job.settings for job in reversed(jobs)}
    return list(reversed(each.values()))


class _Tracker:
    """Moves the bar of a study by the progress that run folders show."""

    def __init__(self, jobs: Sequence[Job], bar: Bar) -> None:
        self.left = {job.folder: job for job in jobs}
        self.total, self.bar = len(jobs), bar
        self.before = {folder: RunFolder(folder).fraction_done() for folder in self.left}
        bar.skip(sum(self.before.values()))  # done by an earlier process

    def finish(self, job: Job) -> None:
        """Count a run as done."""
        self.left.pop(job.folder, None)

    def update(self) -> None:
        """Bring the bar up to date."""
        done = {folder: RunFolder(folder).fraction_done() for folder in self.left}
        self.bar.done = self.total - len(self.left) + sum(done.values())
        under_way = [self.left[folder].label for folder, share in done.items() if share > self.before[folder]]
        over = f"{self.total - len(self.left)} of {self.total} runs"
        self.bar.say(f"{over}; now {under_way[0]}" if under_way else over)
