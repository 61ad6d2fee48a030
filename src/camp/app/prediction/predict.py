"""Prediction of the categories of images, in the order given, with a few blocks of images in memory at a time.

The views are those of `camp.data.bank.fill`: an image has the same features here as when it was learned.
"""

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from camp.app.prediction.model import Model
from camp.core.csv_output import csv_text
from camp.core.output_file import open_output
from camp.core.parallel import threaded_map
from camp.core.progress import Bar, print_to_stderr
from camp.data.augmentations import normalise_, to_unit
from camp.data.bank.pipeline import TRUNK_BATCH, decode_resized, read_image, run_trunk
from camp.data.datasets.base import Reader
from camp.data.images import UnreadableImageError, decode_image
from camp.data.views import Trunk

UNKNOWN = "unknown"
"""Name in the prediction of an image that belongs to none of the categories."""
Format = Literal["csv", "jsonl"]
_BLOCK = 8
"""Images per block on a CPU: more do not make the trunk faster, and the first results come soon."""
_VECTOR_BLOCK = 1024
"""Vectors per block, which need no trunk."""
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


COLUMNS = tuple(column.name for column in fields(Prediction))
"""The columns of the output."""


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
    unreadable: int = 0
    first_unreadable: Unreadable | None = None

    def add(self, rows: Iterable[Row]) -> None:
        """Count `rows`."""
        for row in rows:
            if isinstance(row, Prediction):
                self.predicted += 1
                self.unknown += row.category is None
            else:
                self.unreadable += 1
                self.first_unreadable = self.first_unreadable or row


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
    blocks = iter(lambda: list(islice(rest, block_size(model))), [])
    rows: Iterator[list[Result | Unreadable]]
    if on_cpu:
        rows = threaded_map(lambda block: processed(all_opened(block)), blocks, _BLOCKS_AHEAD)
    else:
        rows = map(processed, threaded_map(all_opened, blocks, _BLOCKS_AHEAD))
    return chain.from_iterable(rows)


def block_size(model: Model) -> int:
    """Return the number of images that are predicted together, on which the last digits of a result may depend."""
    if not model.backbone.resolution:
        return _VECTOR_BLOCK
    return _BLOCK if model.backbone.device.type == "cpu" else TRUNK_BATCH


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


def write_predictions(rows: Iterable[Row], out: Path | None, format: Format) -> PredictionCounts:
    """Write predictions row by row to stdout, or to the device or FIFO `out`.

    Files that could not be read have no row; they are printed to stderr. `camp.app.prediction.unfinished` writes
    predictions to a file.
    """
    counts = PredictionCounts()
    with contextlib.nullcontext(sys.stdout.buffer) if out is None else open_output(out) as file:
        file.write(encode_header(format))
        for row in rows:
            counts.add([row])
            if isinstance(row, Unreadable):
                print_to_stderr(f"{row.file}: {row.reason}")
            else:
                file.write(encode_rows([row], format))
                file.flush()
    return counts


def encode_header(format: Format) -> bytes:
    """Encode what comes before the first row."""
    return csv_bytes([COLUMNS]) if format == "csv" else b""


def encode_rows(rows: Iterable[Prediction], format: Format) -> bytes:
    """Encode one line for each prediction."""
    lines = [
        (
            *(row.file, row.category, row.name, round(row.confidence, 6)),
            *(row.runner_up, row.runner_up_name, _rounded(row.runner_up_confidence)),
        )
        for row in rows
    ]
    if format == "csv":
        return csv_bytes(lines)
    # A file name that is not UTF-8 is escaped, as JSON has no bytes.
    text = "".join(f"{_encode_json(dict(zip(COLUMNS, line)))}\n" for line in lines)
    return text.encode("utf-8", "backslashreplace")


def csv_bytes(rows: Iterable[Iterable[object]]) -> bytes:
    """Encode rows of a CSV file; a file name that is not UTF-8 keeps its bytes."""
    return csv_text(rows).encode("utf-8", "surrogateescape")


_encode_json = json.JSONEncoder(ensure_ascii=False).encode


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 6)


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
    columns = (answers.nearest, answers.confidence, answers.runner_up, answers.runner_up_confidence)
    ids, titles, found = model.ids, model.titles, []
    for (file, _), unknown, best, confidence, second, other in zip(
        images, answers.unknown.tolist(), *(column.tolist() for column in columns)
    ):
        first = ids[best], titles[best], confidence
        if unknown:
            found.append(Prediction(file, None, UNKNOWN, confidence, *first))
        elif second < 0:
            found.append(Prediction(file, *first, None, None, None))
        else:
            found.append(Prediction(file, *first, ids[second], titles[second], other))
    return list(zip(found, features))


@torch.no_grad()
def _features(model: Model, trunk: Trunk | None, images: Sequence[LoadedImage]) -> Tensor:
    """Compute the features (n, D) of n images."""
    backbone = model.backbone
    x = torch.from_numpy(np.stack([pixels for _, pixels in images]))
    if not backbone.resolution:
        return model.features({"vector": x.to(backbone.device)})
    x = normalise_(to_unit(x), backbone.mean, backbone.std).to(backbone.device)
    return model.features(run_trunk(trunk, x, TRUNK_BATCH))
