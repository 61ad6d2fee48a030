"""Studies carried out for real on a few digits: what is run, what is not run again, what becomes of failures."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from camp.bench.engines.local import LocalEngine
from camp.bench.results import read_results
from camp.bench.settings import from_flat
from camp.bench.studies.addresses import phase1_address
from camp.bench.studies.jobs import Job
from camp.bench.studies.runner import Conducted, _Following, conduct, finished, missing, run_folder
from camp.bench.studies.study import SMOKE, Study, grid
from camp.cli.study import failures
from camp.core.files import append_json_line, read_json, write_json
from camp.core.progress import Bar, Progress

QUIET = Progress(quiet=True)
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
    return row.first.results.summary["agnostic"].final


def test_what_is_there_is_not_run_again_and_a_changed_setting_runs_only_what_it_touches(tmp_path: Path):
    store = tmp_path / "store"
    first = study(tmp_path)
    assert len(missing(first, store)) == 2
    conducted = conduct(first, store, LocalEngine(1), QUIET)
    assert [row.options["method"] for row in conducted.rows] == ["frozen", "gcd"]
    assert conducted.failed == {}
    assert missing(first, store) == []
    before = {path: path.stat().st_mtime_ns for path in (store / "runs").glob("*/results.json")}
    again = conduct(first, store, LocalEngine(1), QUIET)
    assert [final(row) for row in again.rows] == [final(row) for row in conducted.rows]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # frozen has no epochs: only gcd is touched.
    assert [job.label for job in missing(first.under({"epochs": 2}), store)] == ["gcd, seed 0"]
    # Another study shares what it has in common with this one.
    other = study(tmp_path, *grid(method=["gcd", "simgcd"]))
    assert [job.label for job in missing(other, store)] == ["simgcd, seed 0"]
    described = read_json(store / "tiny" / "study.json")
    assert [run["run"] for run in described["runs"]] == [point.address for point in first.points()]


def test_a_run_that_fails_does_not_stop_the_others_and_its_log_says_why(tmp_path: Path):
    store = tmp_path / "store"
    bad = study(tmp_path, {"method": "gcd", "tasks": 99}, {"method": "frozen"})
    bad = Study(
        bad.name,
        bad.title,
        bad.rows,
        "table",
        base={k: v for k, v in bad.base.items() if k != "tasks"},
        seeds=(0,),
    )
    conducted = conduct(bad, store, LocalEngine(1), QUIET)
    assert [row.options["method"] for row in conducted.rows] == ["frozen"]
    [(label, (fault, log))] = conducted.failed.items()
    assert label == "gcd, tasks 99, seed 0"
    assert "10 classes cannot be cut into 99 tasks" in fault
    assert fault in log.read_text()
    assert len(missing(bad, store)) == 1  # and is tried again next time


def test_a_fault_that_runs_share_is_told_once():
    failed = {f"run {i}": ("No disk.", Path(f"logs/{i}.log")) for i in range(3)}
    failed["other"] = ("No luck.", Path("logs/x.log"))
    assert failures(Conducted([], failed)) == [
        "run 0 and 2 more did not finish: No disk. Their logs are in logs, the first is 0.log.",
        "other did not finish: No luck. Its log: logs/x.log",
    ]


def test_two_at_a_time_give_the_numbers_of_one_at_a_time(tmp_path: Path):
    asked = study(tmp_path, *grid(method=["gcd"]), seeds=(0, 1))
    one = conduct(asked, tmp_path / "one", LocalEngine(1), QUIET)
    two = conduct(asked, tmp_path / "two", LocalEngine(2), QUIET)
    assert [run.results.summary for run in one.rows[0].runs] == [
        run.results.summary for run in two.rows[0].runs
    ]


def test_a_process_that_dies_is_replaced_and_its_run_goes_on(tmp_path: Path):
    asked, store = study(tmp_path, *grid(method=["gcd"]), epochs=40), tmp_path / "store"
    [job] = missing(asked, store)
    killed = False
    for _ in LocalEngine(1).carry_out([job]):
        metrics = job.folder / "metrics.jsonl"
        if not killed and metrics.exists() and metrics.read_text().count("\n") > 3:
            [child] = [int(pid) for pid in _children() if b"spawn_main" in _words(pid)]
            os.kill(child, signal.SIGKILL)
            killed = True
    assert killed
    assert finished(job.folder)
    undisturbed = conduct(asked, tmp_path / "other", LocalEngine(1), QUIET)
    assert read_results(job.folder / "results.json").summary == undisturbed.rows[0].first.results.summary


def _children() -> list[str]:
    mine = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    return Path(mine).read_text().split()


def _words(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_study_that_is_killed_takes_its_runs_with_it_and_goes_on_at_once(tmp_path: Path):
    words = [
        "study",
        "drift",
        "--smoke",
        "--method",
        "gcd",
        "--epochs",
        "60",
        "--quiet",
        "--out",
        "store",
        "--bank",
        "bank",
    ]
    killed = subprocess.Popen([Path(sys.executable).parent / "camp", *words], cwd=tmp_path)
    metrics = tmp_path / "store" / "runs"
    while not any(path.read_text().count("\n") > 5 for path in metrics.glob("*/metrics.jsonl")):
        assert killed.poll() is None
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    time.sleep(1)  # for its process to notice
    again = subprocess.run([Path(sys.executable).parent / "camp", *words], cwd=tmp_path, capture_output=True)
    assert (again.returncode, again.stderr) == (0, b"")


def test_a_run_that_takes_every_process_down_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked, store = study(tmp_path, *grid(method=["gcd"]), epochs=500), tmp_path / "store"
    [job] = missing(asked, store)
    ended = []
    for outcome in LocalEngine(1).carry_out([job]):
        if outcome is not None:
            ended.append(outcome)
        elif (job.folder / "metrics.jsonl").exists():
            for pid in _children():
                if b"spawn_main" in _words(pid):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.2)
    [outcome] = ended
    assert "The process ended before the run did (signal 9)" in (outcome.fault or "")
    assert not finished(job.folder)


def test_a_damaged_or_begun_run_is_not_finished(tmp_path: Path):
    folder = tmp_path / "run"
    assert not finished(folder)
    (folder / "checkpoint").mkdir(parents=True)
    write_json(folder / "checkpoint" / "state.json", {"task": 1})
    write_json(folder / "results.json", {"tasks_planned": 2, "tasks": [{}]})
    assert not finished(folder)
    write_json(folder / "results.json", {"tasks_planned": 1, "tasks": [{}]})
    assert finished(folder)
    (folder / "results.json").write_text("{")
    assert not finished(folder)


def test_a_folder_is_named_after_its_run(tmp_path: Path):
    [point] = study(tmp_path, {"method": "gcd"}).points()
    assert run_folder(tmp_path, point) == tmp_path / "runs" / point.address


def test_runs_that_differ_after_phase_1_train_once_and_have_the_numbers_of_runs_alone(tmp_path: Path):
    asked = study(
        tmp_path,
        *grid(method=["camp"], adapter=["none", "linear"]),
        {"method": "camp", "distiller": "fd"},
        epochs=3,
    )
    store = tmp_path / "store"
    jobs = missing(asked, store)
    assert [job.tips is not None for job in jobs] == [True, False, True]  # what has to train comes first
    conducted = conduct(asked, store, LocalEngine(1), QUIET)
    [tips] = (store / "tips").iterdir()
    assert {path.name for path in tips.glob("*.safetensors")} == {"task-0.safetensors", "task-1.safetensors"}
    lines = [(row.first.folder / "metrics.jsonl").read_text() for row in conducted.rows]
    assert lines[0] == lines[1] != lines[2]  # with the seconds that each epoch took: they are the same epochs
    assert lines[0].count("\n") == 6
    for row in conducted.rows:
        alone = conduct(study(tmp_path, row.options, epochs=3), tmp_path / row.label, LocalEngine(1), QUIET)
        assert not (tmp_path / row.label / "tips").exists()
        apart, shared = alone.rows[0].first.results, row.first.results
        assert apart["summary"] == shared["summary"]
        assert [task.drift for task in apart.tasks] == [task.drift for task in shared.tasks]


def test_phase_1_is_shared_only_where_nothing_found_comes_before_it():
    def shared(method="camp", **options):
        return phase1_address(from_flat(method, options))

    assert shared() == shared(adapter="sdc") == shared(n_init=3)
    assert len({shared(), shared(alpha=0.3), shared(distiller="fd"), shared(seed=1), shared(beta=0.1)}) == 5
    assert shared(exemplars=5) is None
    assert shared(k="estimated") is None
    assert shared("gcd") is None
    assert shared("camp-plus") is None


def test_the_bar_follows_tasks_and_their_epochs(tmp_path: Path):
    job = Job("some", {}, tmp_path / "run", tmp_path / "log")
    bar = Bar("some", 1)
    following = _Following([job], bar)
    following.look()
    assert bar.done == 0
    (job.folder / "checkpoint").mkdir(parents=True)
    write_json(job.folder / "split.json", {"tasks": [{}, {}, {}, {}]})
    write_json(job.folder / "config.json", {"settings": {"settings": {"training": {"epochs": 10}}}})
    write_json(job.folder / "checkpoint" / "state.json", {"task": 1})
    for task, epochs in ((0, 10), (1, 5)):
        for epoch in range(epochs):
            append_json_line(job.folder / "metrics.jsonl", {"task": task, "epoch": epoch})
    following.look()
    assert bar.done == (1 + 0.25) / 4
    following.over(job)
    following.look()
    assert bar.done == 1
