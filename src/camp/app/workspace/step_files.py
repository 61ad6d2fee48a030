"""Files of one learning step: a folder that is complete from the moment it has its name, and never changes afterwards."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file as save_tensors
from torch import Tensor

from camp.app.workspace.knowledge import DISCARDED, Category, Images, Knowledge
from camp.app.workspace.report import BatchReport
from camp.core.csv_output import csv_text
from camp.core.errors import CampError
from camp.core.files import read_json, write_json, write_text
from camp.discovery.calibration import Calibration
from camp.discovery.class_metric import ClassMetric

_COLUMNS = {name: name for name in ("digests", "steps", "category", "points", "positions")}
_COLUMNS["told"] = "source"
"""Names of the arrays in the file, and of the fields of `Images`."""
_MODEL_FILES = ("features.npy", "pictures.safetensors", "files.json", "tip.safetensors", "metric.safetensors")
"""Files that only the last step keeps; earlier steps keep their report."""


@dataclass(frozen=True)
class Step:
    """The result of a learning step."""

    knowledge: Knowledge
    tip: Mapping[str, Tensor]
    """Weights of the trained tip."""
    report: BatchReport
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Why files of the batch could not be read, by file."""


class _CategoriesFile(BaseModel):
    """The content of categories.json."""

    step: int
    sure: Calibration
    apart: list[tuple[int, int]]
    rejected: list[tuple[int, int]] = []
    categories: list[Category]


_FILES = TypeAdapter(list[str])


@contextlib.contextmanager
def new_step(folder: Path) -> Iterator[Path]:
    """Give a temporary folder that takes the name `folder` if the block succeeds, and is removed otherwise.

    The lock of the workspace must be held.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    for abandoned in folder.parent.glob(f".{folder.name}.*.tmp"):  # by processes that were killed
        shutil.rmtree(abandoned, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for path in temporary.iterdir():  # must be on disk before the log says so
            with path.open("rb") as file:
                os.fsync(file.fileno())
        if folder.exists():  # by a process that was killed before it could append the event
            shutil.rmtree(folder)
        temporary.replace(folder)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CampError(f"Could not write {folder}: {reason}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def save_step(folder: Path, step: Step) -> None:
    """Write the knowledge after the step, the tip, the report, and texts for a person."""
    knowledge, images = step.knowledge, step.knowledge.images
    np.save(folder / "features.npy", images.features, allow_pickle=False)
    columns = {key: np.ascontiguousarray(getattr(images, name)) for key, name in _COLUMNS.items()}
    save_file(columns, folder / "pictures.safetensors")
    for name, tensors in (("tip", step.tip), ("metric", knowledge.metric.state())):
        contiguous = {key: t.detach().cpu().contiguous() for key, t in tensors.items()}
        save_tensors(contiguous, folder / f"{name}.safetensors")
    write_json(folder / "files.json", images.files)
    about = {
        "step": knowledge.step,
        "sure": dataclasses.asdict(knowledge.calibration),
        "apart": sorted(knowledge.distinct),
        "rejected": sorted(knowledge.rejected),
        "categories": [dataclasses.asdict(category) for _, category in sorted(knowledge.categories.items())],
    }
    write_json(folder / "categories.json", about)
    save_report(folder, step.report)
    write_text(folder / "report.txt", step.report.summary() + "\n")
    if step.unreadable:
        table = csv_text([("picture", "reason"), *sorted(step.unreadable.items())])
        write_text(folder / "unreadable.csv", table)


def load_step(folder: Path) -> Knowledge:
    """Read the knowledge after the step; the features stay on disk until they are used."""
    with _damage(folder):
        about = _CategoriesFile.model_validate(read_json(folder / "categories.json"))
        columns = load_file(folder / "pictures.safetensors")
        knowledge = Knowledge(
            step=about.step,
            categories={category.id: category for category in about.categories},
            images=Images(
                files=_FILES.validate_python(read_json(folder / "files.json")),
                features=np.load(folder / "features.npy", mmap_mode="r", allow_pickle=False),
                **{name: columns[key] for key, name in _COLUMNS.items()},
            ),
            metric=ClassMetric.from_state(load_tensors(folder / "metric.safetensors")),
            calibration=about.sure,
            distinct=frozenset(about.apart),
            rejected=frozenset(about.rejected),
        )
        _check_shapes(knowledge)
        _check_references(knowledge)
        return knowledge


def _check_shapes(knowledge: Knowledge) -> None:
    """Raise a `ValueError` if the arrays of the images do not fit together, or to the categories."""
    images, n = knowledge.images, len(knowledge.images.files)
    shapes = {
        "features": (n, len(knowledge.metric.origin)),
        "digests": (n, 16),
        "steps": (n,),
        "category": (n,),
        "source": (n,),
        "points": (n, knowledge.metric.projection.shape[1]),
        "positions": (n, 2),
    }
    for name, expected in shapes.items():
        found = getattr(images, name).shape
        if found != expected:
            raise ValueError(f"{name} has the shape {found} and not {expected}")
    unknown = set(np.unique(images.category).tolist()) - {DISCARDED, *knowledge.categories}
    if unknown:
        raise ValueError(f"pictures belong to category {min(unknown)}, which does not exist")


def _check_references(knowledge: Knowledge) -> None:
    """Raise a `ValueError` if something is said about a category or an image that does not exist."""
    named = {one.merged_into for one in knowledge.categories.values() if one.merged_into is not None}
    named |= {id for pair in knowledge.distinct for id in pair} | {id for _, id in knowledge.rejected}
    if unknown := named - knowledge.categories.keys():
        raise ValueError(f"category {min(unknown)} does not exist")
    if any(not 0 <= row < len(knowledge.images) for row, _ in knowledge.rejected):
        raise ValueError("a picture does not exist")


def load_tip(folder: Path) -> dict[str, Tensor]:
    """Read the weights of the tip after the step."""
    with _damage(folder):
        return load_tensors(folder / "tip.safetensors")


def save_report(folder: Path, report: BatchReport) -> None:
    """Write the report of the step."""
    write_json(folder / "report.json", report.model_dump(mode="json", by_alias=True))


def load_report(folder: Path) -> BatchReport:
    """Read the report of the step."""
    with _damage(folder):
        return BatchReport.model_validate(read_json(folder / "report.json"))


def remove_model(folder: Path) -> None:
    """Remove the files that only the last step keeps."""
    for name in _MODEL_FILES:
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _damage(folder: Path) -> Iterator[None]:
    """Turn what damaged files raise into a sentence."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        sentence = f"The learning step {folder} is damaged ({reason}); restore it from a copy."
        raise CampError(sentence) from error
