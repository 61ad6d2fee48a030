"""Fractions as text, and means over seeds; the same in every table, chart and page."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a number over seeds."""

    mean: float
    std: float | None
    """Sample standard deviation; None for a single seed."""


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and standard deviation of the values that exist.

    >>> spread([0.25, 0.75, None]), spread([None])
    (Spread(mean=0.5, std=0.3535533905932738), None)
    """
    present = np.array([value for value in values if value is not None and math.isfinite(value)])
    if not present.size:
        return None
    return Spread(float(present.mean()), float(present.std(ddof=1)) if present.size > 1 else None)


def in_percent(fraction: float, digits: int = 1) -> str:
    """A fraction in percent, without the sign; what rounds to zero is 0 and never -0.

    >>> in_percent(0.5213), in_percent(-0.0004), in_percent(-0.1, 0)
    ('52.1', '0.0', '-10')
    """
    return f"{100 * fraction:z.{digits}f}"


def percent(fraction: float | None, digits: int = 1) -> str:
    """A fraction with the percent sign, or a dash.

    >>> percent(0.5213), percent(None), percent(0.2, 0)
    ('52.1 %', '–', '20 %')
    """
    if fraction is None or not math.isfinite(fraction):
        return "–"
    return f"{in_percent(fraction, digits)} %"


def decimal(value: Spread | None, digits: int = 3) -> str | None:
    """A number that is no fraction, with its deviation.

    >>> decimal(Spread(1.25, 0.5), 1), decimal(Spread(2.0, None))
    ('1.2 ± 0.5', '2.000')
    """
    if value is None:
        return None
    return f"{value.mean:.{digits}f}" + ("" if value.std is None else f" ± {value.std:.{digits}f}")
