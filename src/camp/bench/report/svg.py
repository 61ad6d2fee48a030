"""Elements, scales and axes of inline SVG. Colours are CSS classes: one drawing is good in light and dark."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup, escape

Scale = Callable[[float], float]


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element with escaped children and attributes; `class_` and `stroke_width` lose their underscores.

    >>> tag("text", "a < b", class_="axis", x=1.256)
    Markup('<text class="axis" x="1.26">a &lt; b</text>')
    """
    pairs = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _plain(value))
        for key, value in attributes.items()
        if value is not None
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), pairs, Markup("").join(map(escape, children)))


def drawing(width: float, height: float, label: str, *children: object) -> Markup:
    """A whole picture with the words that stand for it where it cannot be seen."""
    return tag(
        "svg",
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
        style=f"max-width:{width:g}px",
    )


def scale(low: float, high: float, start: float, end: float) -> Scale:
    """The straight line that takes low..high to start..end; a single point goes to the middle."""
    if high == low:
        return lambda value: (start + end) / 2
    return lambda value: start + (value - low) / (high - low) * (end - start)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers within low..high.

    >>> ticks(0, 1), ticks(0.3, 7.8, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [2.0, 4.0, 6.0])
    """
    if high <= low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((m * power for m in (1, 2, 5, 10)), key=lambda step: abs(step - rough))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(step * i, 10) for i in range(first, last + 1)]


@dataclass(frozen=True)
class Frame:
    """The plotting area inside a picture, with its two scales."""

    left: float
    top: float
    right: float
    bottom: float
    x: Scale
    y: Scale

    def grid(self, values: list[float], show: Callable[[float], str]) -> Markup:
        """Faint lines across, each with its value at the left."""
        parts = []
        for value in values:
            y = self.y(value)
            parts.append(tag("line", x1=self.left, x2=self.right, y1=y, y2=y, class_="grid"))
            parts.append(tag("text", show(value), x=self.left - 8, y=y + 4, class_="tick end"))
        return Markup("").join(parts)

    def along(self, places: list[tuple[float, str]], name: str) -> Markup:
        """Labels below, at x values, and what they count; some are left out where they would touch."""
        room = max((len(label) for _, label in places), default=1) * 7 + 6
        every = max(1, math.ceil(len(places) * room / (self.right - self.left)))
        parts = [
            tag("text", label, x=self.x(value), y=self.bottom + 18, class_="tick middle")
            for value, label in places[::every]
        ]
        middle = (self.left + self.right) / 2
        return Markup("").join(
            [*parts, tag("text", name, x=middle, y=self.bottom + 38, class_="axis middle")]
        )


def path(points: list[tuple[float, float | None]], frame: Frame) -> str:
    """The `d` of a line through the points that exist; a missing one breaks the line."""
    steps, pen = [], "M"
    for x, y in points:
        if y is None or not math.isfinite(y):
            pen = "M"
            continue
        steps.append(f"{pen}{frame.x(x):.1f} {frame.y(y):.1f}")
        pen = "L"
    return "".join(steps)


def _plain(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
