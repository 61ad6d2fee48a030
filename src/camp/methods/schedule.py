"""The learning rate of the reference as a function of the step, so that a resumed run needs no scheduler state."""

import math

from camp.methods.settings import Training

_WARMUP_START = 1e-8
_FLOOR = 1e-3


def learning_rate(settings: Training, epoch: int, step: int, steps_per_epoch: int) -> float:
    """Learning rate of `step` (counted in its epoch): linear warm-up by the step, then cosine by the epoch.

    The cosine moves only at the end of an epoch by which the warm-up is over, as in the reference.

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
