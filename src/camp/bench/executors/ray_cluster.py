"""An executor on a Ray cluster: the whole cluster fills the view bank, then every run is a Ray task.

The code must be installed on every node, and the images must have the same path there. On nodes that see the folder
of the studies (one machine, or a shared disk) a run works in its own folder, and a task that was lost with its
worker continues from the checkpoint. On other nodes a run works in a temporary folder, which is sent back as a whole.
"""

import dataclasses
import io
import json
import shutil
import tarfile
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from camp.bench.executors.base import Job, JobResult
from camp.bench.executors.job import run_logged_job
from camp.bench.experiment import BlockMaker, Experiment
from camp.bench.settings import RunSettings, from_dict, to_dict
from camp.core.files import write_text
from camp.core.progress import Progress
from camp.core.ray_cluster import RETRIES, RayCluster, Resources
from camp.data.bank.block_arrays import BlockArrays, from_arrays, to_arrays
from camp.data.bank.fill import Block, encode_blocks

IMAGES_PER_TASK = 264
"""Number of images of a Ray task that makes part of a bank."""


class RayExecutor:
    """Runs jobs on a Ray cluster.

    Args:
        address: Address of the cluster; by default one is started on this machine.
        cpus: CPUs of each run.
        gpus: GPUs of each run; a fraction shares a GPU.
        jobs: Number of runs at a time; by default as many as fit.
    """

    shows_progress = False

    def __init__(
        self, address: str | None = None, cpus: float = 1.0, gpus: float = 0.0, jobs: int | None = None
    ) -> None:
        self.need = Resources(cpus, gpus)
        self.cluster = RayCluster("--executor ray", address)
        self.ray, self.most = self.cluster.ray, jobs
        fit = self.cluster.number_that_fit(self.need, "A run")
        self.jobs = fit if jobs is None else jobs

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult | None]:
        """Yield results as jobs end, and None while none does."""
        run = self.cluster.task(_run, self.need)
        waiting: list[Job] = list(jobs)
        under_way: dict[Any, Job] = {}
        marker = _Marker(jobs[0].folder.parent.parent)
        try:
            while waiting or under_way:
                # Ray queues more jobs than fit, so that no node is ever idle.
                while waiting and len(under_way) < (self.most or 2 * self.jobs):
                    job = waiting.pop(0)
                    under_way[run.remote(job, marker.path, marker.token, self.need.threads)] = job
                done, _ = self.ray.wait(list(under_way), num_returns=1, timeout=0.5)
                if not done:
                    yield None
                for ref in done:
                    job = under_way.pop(ref)
                    yield JobResult(job, self._error(ref, job))
        finally:
            for ref in under_way:
                self.ray.cancel(ref, force=True)
            marker.remove()

    def _error(self, ref: Any, job: Job) -> str | None:
        """Return why a task failed, and store the folder and the log that it sends."""
        try:
            result: tuple[str | None, bytes | None, str | None] = self.ray.get(ref)
        except self.ray.exceptions.RayError as lost:
            return f"Its worker was lost {RETRIES + 1} times ({type(lost).__name__})."
        error, folder, log = result
        if log is not None and job.log is not None:
            write_text(job.log, log)
        if folder is not None:
            _unpack(folder, job.folder)
        return error

    def fill_bank(self, settings: RunSettings, progress: Progress) -> None:
        """Fill the view bank of a run with the whole cluster."""
        experiment = Experiment.prepare(settings)
        _, train = experiment.image_keys()
        experiment.fill_bank(progress, self._block_maker(settings, train))

    def _block_maker(self, settings: RunSettings, train: set[str]) -> BlockMaker:
        """Return what makes blocks of views in tasks of the cluster."""
        make = self.cluster.task(_views_of, self.need)
        settings_json = json.dumps(to_dict(settings))

        def make_blocks(digests: dict[str, bytes], wanted: list[str]) -> Iterable[Block]:
            # Training images first: a block has only training or only test images.
            ordered = sorted(wanted, key=lambda key: key not in train)
            shards = (ordered[i : i + IMAGES_PER_TASK] for i in range(0, len(ordered), IMAGES_PER_TASK))
            calls = (
                (
                    settings_json,
                    shard,
                    {key: digests[key] for key in shard},
                    [key for key in shard if key in train],
                    self.need.threads,
                )
                for shard in shards
            )
            # In order, so that the bank does not depend on which task ends first.
            for blocks in self.cluster.map_ordered(make, calls, 2 * self.jobs, "A part of the view bank"):
                yield from from_arrays(blocks)

        return make_blocks


class _Marker:
    """A file in the folder of the studies by which a worker finds out whether it sees that folder."""

    def __init__(self, store: Path) -> None:
        self.token = uuid.uuid4().hex
        self.path = store.resolve() / f".seen-{self.token}"
        write_text(self.path, self.token)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _run(job: Job, marker: Path, token: str, threads: int) -> tuple[str | None, bytes | None, str | None]:
    """Carry out a job in a worker.

    Returns:
        Why it failed; and the run folder and the log, where the folder of the studies is not visible.
    """
    if marker.exists() and marker.read_text(encoding="utf-8") == token:
        return run_logged_job(job, threads), None, None
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log"
        own = dataclasses.replace(job, folder=Path(place) / job.folder.name, log=log, tips=None)
        error = run_logged_job(own, threads)
        packed = _packed(own.folder) if own.folder.exists() else None
        return error, packed, log.read_text(encoding="utf-8")


def _packed(folder: Path) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for path in sorted(folder.iterdir()):
            if path.name != ".lock":
                archive.add(path, path.name)
    return file.getvalue()


def _unpack(content: bytes, folder: Path) -> None:
    """Unpack a run folder under a temporary name, then rename it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".coming-") as place:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(Path(place) / "run", filter="data")
        shutil.rmtree(folder, ignore_errors=True)
        (Path(place) / "run").rename(folder)


@lru_cache(maxsize=2)
def _experiment(settings_json: str) -> Experiment:
    """Return the experiment of a run; a worker prepares it once."""
    return Experiment.prepare(from_dict(json.loads(settings_json)))


def _views_of(
    settings_json: str, keys: list[str], digests: dict[str, bytes], train: list[str], threads: int
) -> BlockArrays:
    """Make blocks of views in a worker."""
    torch.set_num_threads(threads)
    experiment = _experiment(settings_json)
    blocks = encode_blocks(
        experiment.bank().spec, experiment.backbone, experiment.dataset, digests, keys, set(train)
    )
    return to_arrays(blocks)
