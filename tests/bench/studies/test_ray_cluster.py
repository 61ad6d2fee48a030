"""A study on a real Ray cluster of two nodes on this machine; workers are killed for real."""

import os
import signal
from pathlib import Path

import pytest

from camp.bench.engines.local import LocalEngine
from camp.bench.studies.banks import prepared
from camp.bench.studies.runner import conduct, finished, missing
from camp.bench.studies.study import SMOKE, Study, grid
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.data.bank.bank import Bank

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from camp.bench.engines import ray_cluster  # noqa: E402
from camp.bench.engines.ray_cluster import RayEngine  # noqa: E402

QUIET = Progress(quiet=True)
TINY = {**SMOKE, "epochs": 1, "images_per_class": 12, "test_per_class": 4, "n_init": 2}


@pytest.fixture(scope="module")
def engine():
    """Two nodes of one CPU each."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 10**8})
    cluster.add_node(num_cpus=1, object_store_memory=10**8)
    yield RayEngine(cluster.address)
    ray.shutdown()
    cluster.shutdown()


def study(tmp_path: Path, *rows, seeds=(0,), **base):
    bank = {"bank": str(tmp_path / "bank")}
    rows = rows or grid(method=["frozen", "gcd"])
    return Study("tiny", "Tiny", rows, "table", base={**TINY, **bank, **base}, seeds=seeds)


def summaries(conducted):
    return [run.results.summary for row in conducted.rows for run in row.runs]


def test_it_has_room_for_a_run_on_each_node(engine):
    assert engine.jobs == 2


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


def test_a_worker_killed_in_the_middle_changes_no_number(engine, tmp_path: Path):
    asked = study(tmp_path, *grid(method=["gcd"]), seeds=(0, 1), epochs=40)
    store, killed = tmp_path / "store", []
    jobs = missing(asked, store)
    for ended in engine.carry_out(jobs):
        assert ended is None or ended.fault is None
        epochs = [job.folder / "metrics.jsonl" for job in jobs]
        if not killed and any(path.exists() and path.read_text().count("\n") > 5 for path in epochs):
            killed = workers()[:1]
            os.kill(killed[0], signal.SIGKILL)
    assert killed
    assert all(finished(job.folder) for job in jobs)
    assert not list(store.glob(".seen-*"))
    local = conduct(asked, tmp_path / "local", LocalEngine(1, threads=1), QUIET)
    assert summaries(conduct(asked, store, engine, QUIET)) == summaries(local)


def test_where_the_folder_is_not_seen_runs_come_home(engine, tmp_path: Path, monkeypatch):
    # The mark lies where no worker sees it, as on machines that share no disk.
    monkeypatch.setattr(ray_cluster._Seen, "__init__", unseen)
    asked, store = study(tmp_path), tmp_path / "store"
    conducted = conduct(asked, store, engine, QUIET)
    assert conducted.failed == {}
    assert summaries(conducted) == summaries(
        conduct(asked, tmp_path / "local", LocalEngine(1, threads=1), QUIET)
    )
    for point in asked.points():
        folder = store / "runs" / point.address
        assert (folder / "split.json").exists()
        assert (store / "logs" / f"{point.address}.log").read_text()
    assert {path.name for path in (store / "runs").iterdir()} == {point.address for point in asked.points()}


def unseen(self, store: Path) -> None:
    self.word, self.mark = "word", store / "nowhere" / "mark"


def test_a_run_that_fails_there_says_why(engine, tmp_path: Path):
    base = {name: value for name, value in study(tmp_path).base.items() if name != "tasks"}
    asked = Study(
        "tiny", "Tiny", ({"method": "gcd", "tasks": 99}, {"method": "frozen"}), "table", base=base, seeds=(0,)
    )
    conducted = conduct(asked, tmp_path / "store", engine, QUIET)
    [(fault, log)] = conducted.failed.values()
    assert "cannot be cut into 99 tasks" in fault
    assert fault in log.read_text()
    assert len(conducted.rows) == 1


def test_the_cluster_makes_the_bank_that_one_machine_makes(engine, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(ray_cluster, "SHARD", 40)
    banks = []
    for who in ("cluster", "here"):
        [point] = study(tmp_path, {"method": "frozen"}, bank=str(tmp_path / who)).points()
        if who == "cluster":
            engine.fill_bank(point.settings, QUIET)
        else:
            LocalEngine(2).fill_bank(point.settings, QUIET)
        run = prepared(point.settings, QUIET)
        banks.append(Bank(run.bank().folder, run.bank().spec))
    here, there = ({p.name: p.read_bytes() for p in sorted(bank.folder.rglob("*.bin"))} for bank in banks)
    assert here
    assert here == there


def test_a_part_of_the_bank_that_is_lost_for_good_is_one_sentence(engine):
    dies = engine.ray.remote(lambda: os._exit(1)).options(max_retries=0).remote()
    with pytest.raises(CampError, match=r"A part of the view bank could not be made on the cluster \("):
        engine._made(dies)


def test_where_nobody_answers_there_is_no_cluster(engine):
    with pytest.raises(CampError, match=r"There is no Ray cluster at 127.0.0.1:1 \("):
        RayEngine("127.0.0.1:1")
    with pytest.raises(CampError, match=r"There is no Ray cluster at ray://here:x \("):
        RayEngine("ray://here:x")


def test_more_than_the_cluster_has_is_refused(engine):
    with pytest.raises(CampError, match="A run is to have 64 CPUs, and the whole cluster has 2"):
        RayEngine(None, cpus=64)
    with pytest.raises(CampError, match="1 GPUs, and the whole cluster has 0"):
        RayEngine(None, gpus=1)
