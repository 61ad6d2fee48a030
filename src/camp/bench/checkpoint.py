"""Checkpoints: tensors in a safetensors file, everything else in a JSON file that names it.

The JSON is replaced in one step and names a tensor file that is already whole, so at any moment the folder
holds one valid checkpoint.
"""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, load_file, save
from torch import Tensor

from camp.core import distributed
from camp.core.errors import CampError
from camp.core.files import atomic_write, read_json, write_json
from camp.methods.base import LearnedCategory, MethodState


def save_checkpoint(folder: Path, state: MethodState, values: dict[str, Any]) -> None:
    """Write a checkpoint and remove the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = folder / f"tensors-{values['task']}-{values['epoch']}.safetensors"
    with atomic_write(tensors) as file:
        file.write(save({name: t.detach().cpu().contiguous().clone() for name, t in state.tensors.items()}))
    write_json(folder / "state.json", {"tensors": tensors.name, "method": _json(state), **values})
    half_written = folder.glob(".*.tmp")  # by a process that was killed
    for old in (*folder.glob("tensors-*.safetensors"), *half_written):
        if old != tensors:
            old.unlink(missing_ok=True)


def load_checkpoint(folder: Path) -> tuple[MethodState, dict[str, Any]] | None:
    """The last checkpoint, or None if there is none yet."""
    described = folder / "state.json"
    if not described.exists():
        return None
    values = read_json(described)
    path = folder / values.pop("tensors")
    try:
        return _state(load_file(path), values.pop("method")), values
    except (OSError, SafetensorError) as error:
        raise CampError(
            f"The checkpoint {path} is damaged ({error}); delete {folder} to begin again."
        ) from error


def told_checkpoint(
    saved: tuple[MethodState, dict[str, Any]] | None,
) -> tuple[MethodState, dict[str, Any]] | None:
    """The checkpoint that the first process found, in every process; the others need not see its folder."""
    if distributed.world_size() == 1:
        return saved
    described = distributed.broadcast([_json(saved[0]), saved[1]] if saved is not None else None)
    if described is None:
        return None
    tensors = distributed.broadcast_bytes(save(saved[0].tensors) if saved is not None else b"")
    return _state(load(tensors), described[0]), described[1]


def _json(state: MethodState) -> dict[str, Any]:
    """The part of a method's state that is kept as JSON."""
    return {"format": 2, "categories": [vars(category) for category in state.categories]}


def _state(tensors: dict[str, Tensor], values: dict[str, Any]) -> MethodState:
    """Back from the files; tensors are cloned because rounding depends on their alignment in memory."""
    if values.get("format") != 2:
        raise CampError("The checkpoint was made by another version of CAMP: begin again in another folder.")
    categories = [LearnedCategory(**row) for row in values["categories"]]
    return MethodState({name: tensor.clone() for name, tensor in tensors.items()}, categories)
