"""How figures look: colours that colour-blind people can tell apart, and a marker and a dash beside each."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from camp.bench.report.groups import Spread

# Okabe and Ito's.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
MARKERS = "osD^vPX*"
DASHES = ("-", "--", "-.", ":")
HEAT = "cividis"

NAMES = {
    "all": "all classes",
    "known": "known classes",
    "novel": "novel classes",
    "forgetting": "forgetting",
    "fd": "FD",
    "mlp": "MLP",
    "trex": "T-ReX",
    "sdc": "SDC",
    "camp": "CAMP",
    "camp-plus": "CAMP+",
    "gcd": "GCD",
    "gcd-fd": "GCD+FD",
    "gcd-ewc": "GCD+EWC",
    "gcd-er": "GCD+ER",
    "metagcd": "MetaGCD",
    "simgcd": "SimGCD",
    "igcd": "IGCD",
    "gm": "GM",
    "pa": "PA",
    "frozen": "Frozen",
}


def mark(number: int) -> tuple[str, str]:
    """Colour and marker of a series; those beyond the eighth have the same colours with other markers.

    >>> mark(0), mark(8)
    (('#0072B2', 'o'), ('#0072B2', 's'))
    """
    return COLOURS[number % len(COLOURS)], MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


def name_of(value: Any) -> str:
    """A value as a figure says it.

    >>> name_of("gcd-fd"), name_of(0.5), name_of("labelled_fraction")
    ('GCD+FD', '0.5', 'labelled fraction')
    """
    if isinstance(value, str):
        return NAMES.get(value, value.replace("_", " "))
    return f"{value:g}" if isinstance(value, float) else str(value)


def sheet(
    columns: int = 1, rows: int = 1, size: tuple[float, float] = (4.2, 3.2)
) -> tuple[Figure, list[Axes]]:
    """A figure of `rows` x `columns` panels, each of `size` inches."""
    mpl.rcParams.update(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#dddddd",
            "grid.linewidth": 0.6,
            "axes.axisbelow": True,
            "legend.frameon": False,
            "svg.hashsalt": "camp",  # the same numbers give the same file
        }
    )
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def legend_below(axes: Axes) -> None:
    """The legend under the panel, where it hides no line."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)


def series(axes: Axes, xs: Sequence[float], figures: Sequence[Spread | None], label: str, number: int,
           dash: str = "-", scale: float = 100.0) -> None:  # fmt: skip
    """A line with markers, and a band of a standard deviation where there are seeds."""
    there = [(x, f) for x, f in zip(xs, figures) if f is not None]
    if not there:
        return
    colour, marker = mark(number)
    places, means = [x for x, _ in there], [scale * f.mean for _, f in there]
    axes.plot(places, means, dash, color=colour, marker=marker, markersize=4, linewidth=1.6, label=label)
    spread = [scale * (f.std or 0.0) for _, f in there]
    if any(spread):
        low, high = ([m + sign * s for m, s in zip(means, spread)] for sign in (-1, 1))
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)


def heat(axes: Axes, cells: Sequence[Sequence[float | None]], x: Sequence[Any], y: Sequence[Any], title: str,
         limits: tuple[float, float] | None = None) -> None:  # fmt: skip
    """A map of numbers in per cent, each written in its cell."""
    numbers = [[100 * cell if cell is not None else float("nan") for cell in row] for row in cells]
    there = [n for row in numbers for n in row if n == n]
    low, high = limits if limits is not None else (min(there, default=0.0), max(there, default=1.0))
    axes.imshow(numbers, cmap=HEAT, vmin=low, vmax=high if high > low else low + 1, aspect="auto")
    axes.set_xticks(range(len(x)), [name_of(value) for value in x])
    axes.set_yticks(range(len(y)), [name_of(value) for value in y])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title(title)
    for i, row in enumerate(numbers):
        for j, number in enumerate(row):
            if number == number:
                ink = "white" if number < (low + high) / 2 else "black"
                axes.text(j, i, f"{number:.1f}", ha="center", va="center", color=ink, fontsize=8)
