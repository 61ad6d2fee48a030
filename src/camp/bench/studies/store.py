"""The folder of studies and their runs.

    STORE/runs/<address>/      the runs of all studies in the store
    STORE/logs/<address>.log   what each of them printed
    STORE/tips/<address>/      trained networks that runs share
    STORE/<study>/             figure, tables and page of a study, and study.json: its runs

The address of a run is a hash of its settings. A finished run is therefore never run again, studies share the runs
they have in common, and a study that was interrupted or changed runs only what is missing.
"""

from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from camp.bench.executors.base import Job
from camp.bench.run_folder import RunFolder
from camp.bench.studies.addresses import training_address
from camp.bench.studies.study import Point, Study


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
