"""`camp study`: list studies, run what is missing of one, and draw it."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from camp.bench.executors.base import Executor
from camp.bench.studies.paper_studies import STUDIES, paper_study
from camp.bench.studies.store import StudyStore, missing
from camp.bench.studies.study import Options, Study, smoke
from camp.bench.studies.toml_study import read_toml_study
from camp.cli.options import given_options, unknown_option
from camp.cli.shared import given_path
from camp.cli.streams import complain
from camp.core.errors import CampError
from camp.core.progress import Progress

if TYPE_CHECKING:
    from camp.bench.studies.runner import StudyOutcome

ABOUT = """camp study                list the studies of the paper
camp study NAME           run what is missing of a study, and draw it
camp study FILE.toml      the same for a study of your own

All studies and their runs are in the folder --out; a finished run is never run again. Options of camp run hold for
all runs of the study: --dataset cub200 --data CUB --epochs 10. An option that the study varies selects the runs with
this value, or with several: --alpha 0.1,0.4.
"""


@dataclass(frozen=True)
class StudyOptions:
    """Run what is missing of a study, and draw it. Options of camp run hold for all runs of the study."""

    out: str = "studies"
    """Folder of all studies and their runs."""
    seeds: str | None = None
    """Random seeds, separated by commas; if not given, those of the study, usually 0,1,2."""
    smoke: bool = False
    """Run a tiny version on scikit-learn's digits, to see that everything works."""
    dry: bool = False
    """Only list the runs and whether they are done."""
    executor: Literal["local", "ray"] = "local"
    """Where the runs are carried out: on this machine, or on a Ray cluster."""
    jobs: int | None = None
    """Number of runs at a time; if not given, 1 on this machine and as many as fit on Ray."""
    address: str | None = None
    """Address of an existing Ray cluster; if not given, one is started on this machine."""
    cpus: float | None = None
    """Cores per run; if not given, all cores divided by --jobs, and 1 on Ray. The last digits depend on it."""
    gpus: float = 0.0
    """GPUs per run on Ray; a fraction shares a GPU between runs."""
    quiet: bool = False
    """Do not show progress."""


def study(words: list[str]) -> int:
    """Carry out the command."""
    if not words:
        _list()
        return 0
    if words[0] in ("-h", "--help"):
        print(ABOUT)
        tyro.cli(StudyOptions, args=["--help"], prog="camp study NAME")
    if words[0].startswith("-"):
        raise CampError("camp study needs the name of a study first; `camp study` lists them.")
    found = _find(words[0])
    options, rest = tyro.cli(StudyOptions, args=words[1:], prog="camp study NAME", return_unknown_args=True)
    found = smoke(found) if options.smoke else found
    found = found.with_options(run_options_given(found, rest))
    if options.seeds is not None:
        found = _with_seeds(found, options.seeds)
    store = StudyStore(given_path(options.out, "--out"))
    if options.dry:
        return _plan(found, store)
    executor = _executor(options)
    from camp.bench.studies.runner import run_study

    outcome = run_study(found, store, executor, Progress(options.quiet))
    return _show(found, outcome, store.study_folder(found))


def _find(name: str) -> Study:
    return read_toml_study(Path(name)) if name.endswith(".toml") else paper_study(name)


def _list() -> None:
    print("The studies of the paper (camp study NAME --dataset ... runs one, camp study --help explains):\n")
    for study in STUDIES.values():
        print(f"  {study.name:22} {study.title}; {len(study.rows)} x {len(study.seeds)} runs")
    print("\nYour own, as TOML: camp study FILE.toml")


def run_options_given(study: Study, words: list[str]) -> Options:
    """Return the options of `camp run` in `words`; those that the study varies may have several values."""
    options = study.options()
    lists = {name for name in options if study.varies(name)}
    values, rest = given_options(words, options, lists)
    unknown = unknown_option(rest)
    if unknown is not None:
        study.check_options([unknown.removeprefix("--").replace("-", "_")])
    if "seed" in values:
        raise CampError("A study has several seeds: --seeds 0,1,2.")
    return values


def _with_seeds(study: Study, given: str) -> Study:
    try:
        seeds = tuple(int(part) for part in given.split(","))
    except ValueError:
        raise CampError(f'--seeds takes whole numbers separated by commas, not "{given}".') from None
    return replace(study, seeds=seeds)


def _executor(options: StudyOptions) -> Executor:
    if options.jobs is not None and options.jobs < 1:
        raise CampError(f"--jobs must be at least 1, not {options.jobs}.")
    if not 0 <= options.gpus < math.inf:
        raise CampError(f"--gpus must be 0 or more, not {options.gpus:g}.")
    if options.cpus is not None and not 0 < options.cpus < math.inf:
        raise CampError(f"--cpus must be a number above 0, not {options.cpus:g}.")
    if options.executor == "ray":
        from camp.bench.executors.ray_cluster import RayExecutor

        cpus = 1.0 if options.cpus is None else options.cpus
        return RayExecutor(options.address, cpus, options.gpus, options.jobs)
    if options.address is not None:
        raise CampError("--address is that of a Ray cluster: add --executor ray.")
    if options.gpus:
        raise CampError("--gpus is for runs on Ray: add --executor ray, or --device cuda for this machine.")
    if options.cpus is not None and options.cpus < 1:
        raise CampError(f"--cpus must be at least 1 on this machine, not {options.cpus:g}.")
    from camp.bench.executors.local import LocalExecutor

    return LocalExecutor(options.jobs or 1, int(options.cpus or 0) or None)


def _plan(study: Study, store: StudyStore) -> int:
    """Print which runs are done."""
    todo = {job.folder.name for job in missing(study, store)}
    points = {point.address: point.label for point in study.points()}
    for address, label in points.items():
        print(f"{'to do' if address in todo else 'done ':6} {address}  {label}")
    print(f"{len(points) - len(todo)} of {len(points)} runs are done.")
    return 0


def failures(outcome: "StudyOutcome") -> list[str]:
    """Return a sentence for each error, once for all runs in which it occurred."""
    runs: dict[str, list[tuple[str, Path | None]]] = {}
    for label, (error, log) in outcome.failed.items():
        runs.setdefault(error, []).append((label, log))
    sentences = []
    for error, each in runs.items():
        label, log = each[0]
        others = f" and {len(each) - 1} more" if len(each) > 1 else ""
        sentences.append(f"{label}{others} did not finish: {error} See {log}.")
    return sentences


def _show(study: Study, outcome: "StudyOutcome", folder: Path) -> int:
    """Draw the study and print its table; 2 if runs failed, and which."""
    from camp.bench.report.tables import render
    from camp.bench.studies.output import draw

    if outcome.rows:
        drawn = draw(study, outcome, folder)
        print(render(drawn.table, "text"))
        for note in drawn.notes:
            print(note)
        if drawn.figure is not None:
            print(f"The figure: {(folder / 'figure.png').resolve()}")
        print(f"The page: {(folder / 'page.html').resolve()}")
    for sentence in failures(outcome):
        complain(sentence)
    if not outcome.rows and not outcome.failed:
        raise CampError(f"No run of the study {study.name} has finished.")
    return 2 if outcome.failed else 0
