"""An executor on a Ray cluster: the whole cluster fills the view bank, then every run is a Ray task.

The code must be installed on every node, and the images must have the same path there. On nodes that see the folder
of the studies (one machine, or a shared disk) a run works in its own folder, and a task that was lost with its
worker continues from the checkpoint. On other nodes a run works in a temporary folder, which is sent back as a whole.
"""

import dataclasses
import io
import json
import logging
import shutil
import socket
import tarfile
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from camp.bench.executors.base import Job, JobResult
from camp.bench.executors.job import run_logged_job
from camp.bench.experiment import BlockMaker, Experiment
from camp.bench.settings import RunSettings, from_dict, to_dict
from camp.core.errors import CampError
from camp.core.files import write_text
from camp.core.progress import Progress
from camp.data.bank.fill import Block, encode_blocks

RETRIES = 3
"""Number of times that a task is started again after its worker was lost."""
CONNECT_SECONDS = 5.0
"""Time in which a cluster must answer."""
IMAGES_PER_TASK = 256
"""Number of images of a Ray task that makes part of a bank."""

Blocks = list[tuple[list[str], dict[str, str], dict[str, np.ndarray]]]
"""Blocks of views as workers send them."""


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
        try:
            import ray
        except ImportError:
            raise CampError('--executor ray needs Ray: pip install "camp-discovery[ray]".') from None
        self.ray: Any = ray
        _check_reachable(address)
        if cpus < 0 or gpus < 0:
            raise CampError("The numbers of CPUs and GPUs of a run cannot be negative.")
        try:
            ray.init(
                address=address, log_to_driver=False, ignore_reinit_error=True, logging_level=logging.ERROR
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = f"at {address}" if address else "on this machine"
            raise CampError(f"There is no Ray cluster {where} ({str(error).splitlines()[0]}).") from error
        self.cpus, self.gpus, self.most = cpus, gpus, jobs
        room = self.ray.cluster_resources()
        fits = []
        for name, need in (("CPU", cpus), ("GPU", gpus)):
            present = room.get(name, 0.0)
            if need > present:
                raise CampError(f"A run needs {need:g} {name}s, and the whole cluster has {present:g}.")
            if need:
                fits.append(int(present / need))
        self.jobs = min(fits, default=1) if jobs is None else jobs

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult | None]:
        """Yield results as jobs end, and None while none does."""
        run = self._remote(_run)
        waiting: list[Job] = list(jobs)
        under_way: dict[Any, Job] = {}
        marker = _Marker(jobs[0].folder.parent.parent)
        try:
            while waiting or under_way:
                # Ray queues more jobs than fit, so that no node is ever idle.
                while waiting and len(under_way) < (self.most or 2 * self.jobs):
                    job = waiting.pop(0)
                    under_way[run.remote(job, marker.path, marker.token, max(1, int(self.cpus)))] = job
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

    def _remote(self, function: Callable[..., Any]) -> Any:
        """Return `function` as a Ray task with the resources of a run."""
        return self.ray.remote(function).options(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES, retry_exceptions=False
        )

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
        make = self._remote(_views_of)
        settings_json = json.dumps(to_dict(settings))

        def make_blocks(digests: dict[str, bytes], wanted: list[str]) -> Iterable[Block]:
            # Training images first: a block has only training or only test images.
            ordered = sorted(wanted, key=lambda key: key not in train)
            shards = [ordered[i : i + IMAGES_PER_TASK] for i in range(0, len(ordered), IMAGES_PER_TASK)]
            refs: list[Any] = []
            while shards or refs:
                while shards and len(refs) < 2 * self.jobs:
                    shard = shards.pop(0)
                    own = {key: digests[key] for key in shard}
                    with_augmented = [key for key in shard if key in train]
                    refs.append(
                        make.remote(settings_json, shard, own, with_augmented, max(1, int(self.cpus)))
                    )
                # In order, so that the bank does not depend on which task ends first.
                for good, faults, batch in self._blocks(refs.pop(0)):
                    yield good, faults, {name: torch.from_numpy(x.copy()) for name, x in batch.items()}

        return make_blocks

    def _blocks(self, ref: Any) -> Blocks:
        """Return the blocks that a worker has made."""
        try:
            blocks: Blocks = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise CampError(
                f"A part of the view bank could not be made on the cluster ({reason})."
            ) from error
        return blocks


def _check_reachable(address: str | None) -> None:
    """Refuse an address where nothing answers; Ray itself would wait for minutes."""
    place = (address or "").removeprefix("ray://").rpartition(":")
    if not place[0]:  # no address, or a word such as auto
        return
    try:
        socket.create_connection((place[0], int(place[2])), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise CampError(f"There is no Ray cluster at {address} ({error}).") from error


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
) -> Blocks:
    """Make blocks of views in a worker."""
    torch.set_num_threads(threads)
    experiment = _experiment(settings_json)
    blocks = encode_blocks(
        experiment.bank().spec, experiment.backbone, experiment.dataset, digests, keys, set(train)
    )
    return [(good, faults, {name: x.numpy() for name, x in batch.items()}) for good, faults, batch in blocks]
