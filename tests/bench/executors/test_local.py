"""The executor with processes of this machine: the same numbers, and processes that are killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from camp.bench.executors.in_process import InProcessExecutor
from camp.bench.executors.local import LocalExecutor
from camp.bench.run_folder import RunFolder
from camp.bench.studies.runner import StudyOutcome, run_study
from camp.bench.studies.store import StudyStore, missing
from camp.bench.studies.study import SMOKE, Study, grid
from camp.core.files import read_json
from camp.core.progress import Progress

pytestmark = pytest.mark.slow  # every process imports torch
QUIET = Progress(quiet=True)
IN_PROCESS = InProcessExecutor(QUIET)
TINY = {**SMOKE, "epochs": 1, "images_per_class": 12, "test_per_class": 4, "n_init": 2}


def study(*rows, seeds=(0,), **base):
    rows = rows or grid(method=["gcd"])
    return Study("tiny", "Tiny", rows, "table", base={**TINY, **base}, seeds=seeds)


def summaries(outcome: StudyOutcome) -> list[object]:
    return [read_json(run.folder / "results.json")["summary"] for row in outcome.rows for run in row.runs]


def test_two_at_a_time_give_the_numbers_of_one_process_and_failures_are_logged(tmp_path: Path):
    base = {name: value for name, value in TINY.items() if name != "tasks"}
    rows = ({"method": "gcd", "tasks": 2}, {"method": "gcd", "tasks": 99})
    asked = Study("tiny", "Tiny", rows, "table", base=base, seeds=(0, 1))
    one = run_study(asked, StudyStore(tmp_path / "one"), IN_PROCESS, QUIET)
    two = run_study(asked, StudyStore(tmp_path / "two"), LocalExecutor(2, threads=1), QUIET)
    assert len(summaries(one)) == 2
    assert summaries(one) == summaries(two)
    assert two.failed.keys() == one.failed.keys() == {f"gcd, tasks 99, seed {seed}" for seed in (0, 1)}
    for error, log in two.failed.values():
        assert "10 classes cannot be divided into 99 tasks" in error
        assert error in log.read_text()


def test_a_process_that_dies_is_replaced_and_its_run_continues(tmp_path: Path):
    asked, store = study(epochs=40), StudyStore(tmp_path / "store")
    [job] = missing(asked, store)
    killed = False
    for _ in LocalExecutor(1, threads=1).run([job]):
        metrics = job.folder / "metrics.jsonl"
        if not killed and metrics.exists() and metrics.read_text().count("\n") > 3:
            [child] = [int(pid) for pid in _children() if b"spawn_main" in _words(pid)]
            os.kill(child, signal.SIGKILL)
            killed = True
    assert killed
    assert RunFolder(job.folder).is_finished()
    undisturbed = run_study(asked, StudyStore(tmp_path / "other"), IN_PROCESS, QUIET)
    assert summaries(run_study(asked, store, IN_PROCESS, QUIET)) == summaries(undisturbed)


def _children() -> list[str]:
    mine = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    return Path(mine).read_text().split()


def _words(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_the_processes_of_a_killed_study_end_and_it_continues_at_once(tmp_path: Path):
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


def test_a_run_that_takes_every_process_down_is_given_up(tmp_path: Path):
    asked, store = study(epochs=500), StudyStore(tmp_path / "store")
    [job] = missing(asked, store)
    ended = []
    for outcome in LocalExecutor(1, threads=1).run([job]):
        if outcome is not None:
            ended.append(outcome)
        elif (job.folder / "metrics.jsonl").exists():
            for pid in _children():
                if b"spawn_main" in _words(pid):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.2)
    [outcome] = ended
    assert "The process ended before the run did (signal 9)" in (outcome.error or "")
    assert not RunFolder(job.folder).is_finished()
