"""Trained networks that several runs of a study share.

Runs of CAMP that differ only in the adapter or in how categories are discovered train the same network to the last
digit, because every random draw has a name. A study trains such a network once and stores it task by task. Training
is not shared where it depends on discovery: with exemplars, or with an estimated number of categories.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from camp.bench.checkpoint import write_tensors
from camp.core.errors import CampError
from camp.core.files import checksum, checksum_fits, read_json, with_checksum, write_json

_LINES: TypeAdapter[list[dict[str, Any]]] = TypeAdapter(list[dict[str, Any]])


@dataclass(frozen=True)
class TrainedTips:
    """What training has changed, after each task of a run, in a folder."""

    folder: Path

    def load(self, task: int) -> tuple[dict[str, Tensor], list[dict[str, Any]]] | None:
        """Return the tensors after `task` and the lines of its epochs; None if they are missing or damaged."""
        try:
            values = read_json(self._lines(task))
            data = self._tensors(task).read_bytes()
            if isinstance(values, list):  # of version 0.1.0, without a checksum
                return _tensors(data), _LINES.validate_python(values)
            if not checksum_fits(values) or values["tensors"] != checksum(data):
                return None
            return _tensors(data), _LINES.validate_python(values["lines"])
        except (OSError, CampError, SafetensorError, ValidationError, AttributeError, KeyError, TypeError):
            return None

    def save(self, task: int, tensors: dict[str, Tensor], lines: list[dict[str, Any]]) -> None:
        """Store the tensors after `task`; the lines are written last and mark the task as complete."""
        written = write_tensors(self._tensors(task), tensors)
        write_json(self._lines(task), with_checksum({"tensors": written, "lines": lines}))

    def _tensors(self, task: int) -> Path:
        return self.folder / f"task-{task}.safetensors"

    def _lines(self, task: int) -> Path:
        return self.folder / f"task-{task}.json"


def _tensors(data: bytes) -> dict[str, Tensor]:
    """Read tensors; they are cloned because rounding depends on their alignment in memory."""
    return {name: tensor.clone() for name, tensor in sorted(load(data).items())}
