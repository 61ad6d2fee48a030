"""The charts of the page, each a pure function from numbers to inline SVG.

Colours are classes: `known` and `novel` always look the same, `c0`..`c7` tell runs or tasks apart. Whatever a
mark stands for is its <title>, shown on hover.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from markupsafe import Markup

from camp.bench.evaluation.accuracy import Share
from camp.bench.evaluation.drift import CentroidDistance
from camp.bench.report.numbers import percent
from camp.bench.report.svg import Frame, drawing, path, scale, tag, ticks


@dataclass(frozen=True)
class Line:
    """One line of a chart: y over the chart's x values, and thin lines behind it (its seeds)."""

    label: str
    colour: str
    """A CSS class."""
    values: Sequence[Share]
    behind: Sequence[Sequence[Share]] = field(default_factory=list)


@dataclass(frozen=True)
class Mark:
    """A vertical line at an x value."""

    x: float
    label: str
    style: str
    """A CSS class."""


def line_chart(
    xs: Sequence[float],
    lines: Sequence[Line],
    *,
    label: str,
    x_name: str,
    show: Callable[[float], str] = lambda value: percent(value, 0),
    tell: Callable[[float], str] = percent,
    low: float | None = 0.0,
    high: float | None = None,
    dots: bool = True,
    marks: Sequence[Mark] = (),
    x_labels: Sequence[tuple[float, str]] | None = None,
    size: tuple[float, float] = (350, 250),
) -> Markup:
    """Lines over common x values; `low` and `high` pin the ends of the y axis.

    `show` writes a value on the axis, `tell` in the words of a dot.
    """
    width, height = size
    present = [y for line in lines for run in [line.values, *line.behind] for y in run if _real(y)]
    floor = low if low is not None else min(present, default=0.0)
    ceiling = high if high is not None else max([*present, floor + 1e-9])
    steps = ticks(floor, ceiling)
    if high is None and len(steps) > 1 and steps[-1] < ceiling:
        ceiling = steps[-1] + (steps[1] - steps[0])  # leave room above the highest value
        steps = ticks(floor, ceiling)
    left, top, right, bottom = 48.0, 14.0, width - 16, height - 46
    pad = 10 if len(xs) > 1 else 0
    x = scale(min(xs), max(xs), left + pad, right - pad)
    frame = Frame(left, top, right, bottom, x, scale(floor, ceiling, bottom, top))

    parts = [frame.grid(steps, show)]
    parts.append(frame.along(list(x_labels) if x_labels is not None else [(v, f"{v:g}") for v in xs], x_name))
    for mark in marks:
        at = frame.x(mark.x)
        rule = tag("line", x1=at, x2=at, y1=top, y2=bottom, class_=f"mark {mark.style}")
        parts.append(tag("g", tag("title", mark.label), rule))
    for line in lines:
        for run in line.behind:
            parts.append(tag("path", d=path(list(zip(xs, run)), frame), class_=f"line behind {line.colour}"))
    for line in lines:
        curve = tag("path", d=path(list(zip(xs, line.values)), frame), class_=f"line {line.colour}")
        parts.append(tag("g", tag("title", line.label), curve))
        single = sum(map(_real, line.values)) == 1
        for at, y in zip(xs, line.values):
            if _real(y) and (dots or single):
                place = f"{line.label}, {x_name} {at:g}: {tell(y)}"
                circle = tag("circle", cx=frame.x(at), cy=frame.y(y), r=4, class_=f"dot {line.colour}")
                parts.append(tag("g", tag("title", place), circle))
    return drawing(width, height, label, *parts)


@dataclass(frozen=True)
class BarRow:
    """One setting: its bars, and for each the mark of what was within reach."""

    label: str
    bars: Sequence[tuple[str, Share, Share]]
    """(kind, value, upper bound)"""


def bar_chart(rows: Sequence[BarRow], *, label: str, width: float = 600) -> Markup:
    """Horizontal bars in per cent; a tick shows the upper bound."""
    left, right, thick, gap = 8.0, width - 64, 16.0, 3.0
    x = scale(0, 1, left, right)
    block = 30 + 2 * (thick + gap) + 14
    parts: list[Markup] = []
    for number, row in enumerate(rows):
        y = number * block + 20
        parts.append(tag("text", row.label, x=left, y=y, class_="label"))
        for i, (kind, value, bound) in enumerate(row.bars):
            top = y + 10 + i * (thick + gap)
            name = f"{row.label}, {kind}: {percent(value)}"
            name += f" of {percent(bound)} within reach" if bound is not None else ""
            parts.append(tag("rect", x=left, y=top, width=right - left, height=thick, rx=3, class_="track"))
            end = left
            if value is not None:
                end = max(x(value), left + 3)
                bar = tag("rect", x=left, y=top, width=end - left, height=thick, rx=3, class_=f"fill {kind}")
                parts.append(tag("g", tag("title", name), bar))
            if bound is not None:
                at = x(bound)
                parts.append(tag("line", x1=at, x2=at, y1=top - 1, y2=top + thick + 1, class_="bound"))
            parts.append(tag("text", percent(value), x=right + 8, y=top + 12.5, class_="tick"))
    return drawing(width, len(rows) * block + 4, label, *parts)


def heat_map(
    shares: Sequence[Sequence[Share]],
    *,
    label: str,
    row_name: str,
    column_name: str,
    tell: Callable[[int, int], str],
    width: float = 340,
) -> Markup:
    """A square of shares, darker for more; rows may be shorter than the square (a triangle)."""
    n = len(shares)
    left, top = 46.0, 8.0
    cell = (width - left - 6) / n
    bottom = top + cell * n
    parts: list[Markup] = []
    every = math.ceil(n / 12)
    for i in range(n):
        middle = top + cell * (i + 0.5)
        if i % every == 0:
            parts.append(tag("text", i + 1, x=left - 8, y=middle + 4, class_="tick end"))
            parts.append(tag("text", i + 1, x=left + cell * (i + 0.5), y=bottom + 18, class_="tick middle"))
        for j, share in enumerate(shares[i]):
            if not _real(share):
                continue
            corner = {"x": left + cell * j + 1, "y": top + cell * i + 1}
            side = cell - 2
            square = tag("rect", **corner, width=side, height=side, rx=min(4.0, side / 6), class_="heat",
                         fill_opacity=round(0.05 + 0.95 * min(max(share, 0.0), 1.0), 3))  # fmt: skip
            words = [tag("title", tell(i, j)), square]
            if cell >= 22:
                ink = "value middle strong" if share > 0.75 else "value middle"
                at = {"x": left + cell * (j + 0.5), "y": middle + 4}
                words.append(tag("text", f"{100 * share:.0f}", **at, class_=ink))
            parts.append(tag("g", *words))
    centre = (top + bottom) / 2
    parts.append(tag("text", column_name, x=left + cell * n / 2, y=bottom + 38, class_="axis middle"))
    turn = f"rotate(-90 12 {centre:.1f})"
    parts.append(tag("text", row_name, x=12, y=centre, transform=turn, class_="axis middle"))
    return drawing(width, bottom + 46, label, *parts)


def dumbbell_chart(
    tasks: Sequence[int],
    pairs: Mapping[str, Sequence[CentroidDistance | None]],
    *,
    label: str,
    size: tuple[float, float] = (350, 250),
) -> Markup:
    """For each task and kind: an open dot (stored) and a filled dot (adapted), joined."""
    width, height = size
    present = [getattr(d, end) for each in pairs.values() for d in each if d for end in ("stored", "adapted")]
    steps = ticks(0, max([*present, 1e-9]))
    ceiling = steps[-1] + (steps[1] - steps[0] if steps[-1] < max([*present, 0]) else 0)
    left, top, right, bottom = 48.0, 14.0, width - 16, height - 46
    x = scale(-0.5, len(tasks) - 0.5, left, right)
    frame = Frame(left, top, right, bottom, x, scale(0, ceiling, bottom, top))
    parts = [frame.grid(ticks(0, ceiling), lambda value: f"{value:g}")]
    parts.append(frame.along([(i, str(task)) for i, task in enumerate(tasks)], "task"))
    reach = min(9.0, (right - left) / len(tasks) / 5)
    for side, (kind, each) in zip((-1, 1), pairs.items()):
        for i, (task, distance) in enumerate(zip(tasks, each)):
            if distance is None:
                continue
            at = frame.x(i) + side * reach
            before, after = frame.y(distance.stored), frame.y(distance.adapted)
            words = f"task {task}, {kind}: {distance.stored:.2f} as stored, {distance.adapted:.2f} adapted"
            parts.append(
                tag(
                    "g",
                    tag("title", words),
                    tag("line", x1=at, x2=at, y1=before, y2=after, class_=f"line {kind}"),
                    tag("circle", cx=at, cy=before, r=4.5, class_=f"ring {kind}"),
                    tag("circle", cx=at, cy=after, r=5, class_=f"dot {kind}"),
                )
            )
    return drawing(width, height, label, *parts)


def _real(value: Share) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
