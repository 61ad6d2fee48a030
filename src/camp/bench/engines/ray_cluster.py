"""A Ray cluster: the bank is made by all of it, then every run is a task with the resources it needs.

What a task needs besides its settings it finds where it runs: the code, and the pictures under the same path. Where the folder of the
studies is seen under the same path too (one machine, or a shared disk), a run works in its folder there, and a task that was lost
with its worker goes on from the run's checkpoint. Elsewhere a run works in a folder of its own, which comes back whole and takes
its place among the others.
"""

import io
import json
import logging
import shutil
import socket
import tarfile
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from camp.bench.engines import Ended
from camp.bench.experiment import Run
from camp.bench.settings import RunSettings, from_dict, to_dict
from camp.bench.studies.banks import Making, fill_bank, prepared
from camp.bench.studies.jobs import Job, carry_out
from camp.core.errors import CampError
from camp.core.files import write_text
from camp.core.progress import Progress
from camp.data.bank.fill import Block, blocks_of

RETRIES = 3
"""Times that a task is begun again after its worker was lost."""
REACH_SECONDS = 5.0
"""In which a cluster must answer."""
SHARD = 256
"""Pictures of a task that makes part of a bank."""


class RayEngine:
    """The cluster at `address`, or one started on this machine."""

    def __init__(
        self, address: str | None = None, cpus: float = 1.0, gpus: float = 0.0, jobs: int | None = None
    ) -> None:
        try:
            import ray
        except ImportError:
            raise CampError('--engine ray needs Ray: pip install "camp-discovery[ray]".') from None
        self.ray = ray
        _check_reachable(address)
        if cpus < 0 or gpus < 0:
            raise CampError("A run can not need less than no CPU or GPU.")
        try:
            ray.init(
                address=address, log_to_driver=False, ignore_reinit_error=True, logging_level=logging.ERROR
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = f"at {address}" if address else "on this machine"
            raise CampError(f"There is no Ray cluster {where} ({str(error).splitlines()[0]}).") from error
        self.cpus, self.gpus, self.most = cpus, gpus, jobs
        room = ray.cluster_resources()
        for name, need in (("CPU", cpus), ("GPU", gpus)):
            if need > room.get(name, 0.0):
                raise CampError(
                    f"A run is to have {need:g} {name}s, and the whole cluster has {room.get(name, 0.0):g}."
                )
        fits = [int(room.get(name, 0.0) / need) for name, need in (("CPU", cpus), ("GPU", gpus)) if need]
        self.jobs = min(fits, default=1) if jobs is None else jobs

    def carry_out(self, jobs: Sequence[Job]) -> Iterator[Ended | None]:
        """Jobs as they end, and None while nothing does."""
        run = self.ray.remote(_run).options(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES, retry_exceptions=False
        )
        waiting: list[Job] = list(jobs)
        under_way: dict[Any, Job] = {}
        seen = _Seen(jobs[0].folder.parent.parent)
        try:
            while waiting or under_way:
                # More than there is room for wait in Ray's own queue, so that none of its nodes is idle.
                while waiting and len(under_way) < (self.most or 2 * self.jobs):
                    job = waiting.pop(0)
                    under_way[run.remote(job, seen.mark, seen.word, max(1, int(self.cpus)))] = job
                done, _ = self.ray.wait(list(under_way), num_returns=1, timeout=0.5)
                if not done:
                    yield None
                for ref in done:
                    job = under_way.pop(ref)
                    yield Ended(job, self._fault(ref, job))
        finally:
            for ref in under_way:
                self.ray.cancel(ref, force=True)
            seen.forget()

    def _fault(self, ref: Any, job: Job) -> str | None:
        """Why a task failed; what it sends home is put in its place."""
        try:
            fault, folder, log = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            return f"Its worker was lost {RETRIES + 1} times ({type(error).__name__})."
        if log is not None:
            write_text(job.log, log)
        if folder is not None:
            _unpack(folder, job.folder)
        return fault

    def fill_bank(self, settings: RunSettings, progress: Progress) -> None:
        """Make the bank that a run with `settings` reads with the whole cluster; a run finds it full."""
        fill_bank(settings, progress, lambda train: self._made_by(settings, train))

    def _made_by(self, settings: RunSettings, train: set[str]) -> Making:
        make = self.ray.remote(_views_of).options(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES, retry_exceptions=False
        )
        told = json.dumps(to_dict(settings))

        def made(digests: dict[str, bytes], wanted: list[str]) -> Iterable[Block]:
            # Pictures of one kind to a shard, as blocks are.
            ordered = [key for key in wanted if key in train] + [key for key in wanted if key not in train]
            shards = [ordered[i : i + SHARD] for i in range(0, len(ordered), SHARD)]
            refs: list[Any] = []
            while shards or refs:
                while shards and len(refs) < 2 * self.jobs:
                    shard = shards.pop(0)
                    own = {key: digests[key] for key in shard}
                    with_augmented = [key for key in shard if key in train]
                    refs.append(make.remote(told, shard, own, with_augmented, max(1, int(self.cpus))))
                # In their order, so that the bank is the same whoever makes it.
                for good, faults, batch in self._made(refs.pop(0)):
                    yield good, faults, {name: torch.from_numpy(x.copy()) for name, x in batch.items()}

        return made

    def _made(self, ref: Any) -> list[tuple[list[str], dict[str, str], dict[str, np.ndarray]]]:
        """Blocks that a worker has made."""
        try:
            made: list[tuple[list[str], dict[str, str], dict[str, np.ndarray]]] = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise CampError(
                f"A part of the view bank could not be made on the cluster ({reason})."
            ) from error
        return made


def _check_reachable(address: str | None) -> None:
    """Ray itself would wait for minutes where nobody answers."""
    place = (address or "").removeprefix("ray://").rpartition(":")
    if not place[0]:  # none, or a word like auto
        return
    try:
        socket.create_connection((place[0], int(place[2])), REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        raise CampError(f"There is no Ray cluster at {address} ({error}).") from error


class _Seen:
    """A mark in the folder of the studies, by which a worker knows whether it sees that folder."""

    def __init__(self, store: Path) -> None:
        self.word = uuid.uuid4().hex
        self.mark = store.resolve() / f".seen-{self.word}"
        write_text(self.mark, self.word)

    def forget(self) -> None:
        self.mark.unlink(missing_ok=True)


def _run(job: Job, mark: Path, word: str, threads: int) -> tuple[str | None, bytes | None, str | None]:
    """In a worker: carry out a run; why it failed, and its folder and log where they are not seen from home."""
    if mark.exists() and mark.read_text(encoding="utf-8") == word:
        return carry_out(job, threads), None, None
    with tempfile.TemporaryDirectory() as place:
        own = Job(job.label, job.settings, Path(place) / job.folder.name, Path(place) / "log", None)
        fault = carry_out(own, threads)
        return (
            fault,
            _packed(own.folder) if own.folder.exists() else None,
            own.log.read_text(encoding="utf-8"),
        )


def _packed(folder: Path) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for path in sorted(folder.iterdir()):
            if path.name != ".lock":
                archive.add(path, path.name)
    return file.getvalue()


def _unpack(content: bytes, folder: Path) -> None:
    """Put a folder that was packed in its place, under a temporary name first."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".coming-") as place:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(Path(place) / "run", filter="data")
        shutil.rmtree(folder, ignore_errors=True)
        (Path(place) / "run").rename(folder)


@lru_cache(maxsize=2)
def _prepared(told: str) -> Run:
    """Data set and backbone of a run, once for a worker."""
    return prepared(from_dict(json.loads(told)), Progress(quiet=True))


def _views_of(
    told: str, keys: list[str], digests: dict[str, bytes], train: list[str], threads: int
) -> list[tuple[list[str], dict[str, str], dict[str, np.ndarray]]]:
    """In a worker: blocks of some pictures."""
    torch.set_num_threads(threads)
    run = _prepared(told)
    made = blocks_of(run.bank().spec, run.backbone, run.dataset, digests, keys, set(train))
    return [(good, faults, {name: x.numpy() for name, x in batch.items()}) for good, faults, batch in made]
