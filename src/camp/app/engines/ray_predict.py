"""Prediction on a Ray cluster: actors hold the model, and write what they have predicted as Parquet files.

The images are divided into parts of consecutive ones, which a Ray Data pipeline gives to the actors. A part is predicted
as `camp.app.prediction.predict` does it on one machine, in the same blocks, so that the results are equal.

On CPUs an actor reads and decodes its images itself. If actors have GPUs, tasks on all CPUs of the cluster read and
decode the images before, so that no GPU waits for the few CPUs of its node.
"""

import functools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from camp.app.engines.nodes import check_places, node
from camp.app.inputs.listed import ListedImages
from camp.app.inputs.urls import local_file
from camp.app.prediction.inputs import listing_identity
from camp.app.prediction.model import Model, open_model
from camp.app.prediction.predict import Unreadable, predict
from camp.app.prediction.shards import PartCounts, PredictionFolder, PredictionTask
from camp.app.workspace.storage import FolderStorage
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError
from camp.core.extras import import_extra
from camp.core.progress import Progress
from camp.core.ray_cluster import RayCluster, Resources
from camp.data.bank.pipeline import decode_resized, read_image
from camp.data.datasets.base import Reader
from camp.data.images import UnreadableImageError

IMAGES_PER_PART = 480
"""A multiple of the numbers of images in a block, on a CPU and on other devices."""
MAX_PARTS, MAX_GROWTH = 10_000, 5
"""A prediction with more parts has larger ones, up to this factor."""
MAX_DECODED_BYTES = 10**9
"""Parts with more pixels than this are decoded by the actors, as rows of Ray Data cannot hold much more."""


@dataclass(frozen=True)
class Part:
    """Consecutive images that are predicted together."""

    number: int
    keys: tuple[str, ...]
    reader: Reader
    error: str = ""
    """Why it could not be decoded on a node that does not see the images."""


@dataclass(frozen=True)
class Job:
    """What is the same for all parts."""

    model: Model
    folder: PredictionFolder
    task: PredictionTask
    need: Resources
    places: tuple[Path, ...]
    """Files and folders that a node must see."""
    decoded_before: bool
    """Whether the images come decoded."""


@dataclass(frozen=True)
class DecodedReader:
    """Reader of images that were decoded in another process."""

    resolution: int
    content: Mapping[str, bytes | str]
    """The pixels of each image, or why it cannot be read."""

    @classmethod
    def of(cls, reader: Reader, keys: Sequence[str], resolution: int) -> Self:
        """Read and decode images."""
        content = dict[str, bytes | str]()
        for key in keys:
            try:
                pixels = decode_resized(reader.decode, read_image(reader, key), resolution)
                content[key] = pixels.tobytes()
            except UnreadableImageError as fault:
                content[key] = str(fault)
        return cls(resolution, content)

    def read(self, key: str) -> bytes:
        """Return the pixels of an image."""
        pixels = self.content[key]
        if isinstance(pixels, str):
            raise UnreadableImageError(pixels)
        return pixels

    def decode(self, data: bytes, min_size: int | None = None) -> np.ndarray:
        """Return the pixels (R, R, 3) uint8."""
        return np.frombuffer(data, dtype=np.uint8).reshape(self.resolution, self.resolution, 3)


@dataclass(frozen=True)
class PredictionSummary:
    """The result of a prediction."""

    counts: PartCounts
    first_unreadable: Unreadable | None
    """One of those of this run."""


def images_per_part(images: int) -> int:
    """Return the number of images in each part but the last.

    >>> images_per_part(1000), images_per_part(10**7), images_per_part(10**9)
    (480, 1440, 2400)
    """
    return IMAGES_PER_PART * min(max(1, -(-images // (IMAGES_PER_PART * MAX_PARTS))), MAX_GROWTH)


def check_takes_images(workspace: Workspace) -> None:
    """Refuse a workspace of vectors."""
    if workspace.settings.backbone.backbone == "embeddings":
        raise CampError(f"{workspace.name} has learned vectors, and --engine ray predicts pictures.")


def output_url(out: str, workspace: Workspace, images: ListedImages) -> str:
    """Return the folder or URL of the results as every process names it; refuse one that is read."""
    folder = local_file(out)
    if folder is None:
        return out.rstrip("/")
    if folder.exists() and not folder.is_dir():
        raise CampError(f"--out {out} is a file; --engine ray writes a folder.")
    read = [
        *images.places(),
        *([workspace.storage.path] if isinstance(workspace.storage, FolderStorage) else []),
    ]
    for place in read:
        if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(place)):
            raise CampError(f"--out {out} is in {place}, which is read; choose another place.")
    return str(folder)


def open_for_ray(workspace: Workspace, false_alarms: float, need: Resources) -> Model:
    """Return the model on the CPU; if processes have a GPU, with a trunk that can be moved there."""
    storage, backbone = workspace.storage, workspace.settings.backbone
    if not isinstance(storage, FolderStorage):
        raise CampError("Only a workspace in a folder predicts on a cluster; save it first.")
    backbone = replace(backbone, device="cpu", engine="torch" if need.gpus else backbone.engine)
    settings = replace(workspace.settings, backbone=backbone)
    return open_model(Workspace(FolderStorage(storage.path, settings)), false_alarms)


def predict_on_ray(
    cluster: RayCluster, model: Model, images: ListedImages, out: str, need: Resources, progress: Progress
) -> PredictionSummary:
    """Predict images on a cluster, and write the results below `out`; parts that are there already are not repeated.

    Args:
        cluster: The cluster.
        model: The model, on the CPU.
        images: The images; every node must see them.
        out: Folder or URL; every node must see it.
        need: CPUs and GPUs of each actor.
        progress: Shows the number of images that are predicted.
    """
    fit = cluster.number_that_fit(need, "An actor")
    folder = PredictionFolder(out)
    task = PredictionTask.of(listing_identity(images), images.keys, images_per_part(len(images.keys)), model)
    done = folder.begin(task)
    counts, first = PartCounts(), None
    with progress.track("Pictures", len(images.keys)) as bar:
        for part, of_part in done.items():
            counts += of_part
            bar.skip(_size(task, part))
        missing = [part for part in range(task.parts) if part not in done]
        if missing:
            decoded = _decodes_before(cluster, need, task, model.backbone.resolution)
            job = Job(model, folder, task, need, tuple(images.places()), decoded)
            for row in _run(cluster, job, _parts(images, task, missing), min(fit, len(missing))):
                if row["error"]:
                    raise CampError(row["error"])
                counts += PartCounts(row["predicted"], row["unknown"], row["unreadable"])
                first = first or (Unreadable(row["file"], row["reason"]) if row["unreadable"] else None)
                bar.advance(_size(task, row["part"]))
    return PredictionSummary(counts, first)


def _decodes_before(cluster: RayCluster, need: Resources, task: PredictionTask, resolution: int) -> bool:
    """Return whether images are decoded before they come to the actors, which leave a CPU for that."""
    fits = task.images_per_part * 3 * resolution**2 <= MAX_DECODED_BYTES
    return bool(need.gpus) and fits and cluster.total("CPU") >= need.cpus + 1


def _size(task: PredictionTask, part: int) -> int:
    """Return the number of images in a part."""
    return min(task.images_per_part, task.images - part * task.images_per_part)


def _parts(images: ListedImages, task: PredictionTask, wanted: Sequence[int]) -> Iterator[Part]:
    for number in wanted:
        start = number * task.images_per_part
        keys = tuple(images.keys[start : start + task.images_per_part])
        yield Part(number, keys, images.reader_of(keys))


def _run(cluster: RayCluster, job: Job, parts: Iterator[Part], actors: int) -> Iterator[dict[str, Any]]:
    """Predict parts with a number of actors, and yield a row about each as it ends."""
    data = import_extra("ray.data", "ray", "--engine ray")
    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    _silence()
    pickled = [{"part": part.number, "images": cluster.ray.cloudpickle.dumps(part)} for part in parts]
    rows = data.from_items(pickled, override_num_blocks=min(len(pickled), MAX_PARTS))
    if job.decoded_before:
        rows = rows.map(functools.partial(_decoded, job.places, job.model.backbone.resolution), num_cpus=1)
    predicted = rows.map(
        _Predictor,
        # In a list, as Ray would replace a bare reference by the value, in every call.
        fn_constructor_args=([cluster.ray.put(job)], job.need.threads),
        # All at once would take the CPUs of the tasks that decode.
        compute=data.ActorPoolStrategy(
            min_size=1, max_size=actors, initial_size=1 if job.decoded_before else actors
        ),
        num_cpus=job.need.cpus,
        num_gpus=job.need.gpus,
    )
    try:
        yield from predicted.iter_rows()
    except Exception as error:  # Ray Data raises errors of several kinds, and those of the actors within them
        raise cluster.failure(error, "The predictions") from error


def _silence() -> None:
    """Let Ray Data print errors only; `Progress` shows the rest."""
    for name in ("ray.data", "ray.data._internal"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _decoded(places: Sequence[Path], resolution: int, row: dict[str, Any]) -> dict[str, Any]:
    """Read and decode the images of a part, in a task."""
    cloudpickle = import_extra("ray", "ray", "--engine ray").cloudpickle
    part: Part = cloudpickle.loads(row["images"])
    try:
        check_places(places)
        part = replace(part, reader=DecodedReader.of(part.reader, part.keys, resolution))
    except CampError as fault:  # Ray Data would pass on its traceback only
        part = replace(part, error=str(fault))
    return {**row, "images": cloudpickle.dumps(part)}


class _Predictor:
    """An actor that holds the model.

    Args:
        job: Reference to the `Job`.
        threads: Number of threads; set before the model comes, which is made for it.
    """

    def __init__(self, job: list[Any], threads: int) -> None:
        torch.set_num_threads(threads)
        self.ray = import_extra("ray", "ray", "--engine ray")
        self.job: Job = self.ray.get(job[0])
        self.model = self.job.model
        if self.job.need.gpus:
            self.model = replace(self.model, backbone=self.model.backbone.on(torch.device("cuda")))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Predict a part, write the results, and return a row about them; its column `error` says why it failed."""
        part: Part = self.ray.cloudpickle.loads(row["images"])
        try:
            self._check_seen(part)
            rows = list(predict(self.model, part.reader, part.keys))
            counts, error = self.job.folder.write(part.number, rows), ""
        except CampError as fault:  # Ray Data would pass on its traceback only
            rows, counts, error = [], PartCounts(), str(fault)
        unreadable = next((one for one in rows if isinstance(one, Unreadable)), Unreadable("", ""))
        return {"part": part.number, "error": error, **asdict(counts), **asdict(unreadable)}

    def _check_seen(self, part: Part) -> None:
        """Refuse to work on a node that would not find the images, or write to a disk of its own."""
        if part.error:
            raise CampError(part.error)
        if not self.job.decoded_before:
            check_places(self.job.places)
        if not self.job.folder.holds(self.job.task):
            raise CampError(
                f"{node()} does not see {self.job.folder.url}; give a URL, or a folder on a disk that all nodes share."
            )
