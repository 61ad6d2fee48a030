"""Colours, dashes and shapes of charts and pages.

Charts and style sheets name colours as `var(--known)`; a page defines them for light and dark, and figures for
papers take the light ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LIGHT = {
    "page": "#fbfbf9",
    "surface": "#ffffff",
    "ink": "#14140f",
    "soft": "#55544d",
    "faint": "#76756c",
    "rule": "#e4e3dc",
    "grid": "#ecebe5",
    "track": "#f1f0ea",
    "heat": "#1c5cab",
    "heat-ink": "#ffffff",
    "known": "#2a78d6",
    "novel": "#e2622b",
    "note": "#fdf3dc",
    "note-ink": "#6a4a00",
}
DARK = {
    "page": "#131312",
    "surface": "#1b1b19",
    "ink": "#f3f2ec",
    "soft": "#b9b7ac",
    "faint": "#8a887e",
    "rule": "#31302c",
    "grid": "#2a2926",
    "track": "#262522",
    "heat": "#2a70c8",
    "heat-ink": "#ffffff",
    "known": "#5598e7",
    "novel": "#f07f4c",
    "note": "#322a16",
    "note-ink": "#f0d493",
}
_SERIES = ["#4a3aa7", "#12966a", "#d6578a", "#c98500", "#2a78d6", "#e34948", "#5d6b1e", "#eb6834"]
_SERIES_DARK = ["#9c91ee", "#2fb587", "#e07aa4", "#d79a1e", "#5598e7", "#e66767", "#a3b356", "#e6743f"]
LIGHT |= {f"s{i}": colour for i, colour in enumerate(_SERIES)}
DARK |= {f"s{i}": colour for i, colour in enumerate(_SERIES_DARK)}

KNOWN, NOVEL, INK, FAINT = "var(--known)", "var(--novel)", "var(--ink)", "var(--faint)"
DASHES = ([1, 0], [6, 3], [2, 3], [8, 3, 2, 3])
SHAPES = [
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "cross",
    "triangle-left",
    "triangle-right",
]

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
