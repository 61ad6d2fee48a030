"""Files of one learning step: a folder that is complete from the moment it has its name, and never changes afterwards.

`checksums.json` lists the SHA-256 of every other file. Steps of version 0.1.0 have no checksums: what can be seen without
them is checked, that arrays fit together and that all numbers are finite.
"""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as save_arrays

from camp.app.workspace.knowledge import DISCARDED, Category, Images, Knowledge
from camp.app.workspace.report import BatchReport
from camp.core.csv_output import csv_text
from camp.core.errors import CampError
from camp.core.files import file_checksum, make_folder, read_json, replace_folder
from camp.core.safetensors_files import map_arrays, write_arrays
from camp.discovery.calibration import Calibration
from camp.discovery.class_metric import ClassMetric

if TYPE_CHECKING:
    from torch import Tensor

_COLUMNS = {name: name for name in ("digests", "steps", "category", "points", "positions")}
_COLUMNS["told"] = "source"
"""Names of the arrays in the file, and of the fields of `Images`."""
OVERVIEW_FILE = "overview.safetensors"
KNOWLEDGE_FILES = ("features.npy", "pictures.safetensors", "files.json", "metric.safetensors")
MODEL_FILES = (*KNOWLEDGE_FILES, "tip.safetensors", OVERVIEW_FILE)
"""Files that only the last step keeps; earlier steps keep their report."""


CHECKSUMS = "checksums.json"
_BLOCK = 4096


@dataclass(frozen=True)
class Step:
    """The result of a learning step."""

    knowledge: Knowledge
    tip: "Mapping[str, Tensor]"
    """Weights of the trained tip."""
    report: BatchReport
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Why files of the batch could not be read, by file."""
    trunk: str = ""
    """Fingerprint of the trunk that the tip belongs to."""
    overview: Mapping[str, np.ndarray] | None = None
    """State of the overview of many images, which takes long to compute."""


class FileVerifier:
    """Compares files of learning steps with their checksums, each file once as long as it does not change."""

    def __init__(self) -> None:
        self._intact: set[tuple[Path, int, int, int]] = set()

    def checksums(self, folder: Path) -> dict[str, str] | None:
        """Return the checksums of the files of a step; None for a step of version 0.1.0."""
        path = folder / CHECKSUMS
        if not path.exists():
            return None
        values = read_json(path)
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise ValueError(f"{CHECKSUMS} does not hold checksums")
        return values

    def verify(self, folder: Path, *names: str) -> bool:
        """Return whether the files have checksums; raise a `ValueError` for one that does not match its own."""
        checksums = self.checksums(folder)
        if checksums is None:
            return False
        for name in names:
            path = folder / name
            if not path.exists():
                raise ValueError(f"{name} is missing")
            about = path.stat()
            version = path, about.st_ino, about.st_size, about.st_mtime_ns
            if version in self._intact:
                continue
            if checksums.get(name) != file_checksum(path):
                raise ValueError(f"{name} was changed since it was written")
            self._intact.add(version)
        return True


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
        make_folder(temporary)
        yield temporary
        _write(temporary / CHECKSUMS, _json({path.name: file_checksum(path) for path in temporary.iterdir()}))
        if folder.exists():  # by a process that was killed before it could append the event
            shutil.rmtree(folder)
        replace_folder(temporary, folder)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CampError(f"Could not write {folder}: {reason}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def save_step(folder: Path, step: Step) -> None:
    """Write the knowledge after the step, the tip, the report, and texts for a person."""
    from safetensors.torch import save as save_tensors

    knowledge, images = step.knowledge, step.knowledge.images
    with (folder / "features.npy").open("wb") as file:
        np.save(file, images.features, allow_pickle=False)
    write_arrays(
        folder / "pictures.safetensors", {key: getattr(images, name) for key, name in _COLUMNS.items()}
    )
    metric = {key: np.ascontiguousarray(array) for key, array in knowledge.metric.state().items()}
    _write(folder / "metric.safetensors", save_arrays(metric))
    tip = {key: tensor.detach().cpu().contiguous() for key, tensor in step.tip.items()}
    _write(folder / "tip.safetensors", save_tensors(tip))
    if step.overview is not None:
        write_arrays(folder / OVERVIEW_FILE, step.overview)
    _write(folder / "files.json", _json(images.files))
    about = {
        "step": knowledge.step,
        "trunk": step.trunk,
        "sure": dataclasses.asdict(knowledge.calibration),
        "apart": sorted(knowledge.distinct),
        "rejected": sorted(knowledge.rejected),
        "categories": [dataclasses.asdict(category) for _, category in sorted(knowledge.categories.items())],
    }
    _write(folder / "categories.json", _json(about))
    save_report(folder, step.report)
    _write(folder / "report.txt", (step.report.summary() + "\n").encode())
    if step.unreadable:
        table = csv_text([("picture", "reason"), *sorted(step.unreadable.items())])
        _write(folder / "unreadable.csv", table.encode())


def load_step(folder: Path, verifier: FileVerifier | None = None) -> Knowledge:
    """Read the knowledge after the step; the features stay on disk until they are used."""
    with _damage(folder):
        verified = (verifier or FileVerifier()).verify(folder, "categories.json", *KNOWLEDGE_FILES)
        about = _CategoriesFile.model_validate(read_json(folder / "categories.json"))
        columns = map_arrays(folder / "pictures.safetensors")
        knowledge = Knowledge(
            step=about.step,
            categories={category.id: category for category in about.categories},
            images=Images(
                files=_FILES.validate_python(read_json(folder / "files.json")),
                features=np.load(folder / "features.npy", mmap_mode="r", allow_pickle=False),
                **{name: columns[key] for key, name in _COLUMNS.items()},
            ),
            metric=ClassMetric.from_state(load_file(folder / "metric.safetensors")),
            calibration=about.sure,
            distinct=frozenset(about.apart),
            rejected=frozenset(about.rejected),
        )
        _check_shapes(knowledge)
        _check_references(knowledge)
        if not verified:
            _check_finite(knowledge)
        return knowledge


def load_overview(folder: Path, verifier: FileVerifier | None = None) -> dict[str, np.ndarray] | None:
    """Read the state of the overview after the step; None if there is none."""
    with _damage(folder):
        if not (folder / OVERVIEW_FILE).exists():
            return None
        (verifier or FileVerifier()).verify(folder, OVERVIEW_FILE)
        return map_arrays(folder / OVERVIEW_FILE)


def _check_references(knowledge: Knowledge) -> None:
    """Raise a `ValueError` if something is said about a category or an image that does not exist."""
    named = {one.merged_into for one in knowledge.categories.values() if one.merged_into is not None}
    named |= {id for pair in knowledge.distinct for id in pair} | {id for _, id in knowledge.rejected}
    if unknown := named - knowledge.categories.keys():
        raise ValueError(f"category {min(unknown)} does not exist")
    if any(not 0 <= row < len(knowledge.images) for row, _ in knowledge.rejected):
        raise ValueError("a picture does not exist")


def load_tip(folder: Path, verifier: FileVerifier | None = None) -> "dict[str, Tensor]":
    """Read the weights of the tip after the step."""
    from safetensors.torch import load_file as load_tensors

    with _damage(folder):
        verified = (verifier or FileVerifier()).verify(folder, "tip.safetensors")
        tip = load_tensors(folder / "tip.safetensors")
        broken = [name for name, tensor in tip.items() if not verified and not tensor.isfinite().all()]
        if broken:
            raise ValueError(f"{broken[0]} of tip.safetensors holds numbers that are not finite")
        return tip


def load_trunk(folder: Path) -> str | None:
    """Read the fingerprint of the trunk that the tip belongs to; None for a step of version 0.1.0."""
    with _damage(folder):
        found = read_json(folder / "categories.json").get("trunk")
        return found if isinstance(found, str) else None


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


def _check_finite(knowledge: Knowledge) -> None:
    """Raise a `ValueError` for numbers that are not finite, a block of images at a time."""
    for name in ("features", "points", "positions"):
        values = getattr(knowledge.images, name)
        for start in range(0, len(values), _BLOCK):
            if not np.isfinite(values[start : start + _BLOCK]).all():
                raise ValueError(f"{name} holds numbers that are not finite")
    if not all(np.isfinite(array).all() for array in knowledge.metric.state().values()):
        raise ValueError("metric.safetensors holds numbers that are not finite")


def save_report(folder: Path, report: BatchReport) -> None:
    """Write the report of the step."""
    _write(folder / "report.json", _json(report.model_dump(mode="json", by_alias=True)))


def load_report(folder: Path, verifier: FileVerifier | None = None) -> BatchReport:
    """Read the report of the step."""
    with _damage(folder):
        (verifier or FileVerifier()).verify(folder, "report.json")
        return BatchReport.model_validate(read_json(folder / "report.json"))


def remove_model(folder: Path) -> None:
    """Remove the files that only the last step keeps."""
    for name in MODEL_FILES:
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    """Write a file of a temporary folder, which is synced as a whole before it gets its name."""
    with path.open("wb") as file:
        file.write(data)


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


@contextlib.contextmanager
def _damage(folder: Path) -> Iterator[None]:
    """Turn what damaged files raise into a sentence."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        sentence = f"The learning step {folder} is damaged ({reason}); restore it from a copy."
        raise CampError(sentence) from error
