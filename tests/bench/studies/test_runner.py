"""Studies on a few digits: what is run, what is not run again, and what becomes of failures."""

from pathlib import Path

import pytest

from camp.bench.executors.base import Job
from camp.bench.executors.in_process import InProcessExecutor
from camp.bench.settings import from_flat
from camp.bench.studies.addresses import training_address
from camp.bench.studies.runner import Failure, StudyOutcome, _Tracker, run_study
from camp.bench.studies.store import StudyStore, missing
from camp.bench.studies.study import SMOKE, Study, grid
from camp.cli.study import failures
from camp.core.files import read_json, write_json
from camp.core.progress import Bar, Progress

QUIET = Progress(quiet=True)
IN_PROCESS = InProcessExecutor(QUIET)
TINY = {**SMOKE, "epochs": 1, "images_per_class": 12, "test_per_class": 4, "n_init": 2}


def study(tmp_path: Path, *rows, seeds=(0,), **base):
    bank = {"bank": str(tmp_path / "bank")}
    return Study(
        "tiny",
        "Tiny",
        rows or grid(method=["frozen", "gcd"]),
        "table",
        base={**TINY, **bank, **base},
        seeds=seeds,
    )


def final(row):
    return read_json(row.first.folder / "results.json")["summary"]["agnostic"]["final"]


def test_only_missing_runs_are_carried_out(tmp_path: Path):
    store = StudyStore(tmp_path / "store")
    first = study(tmp_path)
    assert len(missing(first, store)) == 2
    outcome = run_study(first, store, IN_PROCESS, QUIET)
    assert [row.options["method"] for row in outcome.rows] == ["frozen", "gcd"]
    assert outcome.failed == {}
    assert missing(first, store) == []
    before = {path: path.stat().st_mtime_ns for path in (store.folder / "runs").glob("*/results.json")}
    again = run_study(first, store, IN_PROCESS, QUIET)
    assert [final(row) for row in again.rows] == [final(row) for row in outcome.rows]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # frozen has no epochs: only gcd is touched.
    assert [job.label for job in missing(first.with_options({"epochs": 2}), store)] == ["gcd, seed 0"]
    # Another study shares what it has in common with this one.
    other = study(tmp_path, *grid(method=["gcd", "simgcd"]))
    assert [job.label for job in missing(other, store)] == ["simgcd, seed 0"]
    described = read_json(store.folder / "tiny" / "study.json")
    assert [run["run"] for run in described["runs"]] == [point.address for point in first.points()]


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path):
    store = StudyStore(tmp_path / "store")
    bad = study(tmp_path, {"method": "gcd", "tasks": 99}, {"method": "frozen"})
    bad = Study(
        bad.name,
        bad.title,
        bad.rows,
        "table",
        base={k: v for k, v in bad.base.items() if k != "tasks"},
        seeds=(0,),
    )
    outcome = run_study(bad, store, IN_PROCESS, QUIET)
    assert [row.options["method"] for row in outcome.rows] == ["frozen"]
    [(label, (error, log))] = outcome.failed.items()
    assert label == "gcd, tasks 99, seed 0"
    assert "10 classes cannot be divided into 99 tasks" in error
    assert log == store.folder / "logs" / f"{bad.points()[0].address}.log"
    assert len(missing(bad, store)) == 1  # and is tried again next time


def test_an_error_that_runs_share_is_reported_once():
    failed = {f"run {i}": Failure("No disk.", Path(f"logs/{i}.log")) for i in range(3)}
    failed["other"] = Failure("No luck.", Path("logs/x.log"))
    assert failures(StudyOutcome([], failed)) == [
        "run 0 and 2 more did not finish: No disk. See logs/0.log.",
        "other did not finish: No luck. See logs/x.log.",
    ]


def test_a_folder_is_named_after_its_run(tmp_path: Path):
    [point] = study(tmp_path, {"method": "gcd"}).points()
    assert StudyStore(tmp_path).run_folder(point) == tmp_path / "runs" / point.address


@pytest.mark.slow
def test_runs_that_share_their_training_have_the_numbers_of_separate_runs(tmp_path: Path):
    asked = study(
        tmp_path,
        *grid(method=["camp"], adapter=["none", "linear"]),
        {"method": "camp", "distiller": "fd"},
        epochs=3,
    )
    store = StudyStore(tmp_path / "store")
    jobs = missing(asked, store)
    assert [job.tips is not None for job in jobs] == [True, False, True]  # what has to train comes first
    outcome = run_study(asked, store, IN_PROCESS, QUIET)
    [tips] = (store.folder / "tips").iterdir()
    assert {path.name for path in tips.glob("*.safetensors")} == {"task-0.safetensors", "task-1.safetensors"}
    lines = [(row.first.folder / "metrics.jsonl").read_text() for row in outcome.rows]
    assert lines[0] == lines[1] != lines[2]  # with the seconds that each epoch took: they are the same epochs
    assert lines[0].count("\n") == 6
    for row in outcome.rows:
        alone = run_study(
            study(tmp_path, row.options, epochs=3), StudyStore(tmp_path / row.label), IN_PROCESS, QUIET
        )
        assert not (tmp_path / row.label / "tips").exists()
        apart, shared = (read_json(r.first.folder / "results.json") for r in (alone.rows[0], row))
        assert apart["summary"] == shared["summary"]
        assert [task["drift"] for task in apart["tasks"]] == [task["drift"] for task in shared["tasks"]]


def test_training_is_shared_only_where_it_does_not_depend_on_discovery():
    def shared(method="camp", **options):
        return training_address(from_flat(method, options))

    assert shared() == shared(adapter="sdc") == shared(n_init=3)
    assert len({shared(), shared(alpha=0.3), shared(distiller="fd"), shared(seed=1), shared(beta=0.1)}) == 5
    assert shared(exemplars=5) is None
    assert shared(k="estimated") is None
    assert shared("gcd") is None
    assert shared("camp-plus") is None


def test_the_bar_counts_what_run_folders_show(tmp_path: Path):
    job = Job("some", from_flat("frozen", {}), tmp_path / "run", tmp_path / "log")
    bar = Bar("some", 1)
    tracker = _Tracker([job], bar)
    tracker.update()
    assert bar.done == 0
    write_json(job.folder / "split.json", {"tasks": [{}, {}, {}, {}]})
    write_json(job.folder / "config.json", {"settings": {"method": "frozen"}})
    write_json(job.folder / "checkpoint" / "state.json", {"task": 1})
    tracker.update()
    assert bar.done == 1 / 4
    assert "now some" in bar.note
    tracker.finish(job)
    tracker.update()
    assert bar.done == 1
