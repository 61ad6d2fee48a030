"""Recognising pictures: file by file, in the order given, never more than a few blocks of them in memory.

The views are those that `camp.data.bank.fill` banks: a picture has the same features here as when it was learned.
"""

import csv
import dataclasses
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from camp.app.workspace.model import Model
from camp.core.errors import CampError
from camp.core.files import replacing
from camp.core.progress import Bar
from camp.data.augmentations import normalise_, to_unit
from camp.data.bank.pipeline import TRUNK_BATCH, ahead, decoded, read
from camp.data.datasets.base import Reader
from camp.data.fresh_views import Trunk, in_batches
from camp.data.images import BadImage, decode
from camp.data.views import Batch

UNKNOWN = "unknown"
"""What a picture is called that is none of the categories."""
_BLOCK = 8
"""Pictures that a core takes at a time: the trunk is no faster with more, and the first answers come soon."""
_BLOCKS_AHEAD = 4


@dataclass(frozen=True)
class Prediction:
    """What is said about one picture."""

    file: str
    category: int | None
    """Permanent id; None for a picture that is none of the categories."""
    name: str
    """Of the category, or "unknown"."""
    confidence: float
    """Probability of the category; of an unknown picture, that of the nearest one."""
    runner_up: int | None
    """Id of the second best, None where there is but one; of an unknown picture, the nearest one."""
    runner_up_name: str | None
    runner_up_confidence: float | None


@dataclass(frozen=True)
class Unreadable:
    """A file that could not be read as a picture."""

    file: str
    reason: str


Row = Prediction | Unreadable
Picture = tuple[str, np.ndarray]
"""A file with its pixels (R, R, 3) uint8, or its vector (D,) float32."""
Answer = TypeVar("Answer")


@dataclass
class Counts:
    """What became of the files."""

    predicted: int = 0
    """Rows written, those of unknown pictures among them."""
    unknown: int = 0
    unreadable: list[Unreadable] = field(default_factory=list)


def predict(model: Model, reader: Reader, keys: Iterable[str], bar: Bar | None = None) -> Iterator[Row]:
    """One answer for each of `keys`, in their order; `bar` advances by one with each.

    On a CPU every core takes whole blocks from the file to the answer. On another device the cores decode ahead of
    the trunk, which has the device to itself.
    """
    check_categories(model)
    for row in _each(model, reader, keys, _predictions):
        if bar is not None:
            bar.advance()
        yield row


def points(model: Model, reader: Reader, keys: Iterable[str]) -> Iterator[Tensor | Unreadable]:
    """The point (d,) of each of `keys`, in their order."""
    return _each(model, reader, keys, lambda *block: list(_points(*block)))


def _each(
    model: Model,
    reader: Reader,
    keys: Iterable[str],
    answers: Callable[[Model, Trunk | None, Sequence[Picture]], list[Answer]],
) -> Iterator[Answer | Unreadable]:
    """What `answers` says of each of `keys`, in their order."""
    backbone = model.backbone
    on_cpu = backbone.device.type == "cpu"
    trunk = backbone.single_threaded_trunk() if on_cpu else backbone.trunk

    def opened(block: list[str]) -> list[Picture | Unreadable]:
        files: list[Picture | Unreadable] = []
        for key in block:
            try:
                pixels = _checked(model, decoded(reader.decode, read(reader, key), backbone.resolution))
                files.append((key, pixels))
            except BadImage as fault:
                files.append(Unreadable(key, str(fault)))
        return files

    def answered(files: list[Picture | Unreadable]) -> list[Answer | Unreadable]:
        readable = [file for file in files if not isinstance(file, Unreadable)]
        rest = iter(answers(model, trunk, readable) if readable else ())
        return [file if isinstance(file, Unreadable) else next(rest) for file in files]

    blocks = _blocks(keys, _BLOCK if on_cpu else TRUNK_BATCH)
    rows: Iterator[list[Answer | Unreadable]]
    if on_cpu:
        rows = ahead(lambda block: answered(opened(block)), blocks, _BLOCKS_AHEAD)
    else:
        rows = map(answered, ahead(opened, blocks, _BLOCKS_AHEAD))
    return chain.from_iterable(rows)


def predict_picture(model: Model, data: bytes, file: str = "") -> Prediction:
    """The answer for one picture in memory; `BadImage` if it is none.

    A model over vectors takes their D numbers as little-endian float32.
    """
    check_categories(model)
    resolution = model.backbone.resolution
    picture = _checked(model, decoded(decode if resolution else _vector, data, resolution))
    return _predictions(model, model.backbone.trunk, [(file, picture)])[0]


def check_categories(model: Model) -> None:
    """Refuse a model that knows nothing yet."""
    if not model.ids:
        raise CampError("There is no category to recognise yet; learn from some pictures first.")


def write_predictions(rows: Iterable[Row], out: Path | None, format: Literal["csv", "jsonl"]) -> Counts:
    """Write `rows` as they come, to `out` or row by row to stdout; `out` takes its name once it is complete.

    Files that could not be read have no row. They are listed beside `out` in a CSV file of their own, named after it
    with `-unreadable` (`birds.csv`, `birds-unreadable.csv`), or else on stderr.
    """
    if out is None:
        return _write(rows, sys.stdout.buffer, format, live=True)
    with replacing(out) as file:
        counts = _write(rows, file, format, live=False)
        aside = out.with_name(f"{out.stem}-unreadable.csv")
        if counts.unreadable:
            with replacing(aside) as other:
                other.write(_csv_line(["file", "reason"]))
                other.writelines(_csv_line(dataclasses.astuple(row)) for row in counts.unreadable)
        else:
            aside.unlink(missing_ok=True)  # an old list would be taken for one of these files
    return counts


def _write(rows: Iterable[Row], file: BinaryIO, format: str, live: bool) -> Counts:
    """Rows into `file`; with `live` each is seen at once, and unreadable files are told on stderr."""
    counts = Counts()
    if format == "csv":
        file.write(_csv_line([column.name for column in dataclasses.fields(Prediction)]))
    for row in rows:
        if isinstance(row, Unreadable):
            counts.unreadable.append(row)
            if live:
                print(f"{row.file}: {row.reason}", file=sys.stderr, flush=True)
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


def _csv_line(values: Iterable[Any]) -> bytes:
    """One line; a file name that is no UTF-8 keeps its own bytes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue().encode("utf-8", "surrogateescape")


def _json_line(values: dict[str, Any]) -> bytes:
    """One line; a file name that is no UTF-8 gets escapes, as JSON has no bytes."""
    return (json.dumps(values, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _blocks(keys: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(keys)
    while block := list(islice(rest, size)):
        yield block


def _vector(data: bytes, at_least: int | None = None) -> np.ndarray:
    if len(data) % 4:
        raise BadImage(f"{len(data)} bytes are no float32 numbers")
    return np.frombuffer(data, dtype="<f4").astype(np.float32)


def _checked(model: Model, picture: np.ndarray) -> np.ndarray:
    """`picture` if the backbone can take it: pixels (R, R, 3), or a vector (D,) of finite numbers."""
    backbone = model.backbone
    expected = (backbone.resolution, backbone.resolution, 3) if backbone.resolution else (backbone.dim,)
    if picture.shape != expected:
        raise BadImage(f"numbers of shape {picture.shape}, where {backbone.name} takes {expected}")
    if picture.dtype.kind == "f" and not np.isfinite(picture).all():
        raise BadImage("it holds numbers that are not finite")
    return picture


def _predictions(model: Model, trunk: Trunk | None, pictures: Sequence[Picture]) -> list[Prediction]:
    """The answer for each picture."""
    answers = model.classifier.answer(_points(model, trunk, pictures))
    found = []
    for i, (file, _) in enumerate(pictures):
        best, second = int(answers.nearest[i]), int(answers.runner_up[i])
        confidence = float(answers.confidence[i])
        first = model.ids[best], model.called(best), confidence
        if answers.unknown[i]:
            found.append(Prediction(file, None, UNKNOWN, confidence, *first))
        elif second < 0:
            found.append(Prediction(file, *first, None, None, None))
        else:
            other = model.ids[second], model.called(second), float(answers.runner_up_confidence[i])
            found.append(Prediction(file, *first, *other))
    return found


def _points(model: Model, trunk: Trunk | None, pictures: Sequence[Picture]) -> Tensor:
    """(n, d) of n pictures."""
    return model.points(_fields(model, trunk, np.stack([pixels for _, pixels in pictures])))


@torch.no_grad()
def _fields(model: Model, trunk: Trunk | None, pixels: np.ndarray) -> Batch:
    """What the tip takes, for pictures (n, R, R, 3) or vectors (n, D)."""
    backbone = model.backbone
    device = backbone.device
    x = torch.from_numpy(pixels)
    if not backbone.resolution:
        return {"vector": x.to(device)}
    return in_batches(trunk, normalise_(to_unit(x), backbone.mean, backbone.std).to(device), TRUNK_BATCH)
