"""Checkpoints: tensors in a safetensors file, everything else in a JSON file that names it.

The JSON is replaced in one step and names a tensor file that is already complete, so at any moment
the folder holds one valid checkpoint. It has checksums of itself, of the tensor file and of the other
files of the run, which checkpoints of version 0.1.0 lack.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, InstanceOf, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from camp.bench.evaluation.after_task import Evaluator
from camp.bench.results import CategoryResults, TaskResults
from camp.core import distributed
from camp.core.errors import CampError, is_out_of_memory
from camp.core.files import (
    FileMark,
    atomic_write,
    checksum,
    checksum_fits,
    read_json,
    with_checksum,
    write_json,
)
from camp.methods.base import LearnedCategory, MethodState

FORMAT = 2
_CATEGORIES = TypeAdapter(list[LearnedCategory])


class Checkpoint(BaseModel):
    """Everything that a run needs to continue."""

    state: InstanceOf[MethodState] = Field(exclude=True)
    task: int = Field(ge=0)
    """Index of the task to continue with."""
    epoch: int | None = Field(ge=0)
    """The next epoch of a task that is under way; None between tasks."""
    evaluator: Evaluator = Field(default_factory=Evaluator)
    records: list[TaskResults] = []
    categories: list[CategoryResults] = []
    seconds: dict[str, float] = {}
    """Time spent in each phase of the run."""
    files: dict[str, FileMark] = {}
    """The other files of the run, by name."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint and remove the one before."""
    tensors = folder / f"tensors-{checkpoint.task}-{checkpoint.epoch}.safetensors"
    written = write_tensors(tensors, checkpoint.state.tensors)
    values = {"tensors": tensors.name, "tensors_checksum": written, **_values(checkpoint)}
    write_json(folder / "state.json", with_checksum(values))
    half_written = folder.glob(".*.tmp")  # by a process that was killed
    for old in (*folder.glob("tensors-*.safetensors"), *half_written):
        if old != tensors:
            old.unlink(missing_ok=True)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the last checkpoint; None if there is none yet."""
    description = folder / "state.json"
    if not description.exists():
        return None
    values = read_json(description)
    with damaged_checkpoint(folder):
        if not checksum_fits(values):
            raise ValueError(f"{description.name} was changed since it was written")
        if values["method"].get("format") == FORMAT:
            data = (folder / values["tensors"]).read_bytes()
            if values.get("tensors_checksum") not in (None, checksum(data)):
                raise ValueError(f"{values['tensors']} was changed since it was written")
            return _checkpoint(values, load(data))
    raise CampError("The checkpoint was made by another version of CAMP: begin again in another folder.")


@contextlib.contextmanager
def damaged_checkpoint(folder: Path) -> Iterator[None]:
    """Turn what the values and tensors of a damaged checkpoint raise into a sentence."""
    try:
        yield
    except (
        OSError,
        SafetensorError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,
    ) as error:
        if is_out_of_memory(error):
            raise
        reason = str(error).partition("\n")[0]
        raise CampError(
            f"The checkpoint {folder} is damaged ({reason}); delete {folder} to begin again."
        ) from error


def broadcast_checkpoint(checkpoint: Checkpoint | None) -> Checkpoint | None:
    """Return the main process's checkpoint in every process; the others need not see its folder."""
    if distributed.world_size() == 1:
        return checkpoint
    values = distributed.broadcast(_values(checkpoint) if checkpoint is not None else None)
    if values is None:
        return None
    tensors = distributed.broadcast_bytes(save(checkpoint.state.tensors) if checkpoint is not None else b"")
    return _checkpoint(values, load(tensors))


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> str:
    """Write a safetensors file, atomically, and return its checksum."""
    data = save({name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()})
    with atomic_write(path) as file:
        file.write(data)
    return checksum(data)


def _values(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return everything but the tensors as JSON values."""
    categories = [vars(category) for category in checkpoint.state.categories]
    return {"method": {"format": FORMAT, "categories": categories}, **checkpoint.model_dump()}


def _checkpoint(values: dict[str, Any], tensors: dict[str, Tensor]) -> Checkpoint:
    """Return the checkpoint; tensors are cloned because rounding depends on their alignment in memory.

    Their order is that of their names, on which the order of sums over parameters depends.
    """
    clones = {name: tensor.clone() for name, tensor in sorted(tensors.items())}
    categories = _CATEGORIES.validate_python(values["method"]["categories"])
    return Checkpoint.model_validate({**values, "state": MethodState(clones, categories)})
