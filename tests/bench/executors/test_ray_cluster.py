"""A study on a real Ray cluster of two nodes on this machine; workers are killed for real."""

import os
import signal
from pathlib import Path

import pytest

from camp.bench.executors.in_process import InProcessExecutor
from camp.bench.executors.local import LocalExecutor
from camp.bench.experiment import Experiment
from camp.bench.run_folder import RunFolder
from camp.bench.studies.runner import run_study
from camp.bench.studies.store import StudyStore, missing
from camp.bench.studies.study import SMOKE, Study, grid
from camp.core.errors import CampError
from camp.core.files import read_json
from camp.core.progress import Progress

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from camp.bench.executors import ray_cluster  # noqa: E402
from camp.bench.executors.ray_cluster import RayExecutor  # noqa: E402

pytestmark = pytest.mark.slow
QUIET = Progress(quiet=True)
TINY = {**SMOKE, "epochs": 1, "images_per_class": 12, "test_per_class": 4, "n_init": 2}


@pytest.fixture(scope="module")
def executor():
    """Two nodes of one CPU each."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 10**8})
    cluster.add_node(num_cpus=1, object_store_memory=10**8)
    yield RayExecutor(cluster.address)
    ray.shutdown()
    cluster.shutdown()


def study(tmp_path: Path, *rows, seeds=(0,), **base):
    bank = {"bank": str(tmp_path / "bank")}
    rows = rows or grid(method=["frozen", "gcd"])
    return Study("tiny", "Tiny", rows, "table", base={**TINY, **bank, **base}, seeds=seeds)


def summaries(outcome):
    return [read_json(run.folder / "results.json")["summary"] for row in outcome.rows for run in row.runs]


def test_it_has_room_for_a_run_on_each_node(executor):
    assert executor.jobs == 2


def workers() -> list[int]:
    """Processes that carry out a run now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::_run"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_a_worker_killed_in_the_middle_changes_no_number(executor, tmp_path: Path):
    asked = study(tmp_path, *grid(method=["gcd"]), seeds=(0, 1), epochs=40)
    store, killed = StudyStore(tmp_path / "store"), []
    jobs = missing(asked, store)
    for ended in executor.run(jobs):
        assert ended is None or ended.error is None
        epochs = [job.folder / "metrics.jsonl" for job in jobs]
        if not killed and any(path.exists() and path.read_text().count("\n") > 5 for path in epochs):
            killed = workers()[:1]
            os.kill(killed[0], signal.SIGKILL)
    assert killed
    assert all(RunFolder(job.folder).is_finished() for job in jobs)
    assert not list(store.folder.glob(".seen-*"))
    local = run_study(asked, StudyStore(tmp_path / "local"), InProcessExecutor(QUIET), QUIET)
    assert summaries(run_study(asked, store, executor, QUIET)) == summaries(local)


def test_where_the_folder_is_not_seen_runs_come_home(executor, tmp_path: Path, monkeypatch):
    # The mark lies where no worker sees it, as on machines that share no disk.
    monkeypatch.setattr(ray_cluster._Marker, "__init__", unseen)
    asked, store = study(tmp_path), StudyStore(tmp_path / "store")
    outcome = run_study(asked, store, executor, QUIET)
    assert outcome.failed == {}
    assert summaries(outcome) == summaries(
        run_study(asked, StudyStore(tmp_path / "local"), InProcessExecutor(QUIET), QUIET)
    )
    for point in asked.points():
        folder = store.folder / "runs" / point.address
        assert (folder / "split.json").exists()
        assert (store.folder / "logs" / f"{point.address}.log").read_text()
    assert {path.name for path in (store.folder / "runs").iterdir()} == {
        point.address for point in asked.points()
    }


def unseen(self, store: Path) -> None:
    self.token, self.path = "token", store / "nowhere" / "marker"


def test_a_run_that_fails_there_says_why(executor, tmp_path: Path):
    base = {name: value for name, value in study(tmp_path).base.items() if name != "tasks"}
    asked = Study(
        "tiny", "Tiny", ({"method": "gcd", "tasks": 99}, {"method": "frozen"}), "table", base=base, seeds=(0,)
    )
    outcome = run_study(asked, StudyStore(tmp_path / "store"), executor, QUIET)
    [(error, log)] = outcome.failed.values()
    assert "classes cannot be divided into 99 tasks" in error
    assert error in log.read_text()
    assert len(outcome.rows) == 1


def test_the_cluster_makes_the_bank_that_one_machine_makes(executor, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(ray_cluster, "IMAGES_PER_TASK", 40)
    banks = []
    for who in ("cluster", "here"):
        [point] = study(tmp_path, {"method": "frozen"}, bank=str(tmp_path / who)).points()
        if who == "cluster":
            executor.fill_bank(point.settings, QUIET)
        else:
            LocalExecutor(2).fill_bank(point.settings, QUIET)
        banks.append(Experiment.prepare(point.settings).bank())
    here, there = ({p.name: p.read_bytes() for p in sorted(bank.folder.rglob("*.bin"))} for bank in banks)
    assert here
    assert here == there


def test_a_part_of_the_bank_that_is_lost_for_good_is_one_sentence(executor):
    dies = executor.ray.remote(lambda: os._exit(1)).options(max_retries=0).remote()
    with pytest.raises(CampError, match=r"A part of the view bank could not be made on the cluster \("):
        executor.cluster.result(dies, "A part of the view bank")


def test_an_address_where_nothing_answers_is_refused(executor):
    with pytest.raises(CampError, match=r"There is no Ray cluster at 127.0.0.1:1 \("):
        RayExecutor("127.0.0.1:1")
    with pytest.raises(CampError, match=r"There is no Ray cluster at ray://here:x \("):
        RayExecutor("ray://here:x")


def test_more_than_the_cluster_has_is_refused(executor):
    with pytest.raises(CampError, match="A run needs 64 CPUs, and the whole cluster has 2"):
        RayExecutor(None, cpus=64)
    with pytest.raises(CampError, match="1 GPUs, and the whole cluster has 0"):
        RayExecutor(None, gpus=1)
