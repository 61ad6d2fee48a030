"""Learning-rate schedules of training.

`CosineSchedule` and `StepSchedule` compute the learning rate from the position in training alone, so that resuming needs
no state. `PlateauSchedule` depends on the losses so far; its state is part of a checkpoint.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from camp.methods.settings import IncrementalTraining, Training

_WARMUP_START, _FLOOR = 1e-8, 1e-3
"""First and last learning rate, as shares of the largest."""
_LEAST_PATIENCE = 2
"""Least number of epochs without improvement before the learning rate falls, however short the training."""


class Schedule(ABC):
    """The learning rate of each step of a task."""

    stopped: bool = False
    """Whether training has ended before its last epoch."""
    best_loss: float = math.inf
    """Lowest loss of an epoch so far, for schedules that depend on it."""

    @abstractmethod
    def rate(self, epoch: int, step: int, steps_per_epoch: int) -> float:
        """Return the learning rate of a step of an epoch."""

    def after_epoch(self, epoch: int, loss: float, networks: Mapping[str, nn.Module]) -> None:  # noqa: B027
        """Use the loss of an epoch; may set the networks back to earlier weights."""

    def state(self) -> dict[str, Tensor]:
        """Return what later epochs depend on."""
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Continue from `state`."""


class CosineSchedule(Schedule):
    """Linear warm-up per step, then cosine annealing per epoch: see `learning_rate`."""

    def __init__(self, settings: Training) -> None:
        self.settings = settings

    def rate(self, epoch: int, step: int, steps_per_epoch: int) -> float:
        """Return the learning rate of a step of an epoch."""
        return learning_rate(self.settings, epoch, step, steps_per_epoch)


class StepSchedule(Schedule):
    """The learning rate is divided by `lr_factor` after each interval of `lr_step` of the epochs.

    >>> schedule = StepSchedule(IncrementalTraining(epochs=101, learning_rate=0.001, lr_factor=10.0, lr_step=0.45))
    >>> [f"{schedule.rate(epoch, 0, 1):.0e}" for epoch in (0, 44, 45, 89, 90)]
    ['1e-03', '1e-03', '1e-04', '1e-04', '1e-05']
    """

    def __init__(self, settings: IncrementalTraining) -> None:
        self.settings = settings
        self.interval = max(1, round(settings.lr_step * settings.epochs))

    def rate(self, epoch: int, step: int, steps_per_epoch: int) -> float:
        """Return the learning rate of a step of an epoch."""
        s = self.settings
        return s.learning_rate / s.lr_factor ** (epoch // self.interval)


class PlateauSchedule(Schedule):
    """The learning rate is divided by `lr_factor` when the loss of the epochs has stopped falling.

    After `lr_patience` of the epochs without a new lowest loss, training continues from the weights of the lowest one with
    the smaller learning rate; below `lr_min` it stops. The weights of the lowest loss are those of the end. This is the
    schedule of FACIL (Masana et al., TPAMI 2022), where the loss is that of held-out images.
    """

    def __init__(self, settings: IncrementalTraining) -> None:
        self.settings = settings
        self.patience = max(_LEAST_PATIENCE, round(settings.lr_patience * settings.epochs))
        self._rate, self._left = settings.learning_rate, self.patience
        self._best: dict[str, Tensor] = {}

    def rate(self, epoch: int, step: int, steps_per_epoch: int) -> float:
        """Return the present learning rate."""
        return self._rate

    def after_epoch(self, epoch: int, loss: float, networks: Mapping[str, nn.Module]) -> None:
        """Keep the weights of the lowest loss, and go back to them when it has not fallen for long enough."""
        if loss < self.best_loss:
            self.best_loss, self._left = loss, self.patience
            self._best = {
                f"{prefix}.{name}": value.clone()
                for prefix, network in networks.items()
                for name, value in network.state_dict().items()
            }
        else:
            self._left -= 1
            if self._left <= 0:
                self._rate /= self.settings.lr_factor
                self.stopped = self._rate < self.settings.lr_min
                self._left = self.patience
                self._restore(networks)
        if self.stopped or epoch + 1 == self.settings.epochs:
            self._restore(networks)

    def _restore(self, networks: Mapping[str, nn.Module]) -> None:
        """Set the networks to the weights of the lowest loss."""
        for prefix, network in networks.items():
            if best := {
                k.removeprefix(f"{prefix}."): v for k, v in self._best.items() if k.startswith(f"{prefix}.")
            }:
                network.load_state_dict(best)

    def state(self) -> dict[str, Tensor]:
        """Return learning rate, lowest loss, remaining patience, and the weights of the lowest loss."""
        progress = [self._rate, self.best_loss, self._left, self.stopped]
        best = {f"best.{name}": value for name, value in self._best.items()}
        return {"progress": torch.tensor(progress, dtype=torch.float64), **best}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from `state`."""
        self._rate, self.best_loss, left, stopped = tensors["progress"].tolist()
        self._left, self.stopped = int(left), bool(stopped)
        self._best = {k.removeprefix("best."): v for k, v in tensors.items() if k.startswith("best.")}


def make_schedule(settings: Training) -> Schedule:
    """Make the schedule of the settings; those without a choice have warm-up and cosine annealing."""
    if isinstance(settings, IncrementalTraining) and settings.schedule == "step":
        return StepSchedule(settings)
    if isinstance(settings, IncrementalTraining) and settings.schedule == "plateau":
        return PlateauSchedule(settings)
    return CosineSchedule(settings)


def learning_rate(settings: Training, epoch: int, step: int, steps_per_epoch: int) -> float:
    """Return the learning rate of a step of an epoch: linear warm-up per step, then cosine annealing per epoch.

    Annealing starts after the first epoch at whose end the warm-up is over, as in the paper's code.

    >>> rate = learning_rate(Training(), 50, 0, 79)  # CIFAR-100, start of epoch 50
    >>> f"{rate:.2e}"
    '5.16e-04'
    >>> f"{learning_rate(Training(), 50, 0, 17):.2e}"  # CUB-200
    '5.79e-04'
    >>> f"{learning_rate(Training(), 0, 0, 17):.0e}"
    '1e-11'
    """
    warmup = min(settings.warmup_steps, settings.epochs * steps_per_epoch // 10)
    done = epoch * steps_per_epoch + step
    if done < warmup:
        return settings.learning_rate * (_WARMUP_START + (1 - _WARMUP_START) * done / warmup)
    annealed = max(0, epoch - warmup // steps_per_epoch)
    floor = settings.learning_rate * _FLOOR
    cosine = (1 + math.cos(math.pi * annealed / settings.epochs)) / 2
    return floor + (settings.learning_rate - floor) * cosine
