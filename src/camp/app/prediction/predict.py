"""Prediction of the categories of images, in the order given, with a few blocks of images in memory at a time.

The views are those of `camp.data.bank.fill`: an image has the same features here as when it was learned.
"""

import contextlib
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from camp.app.prediction.model import Model
from camp.core.csv_output import csv_text
from camp.core.devices import to_device
from camp.core.output_file import is_stream, open_output
from camp.core.parallel import threaded_map
from camp.core.progress import Bar, print_to_stderr
from camp.data.augmentations import normalise_, to_unit
from camp.data.bank.pipeline import TRUNK_BATCH, decode_resized, read_image, run_trunk
from camp.data.datasets.base import Reader
from camp.data.images import UnreadableImageError, decode_image
from camp.data.views import Trunk

UNKNOWN = "unknown"
"""Name in the prediction of an image that belongs to none of the categories."""
UNREADABLE_HEADER = ("file", "reason")
_BLOCK = 8
"""Images per block on a CPU: more do not make the trunk faster, and the first results come soon."""
_BLOCKS_AHEAD = 4


@dataclass(frozen=True)
class Prediction:
    """The predicted category of one image."""

    file: str
    category: int | None
    """Permanent id; None for an image that belongs to none of the categories."""
    name: str
    """Name of the category, or "unknown"."""
    confidence: float
    """Probability of the category; for an unknown image, of the nearest one."""
    runner_up: int | None
    """Id of the second most probable category, None if there is only one; for an unknown image, the nearest one."""
    runner_up_name: str | None
    runner_up_confidence: float | None


@dataclass(frozen=True)
class Unreadable:
    """A file that could not be read as an image."""

    file: str
    reason: str


Row = Prediction | Unreadable
Keep = Callable[[str, bytes, Tensor], None]
"""Keeps an unknown image: its file, its bytes, and its features (D,)."""
LoadedImage = tuple[str, np.ndarray]
"""A file with its pixels (R, R, 3) uint8, or its vector (D,) float32."""
Result = TypeVar("Result")


@dataclass
class PredictionCounts:
    """Numbers of predicted, unknown and unreadable files."""

    predicted: int = 0
    """Rows written, including those of unknown images."""
    unknown: int = 0
    unreadable: list[Unreadable] = field(default_factory=list)


def predict(
    model: Model, reader: Reader, keys: Iterable[str], bar: Bar | None = None, keep: Keep | None = None
) -> Iterator[Row]:
    """Predict the category of each of `keys`, in order; `bar` advances by one with each.

    Unknown images are given to `keep`. On a CPU every core processes whole blocks from the file to the result. On another device the cores decode ahead of
    the trunk, which has the device to itself.
    """
    for result in _each(model, reader, keys, _predictions):
        if bar is not None:
            bar.advance()
        if isinstance(result, Unreadable):
            yield result
            continue
        row, features = result
        if keep is not None and row.category is None:
            with contextlib.suppress(UnreadableImageError):  # it was removed since it was predicted
                keep(row.file, read_image(reader, row.file), features)
        yield row


def points(model: Model, reader: Reader, keys: Iterable[str]) -> Iterator[Tensor | Unreadable]:
    """Compute the point (d,) of each of `keys`, in order."""
    return _each(model, reader, keys, lambda *block: list(model.metric.transform(_features(*block))))


def _each(
    model: Model,
    reader: Reader,
    keys: Iterable[str],
    results: Callable[[Model, Trunk | None, Sequence[LoadedImage]], list[Result]],
) -> Iterator[Result | Unreadable]:
    """Compute `results` of blocks of images and return them one by one, in order."""
    backbone = model.backbone
    on_cpu = backbone.device.type == "cpu"
    trunk = backbone.single_threaded_trunk() if on_cpu else backbone.trunk

    def opened(key: str) -> LoadedImage | Unreadable:
        try:
            data = read_image(reader, key)
            return key, _checked(model, decode_resized(reader.decode, data, backbone.resolution))
        except UnreadableImageError as fault:
            return Unreadable(key, str(fault))

    def all_opened(block: list[str]) -> list[LoadedImage | Unreadable]:
        return [opened(key) for key in block]

    def processed(files: list[LoadedImage | Unreadable]) -> list[Result | Unreadable]:
        readable = [file for file in files if not isinstance(file, Unreadable)]
        rest = iter(results(model, trunk, readable) if readable else ())
        return [file if isinstance(file, Unreadable) else next(rest) for file in files]

    rest = iter(keys)
    blocks = iter(lambda: list(islice(rest, _BLOCK if on_cpu else TRUNK_BATCH)), [])
    rows: Iterator[list[Result | Unreadable]]
    if on_cpu:
        rows = threaded_map(lambda block: processed(all_opened(block)), blocks, _BLOCKS_AHEAD)
    else:
        rows = map(processed, threaded_map(all_opened, blocks, _BLOCKS_AHEAD))
    return chain.from_iterable(rows)


def load_image(model: Model, data: bytes) -> np.ndarray:
    """Decode one image to pixels (R, R, 3) uint8; raise `UnreadableImageError` if that fails.

    For a model over vectors `data` are their D numbers as little-endian float32, and the result is (D,).
    """
    resolution = model.backbone.resolution
    return _checked(model, decode_resized(decode_image if resolution else _vector, data, resolution))


def predict_loaded(model: Model, images: Sequence[LoadedImage]) -> list[tuple[Prediction, Tensor]]:
    """Predict the categories of images that `load_image` has decoded, together; return also their features (D,).

    On a CPU every core takes a part of several images: a trunk that uses all cores waits for the slowest of them in
    every layer, which takes long where other programs are running.
    """
    backbone, threads = model.backbone, torch.get_num_threads()
    if len(images) == 1 or backbone.device.type != "cpu":
        return _predictions(model, backbone.trunk, images)
    trunk, size = backbone.single_threaded_trunk(), min(_BLOCK, math.ceil(len(images) / threads))
    blocks = [images[start : start + size] for start in range(0, len(images), size)]
    return list(chain.from_iterable(threaded_map(lambda block: _predictions(model, trunk, block), blocks)))


def write_predictions(
    rows: Iterable[Row], out: Path | None, format: Literal["csv", "jsonl"]
) -> PredictionCounts:
    """Write predictions to the file `out`, which is replaced once it is complete, or row by row to stdout.

    Files that could not be read have no row. They are listed in a second CSV file, `unreadable_list(out)`, or on stderr
    where rows are written to stdout, a device or a FIFO.
    """
    if out is None:
        return _write(rows, sys.stdout.buffer, format, live=True)
    with open_output(out) as file:
        counts = _write(rows, file, format, live=is_stream(out))
    aside = unreadable_list(out)
    if counts.unreadable and aside is not None:
        with open_output(aside) as other:
            other.write(_csv_line(UNREADABLE_HEADER))
            other.writelines(_csv_line(dataclasses.astuple(row)) for row in counts.unreadable)
    elif aside is not None and _is_unreadable_list(aside):
        aside.unlink(missing_ok=True)  # of an earlier run
    return counts


def unreadable_list(out: Path) -> Path | None:
    """Return the file beside `out` that lists unreadable files; None beside a device or a FIFO.

    >>> unreadable_list(Path("birds.jsonl"))
    PosixPath('birds-unreadable.csv')
    """
    return None if is_stream(out) else out.with_name(f"{out.stem}-unreadable.csv")


def _is_unreadable_list(path: Path) -> bool:
    """Return whether an earlier run wrote the file."""
    if is_stream(path) or not path.is_file():
        return False
    with path.open("rb") as file:
        header = _csv_line(UNREADABLE_HEADER)
        return file.read(len(header)) == header


def _write(rows: Iterable[Row], file: BinaryIO, format: str, live: bool) -> PredictionCounts:
    """Write rows to `file`; with `live` flush each row, and print unreadable files to stderr."""
    counts = PredictionCounts()
    if format == "csv":
        file.write(_csv_line([column.name for column in dataclasses.fields(Prediction)]))
    for row in rows:
        if isinstance(row, Unreadable):
            counts.unreadable.append(row)
            if live:
                print_to_stderr(f"{row.file}: {row.reason}")
            continue
        counts.predicted += 1
        counts.unknown += row.category is None
        values = {
            name: round(value, 6) if isinstance(value, float) else value
            for name, value in dataclasses.asdict(row).items()
        }
        file.write(_csv_line(values.values()) if format == "csv" else _json_line(values))
        if live:
            file.flush()
    return counts


def _csv_line(values: Iterable[object]) -> bytes:
    """Encode one line; a file name that is not UTF-8 keeps its bytes."""
    return csv_text([values]).encode("utf-8", "surrogateescape")


def _json_line(values: dict[str, object]) -> bytes:
    """Encode one line; a file name that is not UTF-8 is escaped, as JSON has no bytes."""
    return (json.dumps(values, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _vector(data: bytes, min_size: int | None = None) -> np.ndarray:
    if len(data) % 4:
        raise UnreadableImageError(f"{len(data)} bytes are not float32 numbers")
    return np.frombuffer(data, dtype="<f4").astype(np.float32)


def _checked(model: Model, image: np.ndarray) -> np.ndarray:
    """Return an image that the backbone takes: pixels (R, R, 3), or a vector (D,) of finite numbers."""
    backbone = model.backbone
    expected = (backbone.resolution, backbone.resolution, 3) if backbone.resolution else (backbone.dim,)
    if image.shape != expected:
        raise UnreadableImageError(f"numbers of shape {image.shape}, where {backbone.name} takes {expected}")
    if image.dtype.kind == "f" and not np.isfinite(image).all():
        raise UnreadableImageError("it holds numbers that are not finite")
    return image


def _predictions(
    model: Model, trunk: Trunk | None, images: Sequence[LoadedImage]
) -> list[tuple[Prediction, Tensor]]:
    """Predict the category of each image; return also its features (D,)."""
    features = _features(model, trunk, images)
    answers = model.classifier.answer(model.metric.transform(features))
    found = []
    for i, (file, _) in enumerate(images):
        best, second = int(answers.nearest[i]), int(answers.runner_up[i])
        first = model.ids[best], model.title(best), float(answers.confidence[i])
        if answers.unknown[i]:
            found.append(Prediction(file, None, UNKNOWN, first[-1], *first))
        elif second < 0:
            found.append(Prediction(file, *first, None, None, None))
        else:
            other = model.ids[second], model.title(second), float(answers.runner_up_confidence[i])
            found.append(Prediction(file, *first, *other))
    return list(zip(found, features))


@torch.no_grad()
def _features(model: Model, trunk: Trunk | None, images: Sequence[LoadedImage]) -> Tensor:
    """Compute the features (n, D) of n images."""
    backbone = model.backbone
    x = torch.from_numpy(np.stack([pixels for _, pixels in images]))
    if not backbone.resolution:
        return model.features({"vector": to_device(x, backbone.device)})
    x = to_device(normalise_(to_unit(x), backbone.mean, backbone.std), backbone.device)
    return model.features(run_trunk(trunk, x, TRUNK_BATCH))
