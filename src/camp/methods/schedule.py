"""The learning rate of the paper's code as a function of the step, so that resuming needs no scheduler state."""

import math

from camp.methods.settings import Training

_WARMUP_START = 1e-8
_FLOOR = 1e-3


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
