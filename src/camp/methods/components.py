"""Components of methods: what acts around the training of a task, and what is remembered between tasks."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from camp.core.progress import Progress
from camp.data.tasks import Task
from camp.methods.distillation import OldFeatures
from camp.methods.trainer import Penalty, Trainer


@dataclass
class TaskRun:
    """A task under way, as components see it."""

    task: Task
    tip: nn.Module
    old_tip: nn.Module | None
    """The tip as it was after the task before; None in the first task."""
    seed: int
    device: torch.device
    trainer: Trainer | None = None
    """None before training has been prepared, and for methods that train nothing."""
    old_features: OldFeatures | None = None
    """Features of the old tip, where a distiller or an adapter needs them."""


class Memory(Protocol):
    """Something that is remembered between tasks."""

    def state(self) -> dict[str, Tensor]:
        """Return what is remembered."""

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Continue from `state`."""


class Callback:
    """Acts around the training of a task, and may remember something between tasks (a `Memory`)."""

    name: str = ""
    """Prefix of its tensors in a checkpoint."""

    def before_training(self, run: TaskRun) -> None:
        """Change the tip before the optimiser is made."""

    def penalty(self, run: TaskRun) -> Penalty | None:
        """Return a term of the loss that depends on the parameters of the tip."""
        return None

    def after_training(self, run: TaskRun, progress: Progress) -> None:
        """Change the tip, or measure it, before categories are discovered."""

    def after_task(self, run: TaskRun, progress: Progress) -> None:
        """Remember what later tasks need."""

    def state(self) -> dict[str, Tensor]:
        """Return what is remembered."""
        return {}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Continue from `state`."""
