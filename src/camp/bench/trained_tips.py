"""Tips that another run has trained already: what comes after phase 1 does not touch them.

Runs of CAMP that differ in the adapter, or in how categories are found, train the same tip to the last digit, as every draw is called by
its name. Studies keep the tips of each task, and train once for all of them. With exemplars, or where the number of categories is
estimated before training, phase 1 does depend on what was found, and nothing is shared.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from camp.bench.settings import RunSettings, to_dict
from camp.core.errors import CampError
from camp.core.files import read_json, replacing, write_json


def phase1_of(settings: RunSettings) -> dict[str, Any] | None:
    """The settings that phase 1 depends on, if it can be shared."""
    after_training = settings.settings.after_training()
    if after_training is None or settings.data.k != "known":
        return None
    values = to_dict(settings)
    for name in after_training:
        values["settings"].pop(name)
    return values


@dataclass(frozen=True)
class TrainedTips:
    """The tips of all tasks of one phase 1, in a folder."""

    folder: Path

    def load(self, task: int) -> tuple[dict[str, Tensor], list[dict[str, Any]]] | None:
        """The tip after `task` and the lines of metrics.jsonl of its training; None if it is not there, or damaged."""
        try:
            lines = read_json(self._lines(task))
            return load_file(self._tensors(task)), lines
        except (OSError, CampError, SafetensorError):
            return None

    def save(self, task: int, tip: dict[str, Tensor], lines: list[dict[str, Any]]) -> None:
        """Keep the tip; the lines come last and say that it is whole."""
        with replacing(self._tensors(task)) as file:
            file.write(save({name: x.detach().cpu().contiguous().clone() for name, x in tip.items()}))
        write_json(self._lines(task), lines)

    def _tensors(self, task: int) -> Path:
        return self.folder / f"task-{task}.safetensors"

    def _lines(self, task: int) -> Path:
        return self.folder / f"task-{task}.json"
