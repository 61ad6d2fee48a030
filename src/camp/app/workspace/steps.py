"""One learning step on disk: a folder that is complete from the moment it has its name, and never changes after."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file as save_tensors
from torch import Tensor

from camp.app.workspace.knowledge import Category, Knowledge, Pictures
from camp.core.errors import CampError
from camp.core.files import read_json, write_json
from camp.discovery.calibration import Calibration
from camp.discovery.class_metric import ClassMetric

_COLUMNS = ("digests", "steps", "category", "told", "points", "positions")
_BULK = ("features.npy", "pictures.safetensors", "files.json", "tip.safetensors", "metric.safetensors")
"""What later steps take over; of a step that is no longer the last one, only its report is kept."""


@contextlib.contextmanager
def new_step(folder: Path) -> Iterator[Path]:
    """A temporary folder to write a step into; it takes the name `folder` when all went well, and vanishes otherwise.

    The workspace's lock must be held.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    for abandoned in folder.parent.glob(f".{folder.name}.*.tmp"):  # by processes that were killed
        shutil.rmtree(abandoned, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for path in temporary.iterdir():  # on disk before the log says that it is there
            with path.open("rb") as file:
                os.fsync(file.fileno())
        if folder.exists():  # by a process that was killed before it could enter the step in the log
            shutil.rmtree(folder)
        temporary.replace(folder)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CampError(f"Could not write {folder}: {reason}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def save_step(folder: Path, knowledge: Knowledge, tip: dict[str, Tensor], report: dict[str, Any]) -> None:
    """Write everything that is known after the step."""
    pictures = knowledge.pictures
    np.save(folder / "features.npy", pictures.features, allow_pickle=False)
    save_file(
        {name: np.ascontiguousarray(getattr(pictures, name)) for name in _COLUMNS},
        folder / "pictures.safetensors",
    )
    save_tensors({name: t.detach().cpu().contiguous() for name, t in tip.items()}, folder / "tip.safetensors")
    save_tensors(
        {name: t.contiguous() for name, t in knowledge.metric.state().items()},
        folder / "metric.safetensors",
    )
    write_json(folder / "files.json", pictures.files)
    categories = [dataclasses.asdict(category) for _, category in sorted(knowledge.categories.items())]
    about = {
        "step": knowledge.step,
        "sure": dataclasses.asdict(knowledge.sure),
        "apart": sorted(knowledge.apart),
        "categories": categories,
    }
    write_json(folder / "categories.json", about)
    write_json(folder / "report.json", report)


def load_step(folder: Path) -> Knowledge:
    """What was known after the step; features stay on disk until they are read."""
    try:
        about = read_json(folder / "categories.json")
        columns = load_file(folder / "pictures.safetensors")
        features = np.load(folder / "features.npy", mmap_mode="r", allow_pickle=False)
        pictures = Pictures(files=read_json(folder / "files.json"), features=features, **columns)
        categories = {row["id"]: Category(**row) for row in about["categories"]}
        sure = Calibration(**about["sure"])
        apart = frozenset((a, b) for a, b in about["apart"])
        metric = ClassMetric.from_state(load_tensors(folder / "metric.safetensors"))
        return Knowledge(about["step"], categories, pictures, metric, sure, apart)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CampError(
            f"The learning step {folder} is damaged ({error}); restore it from a copy."
        ) from error


def load_tip(folder: Path) -> dict[str, Tensor]:
    """Weights of the tip after the step."""
    try:
        return load_tensors(folder / "tip.safetensors")
    except (OSError, SafetensorError) as error:
        raise CampError(
            f"The learning step {folder} is damaged ({error}); restore it from a copy."
        ) from error


def forget_bulk(folder: Path) -> None:
    """Drop what later steps have taken over; the report stays."""
    for name in _BULK:
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)
