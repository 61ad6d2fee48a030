"""Start and continue comparisons of methods."""

import contextlib
import dataclasses
from pathlib import Path

from camp.bench.executors.in_process import InProcessExecutor
from camp.bench.experiment import Experiment
from camp.bench.run_folder import RunFolder
from camp.bench.studies.comparison import StoredComparison, read_comparison
from camp.bench.studies.runner import StudyOutcome, run_study
from camp.bench.studies.store import MethodStore
from camp.bench.studies.study import Study
from camp.core import distributed
from camp.core.progress import Progress


def start_comparison(study: Study, folder: Path, progress: Progress, command: str = "") -> StudyOutcome:
    """Run every method of a comparison in the new folder `folder`."""
    store = MethodStore(folder, command)
    with distributed.process_group(), contextlib.ExitStack() as held:
        with distributed.synchronized_errors():
            if distributed.is_main_process():
                for path in (folder, *(job.folder for job in store.jobs(study))):
                    RunFolder(path).check_free()
            # A mistake in the data or the backbone concerns all methods, and shows before there is a folder.
            Experiment.prepare(store.jobs(study)[0].settings)
            if distributed.is_main_process():
                held.enter_context(RunFolder(folder).locked())
        return run_study(study, store, InProcessExecutor(progress), progress)


def resume_comparison(folder: Path, progress: Progress) -> StudyOutcome:
    """Continue a comparison: start runs that are missing and continue those that are not finished."""
    with distributed.process_group(), contextlib.ExitStack() as held:
        distributed.on_main_process(lambda: held.enter_context(RunFolder(folder).locked()))
        stored = StoredComparison(
            **distributed.on_main_process(lambda: dataclasses.asdict(read_comparison(folder)))
        )
        store = MethodStore(folder, stored.command)
        return run_study(stored.study(), store, InProcessExecutor(progress), progress)
