"""Conducting a study: run what is missing, draw, say what failed.

    STORE/runs/<address>/      the runs of all studies in the store
    STORE/logs/<address>.log   what each of them said
    STORE/tips/<address>/      trained tips that runs of one phase 1 share
    STORE/<study>/             the figure, the tables and the page of a study, and study.json: its runs

A run is known by its settings, so a finished one is never run again, studies share what they have in common, and a study that
was interrupted or changed runs only what is missing.
"""

import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from camp.bench.engines import Engine
from camp.bench.results import load_run
from camp.bench.settings import RunSettings, from_dict, to_dict
from camp.bench.studies.addresses import phase1_address
from camp.bench.studies.figures.rows import Row, find
from camp.bench.studies.jobs import Job
from camp.bench.studies.study import Point, Study
from camp.core.errors import CampError
from camp.core.files import read_json, read_json_lines, write_json
from camp.core.progress import Bar, Progress
from camp.core.version import __version__


@dataclass
class Conducted:
    """What became of a study's runs."""

    rows: list[Row]
    """Those with finished runs, in the study's order."""
    failed: dict[str, tuple[str, Path]] = field(default_factory=dict)
    """Why others did not, and their logs, by their labels."""


def run_folder(store: Path, point: Point) -> Path:
    """Where the run of `point` is."""
    return store / "runs" / point.address


def missing(study: Study, store: Path) -> list[Job]:
    """The runs that are not finished, each once; those that train first, then those that find their tip trained."""
    jobs: dict[str, Job] = {}
    shared = {
        address
        for address, count in Counter(phase1_address(point.settings) for point in study.points()).items()
        if address is not None and (count > 1 or (store / "tips" / address).exists())
    }
    turns: Counter[Path | None] = Counter()
    order: dict[str, int] = {}
    for point in study.points():
        folder, phase1 = run_folder(store, point), phase1_address(point.settings)
        if not finished(folder):
            log = store / "logs" / f"{point.address}.log"
            tips = store / "tips" / phase1 if phase1 in shared and phase1 is not None else None
            jobs[point.address] = Job(point.label, to_dict(point.settings), folder, log, tips)
            order[point.address] = turns[tips] if tips is not None else 0
            turns[tips] += 1
    return [jobs[address] for address in sorted(jobs, key=order.__getitem__)]


def finished(folder: Path) -> bool:
    """Whether the run in `folder` has been through all of its tasks."""
    try:
        results = read_json(folder / "results.json")
        return bool(_tasks_over(folder) == results["tasks_planned"] == len(results["tasks"]))
    except (CampError, OSError, KeyError, TypeError):
        return False


def conduct(study: Study, store: Path, engine: Engine, progress: Progress) -> Conducted:
    """Carry out what is missing with `engine`; failures of single runs do not stop the others."""
    jobs = missing(study, store)
    points = study.points()
    write_json(
        store / study.name / "study.json",
        {
            "format": 1,
            "version": __version__,
            "name": study.name,
            "title": study.title,
            "draw": study.draw,
            "look": dict(study.look),
            "runs": [
                {"row": dict(point.row), "seed": point.settings.seed, "run": point.address}
                for point in points
            ],
        },
    )
    failed: dict[str, tuple[str, Path]] = {}
    if jobs:
        runs = len({point.address for point in points})
        progress.note(f"{study.name}: {runs - len(jobs)} of {runs} runs are there, {len(jobs)} to do.")
        for settings in _one_of_each_bank(jobs):
            with contextlib.suppress(CampError):  # what is wrong with it, its runs will say
                engine.fill_bank(settings, progress)
        with progress.track(study.name, len(jobs)) as bar:
            following = _Following(jobs, bar)
            for ended in engine.carry_out(jobs):
                if ended is not None:
                    following.over(ended.job)
                    if ended.fault is not None:
                        failed[ended.job.label] = (ended.fault, ended.job.log)
                        progress.note(f"{ended.job.label} did not finish: {ended.fault}")
                following.look()
    return Conducted(rows_of(study, store), failed)


def rows_of(study: Study, store: Path) -> list[Row]:
    """The study's rows with the runs that have finished; a row without any is left out."""
    rows = []
    for options in study.rows:
        folders = [run_folder(store, study.point(options, seed)) for seed in study.seeds]
        runs = tuple(load_run(folder) for folder in folders if finished(folder))
        if runs:
            rows.append(Row(options, runs))
    return rows


def _one_of_each_bank(jobs: list[Job]) -> list[RunSettings]:
    """Settings that differ in what a view bank is made of."""
    each = {
        json.dumps([job.settings[part] for part in ("data", "backbone", "views")], sort_keys=True): job
        for job in reversed(jobs)
    }
    return [from_dict(job.settings) for job in reversed(each.values())]


class _Following:
    """The bar of a study: runs that are over count whole, and of those under way what their folders tell."""

    def __init__(self, jobs: list[Job], bar: Bar) -> None:
        self.left = {job.folder: job for job in jobs}
        self.total, self.bar = len(jobs), bar
        self.plans: dict[Path, tuple[int, int]] = {}
        self.begun = {folder: self._share(folder) for folder in self.left}  # what an earlier study left
        bar.skip(sum(self.begun.values()))

    def over(self, job: Job) -> None:
        """A run is done with."""
        self.left.pop(job.folder, None)

    def look(self) -> None:
        """Bring the bar up to date."""
        shares = {folder: self._share(folder) for folder in self.left}
        self.bar.done = self.total - len(self.left) + sum(shares.values())
        under_way = [
            self.left[folder].label for folder, share in shares.items() if share > self.begun[folder]
        ]
        over = f"{self.total - len(self.left)} of {self.total} runs"
        self.bar.say(f"{over}; now {under_way[0]}" if under_way else over)

    def _share(self, folder: Path) -> float:
        """How much of a run is done, by its tasks and the epochs of the one it is at.

        What comes after the epochs counts half a task: it is less where they are many, and all there is where the tip is found trained.
        """
        if not (folder / "split.json").exists():
            return 0.0
        if folder not in self.plans:
            self.plans[folder] = _planned(folder)
        tasks, epochs = self.plans[folder]
        over, metrics = _tasks_over(folder), folder / "metrics.jsonl"
        lines = read_json_lines(metrics) if metrics.exists() else []  # there are methods without epochs
        trained = sum(line["task"] == over for line in lines)
        return min(1.0, (over + 0.5 * min(1.0, trained / epochs)) / tasks)


def _planned(folder: Path) -> tuple[int, int]:
    """Tasks of the run in `folder`, and the epochs of each."""
    try:
        settings = read_json(folder / "config.json")["settings"]["settings"]
        return max(1, len(read_json(folder / "split.json")["tasks"])), max(1, find(settings, "epochs") or 1)
    except (CampError, OSError, KeyError, TypeError):
        return 1, 1


def _tasks_over(folder: Path) -> int:
    """Tasks that the run in `folder` is through with."""
    try:
        return int(read_json(folder / "checkpoint" / "state.json")["task"])
    except (CampError, OSError, KeyError, TypeError):
        return 0
