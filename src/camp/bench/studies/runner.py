"""Running studies: carry out the runs that are missing, and collect those that are finished.

    STORE/runs/<address>/      the runs of all studies in the store
    STORE/logs/<address>.log   what each of them printed
    STORE/tips/<address>/      trained networks that runs share
    STORE/<study>/             figure, tables and page of a study, and study.json: its runs

The address of a run is a hash of its settings. A finished run is therefore never run again, studies share the runs
they have in common, and a study that was interrupted or changed runs only what is missing.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from camp.bench.executors.base import Executor, Job
from camp.bench.results import load_run
from camp.bench.run_folder import STUDY_FILE, RunFolder
from camp.bench.settings import RunSettings, to_dict
from camp.bench.studies.addresses import training_address
from camp.bench.studies.figures.rows import Row
from camp.bench.studies.study import Point, Study
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


@dataclass(frozen=True)
class StudyStore:
    """A folder of studies and their runs."""

    folder: Path
    command: str = "camp study"
    """The command that runs the study."""

    def run_folder(self, point: Point) -> Path:
        """Return the folder of a run."""
        return self.folder / "runs" / point.address

    def study_folder(self, study: Study) -> Path:
        """Return the folder for the figure, the tables and the page of a study."""
        return self.folder / study.name

    def jobs(self, study: Study) -> list[Job]:
        """Return a job for each run, those that train first and then those that use the trained network."""
        points = {point.address: point for point in study.points()}
        training = {name: training_address(point.settings) for name, point in points.items()}
        sharing = Counter(training.values())
        turns: Counter[Path] = Counter()
        jobs: list[tuple[int, Job]] = []
        for name, point in points.items():
            turn, tips, trained = 0, None, training[name]
            folder, log = self.run_folder(point), self.folder / "logs" / f"{name}.log"
            if trained is not None:
                shared = self.folder / "tips" / trained
                tips = shared if sharing[trained] > 1 or shared.exists() else None
            if tips is not None and not RunFolder(folder).is_finished():
                turn = turns[tips]
                turns[tips] += 1
            jobs.append((turn, Job(point.label, point.settings, folder, log, tips, self.command)))
        return [job for _, job in sorted(jobs, key=itemgetter(0))]


@dataclass(frozen=True)
class MethodStore(StudyStore):
    """A folder with one run folder per method, as `camp run --method a,b` makes it."""

    def run_folder(self, point: Point) -> Path:
        """Return the folder of a run, which is called like its method."""
        return self.folder / point.settings.method

    def study_folder(self, study: Study) -> Path:
        """Return the folder for study.json and the page."""
        return self.folder

    def jobs(self, study: Study) -> list[Job]:
        """Return a job for each method, in order."""
        return [
            Job(point.settings.method, point.settings, self.run_folder(point), command=self.command)
            for point in study.points()
        ]


def missing(study: Study, store: StudyStore) -> list[Job]:
    """Return the jobs of runs that are not finished."""
    return [job for job in store.jobs(study) if not RunFolder(job.folder).is_finished()]


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
