"""Colours, dashes and shapes of charts and pages.

Charts and style sheets name colours as `var(--known)`; a page defines them for light and dark, and figures for
papers take the light ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_COLOURS = {
    "page": ("#fbfbf9", "#131312"),
    "surface": ("#ffffff", "#1b1b19"),
    "ink": ("#14140f", "#f3f2ec"),
    "soft": ("#55544d", "#b9b7ac"),
    "faint": ("#76756c", "#8a887e"),
    "rule": ("#e4e3dc", "#31302c"),
    "grid": ("#ecebe5", "#2a2926"),
    "track": ("#f1f0ea", "#262522"),
    "heat": ("#1c5cab", "#2a70c8"),
    "heat-ink": ("#ffffff", "#ffffff"),
    "known": ("#2a78d6", "#5598e7"),
    "novel": ("#e2622b", "#f07f4c"),
    "note": ("#fdf3dc", "#322a16"),
    "note-ink": ("#6a4a00", "#f0d493"),
}
_SERIES = list(
    zip(
        ["#4a3aa7", "#12966a", "#d6578a", "#c98500", "#2a78d6", "#e34948", "#5d6b1e", "#eb6834"],
        ["#9c91ee", "#2fb587", "#e07aa4", "#d79a1e", "#5598e7", "#e66767", "#a3b356", "#e6743f"],
    )
)
_COLOURS |= {f"s{i}": pair for i, pair in enumerate(_SERIES)}
LIGHT = {name: light for name, (light, _) in _COLOURS.items()}
DARK = {name: dark for name, (_, dark) in _COLOURS.items()}

KNOWN, NOVEL, INK, FAINT = "var(--known)", "var(--novel)", "var(--ink)", "var(--faint)"
DASHES = ([1, 0], [6, 3], [2, 3], [8, 3, 2, 3])
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-left", "triangle-right")  # fmt: skip

CONFIG: Mapping[str, Any] = {
    "background": "transparent",
    "font": "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {"gridColor": "var(--grid)", "domain": False, "ticks": False, "labelPadding": 6}
    | {"labelColor": FAINT, "titleColor": FAINT, "titleFontWeight": "normal"}
    | {"labelFontSize": 11.5, "titleFontSize": 11.5},
    "legend": {"labelColor": "var(--soft)", "labelFontSize": 11.5, "labelLimit": 300, "symbolOpacity": 1},
    "line": {"strokeWidth": 2},
    "point": {"filled": True, "opacity": 1},
    "rule": {"color": INK},
    "tick": {"color": INK},
    "text": {"color": "var(--soft)"},
    "title": {"color": INK, "fontSize": 12.5, "fontWeight": 600, "anchor": "start"},
}
"""The configuration of Vega-Lite for all charts."""


def series_colour(n: int) -> str:
    """The colour of the n-th run or task."""
    return f"var(--s{n % len(_SERIES)})"


@dataclass(frozen=True)
class Style:
    """How a series looks: a colour, and a dash and a shape for those who cannot tell colours apart."""

    colour: str
    dash: int = 0
    shape: int = 0

    @classmethod
    def number(cls, n: int) -> "Style":
        """The style of the n-th series; no two of many are the same.

        >>> Style.number(1), Style.number(9)
        (Style(colour='var(--s1)', dash=0, shape=1), Style(colour='var(--s1)', dash=1, shape=2))
        """
        return cls(series_colour(n), n // 8 % 4, (n + n // 8) % 8)
