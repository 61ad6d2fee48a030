"""Charts for the page, the studies and papers, as Vega-Lite specifications.

A chart is a pure function of numbers; `tooltip` is what a mark says when it is pointed at.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from camp.bench.evaluation.drift import CentroidDistance
from camp.bench.evaluation.feature_map import FeatureMap, MapCentroid
from camp.bench.report.numbers import Spread, percent
from camp.bench.report.theme import DASHES, INK, KNOWN, NOVEL, SHAPES, Style, series_colour

Spec = dict[str, Any]
"""A part of a Vega-Lite specification."""


@dataclass(frozen=True)
class Chart:
    """A chart and what it shows, for those who cannot see it."""

    spec: Spec
    description: str

    @property
    def data(self) -> list[list[Spec]]:
        """The rows of every layer that has data of its own, in the order of drawing."""
        return list(_data(self.spec))


def _data(part: Spec) -> Iterator[list[Spec]]:
    if "data" in part:
        yield part["data"]["values"]
    for inner in (*part.get("layer", ()), *part.get("concat", ())):
        yield from _data(inner)


@dataclass(frozen=True)
class Series:
    """A line: values over x, and thin lines behind it, one for each seed."""

    label: str
    style: Style
    xs: Sequence[float | str]
    values: Sequence[Spread | float | None]
    seeds: Sequence[Sequence[float | None]] = ()


@dataclass(frozen=True)
class Rule:
    """A straight line across a chart, at an x or a y."""

    label: str
    x: float | None = None
    y: float | None = None
    colour: str = INK
    dash: int = 0


def line_chart(
    series: Sequence[Series],
    *,
    description: str = "",
    x_title: str,
    y_title: str | None = None,
    fractions: bool = True,
    from_zero: bool = True,
    top: float | None = None,
    dots: bool = True,
    rules: Sequence[Rule] = (),
    legend: bool = False,
    title: str | None = None,
    size: tuple[int, int] = (290, 190),
) -> Chart:
    """Lines over x with a band of one standard deviation; `fractions` are shown in percent."""
    rows = [row for line in series for row in _line_rows(line, x_title, fractions)]
    seeds = [
        {"series": line.label, "seed": seed, "x": x, "y": _finite(y)}
        for line in series
        for seed, values in enumerate(line.seeds)
        for x, y in zip(line.xs, values)
    ]
    x = _x_axis([x for line in series for x in line.xs], x_title)
    scale: Spec = {"zero": from_zero} | ({"domainMax": top} if top is not None else {})
    y = _q("y", title=y_title, scale=scale, axis=_number_axis(fractions))
    colour, dash, shape = _styles([(line.label, line.style) for line in series], "series", legend)
    layers: list[Spec] = []
    if any(row["low"] is not None for row in rows):
        low, high = {**y, "field": "low"}, {"field": "high"}
        layers.append(_layer("area", x=x, y=low, y2=high, color=colour, opacity=_fixed(0.15)))
    if seeds:
        thin = {"strokeWidth": _fixed(1), "opacity": _fixed(0.4)}
        layers.append(_layer("line", seeds, x=x, y=y, color=colour, detail={"field": "seed"}, **thin))
    layers.append(_layer("line", x=x, y=y, color=colour, strokeDash=dash))
    single = all(sum(value is not None for value in line.values) == 1 for line in series)
    if dots or single:
        layers.append(_layer("point", x=x, y=y, color=colour, shape=shape, tooltip=TOOLTIP, size=_fixed(45)))
    for rule in rules:
        place = {"x": _q("x", title=x_title)} if rule.x is not None else {"y": _q("y", title=y_title)}
        row = _row(x=rule.x, y=rule.y, tooltip=rule.label)
        look = {"color": _fixed(rule.colour), "strokeDash": _fixed(DASHES[rule.dash]), "size": _fixed(1.5)}
        layers.append(_layer("rule", [row], **place, **look, tooltip=TOOLTIP))
    return _chart(rows, layers, description, size, title)


def _line_rows(line: Series, x_title: str, fractions: bool) -> list[Spec]:
    tell = percent if fractions else _decimal
    rows = []
    for x, value in zip(line.xs, line.values):
        mean, std = (value.mean, value.std) if isinstance(value, Spread) else (_finite(value), None)
        at = x if isinstance(x, str) else f"{x:g}"
        tooltip = f"{line.label}, {x_title} {at}: {tell(mean)}" + (f" ± {tell(std)}" if std else "")
        rows.append(_row(series=line.label, x=x, y=mean, tooltip=tooltip, **_ends(mean, std)))
    return rows


@dataclass(frozen=True)
class ChartBar:
    """A bar of a group, and the upper bound of its value."""

    label: str
    kind: str
    value: Spread | None
    bound: float | None = None


def bar_chart(
    bars: Sequence[ChartBar],
    colours: Mapping[str, str],
    *,
    description: str = "",
    x_title: str | None = None,
    fractions: bool = True,
    legend: bool = False,
) -> Chart:
    """Horizontal bars grouped by label, an error bar of one standard deviation, and a tick at the upper bound."""
    tell = percent if fractions else _decimal
    rows = []
    for bar in bars:
        mean, std = (bar.value.mean, bar.value.std) if bar.value else (None, None)
        ends = _ends(mean, std)
        tooltip = f"{bar.label}, {bar.kind}: {tell(mean)}"
        tooltip += f" of {tell(bar.bound)} with true class means" if bar.bound is not None else ""
        end = max((value for value in (mean, ends["high"], bar.bound) if value is not None), default=0.0)
        places = {"value": mean, "bound": bar.bound, "end": end, **ends}
        rows.append(_row(label=bar.label, kind=bar.kind, text=tell(mean), tooltip=tooltip, **places))
    kinds = list(colours)
    scale: Spec = {"domain": [0, 1]} if fractions else {"zero": True}
    x = _q("value", title=x_title, scale=scale, axis=_number_axis(fractions))
    place: Spec = {
        "y": {**_n("label"), "sort": None, "title": None, "axis": {"labelLimit": 260, "labelColor": INK}},
        "yOffset": {**_n("kind"), "sort": kinds},
        "tooltip": TOOLTIP,
    }
    colour = _style("kind", kinds, list(colours.values()), {"orient": "bottom"} if legend else None)
    layers = [_layer({"type": "bar", "cornerRadiusEnd": 2}, **place, x=x, color=colour)]
    if any(row["low"] is not None for row in rows):
        layers.append(_layer("rule", **place, x={**x, "field": "low"}, x2={"field": "high"}))
    if any(bar.bound is not None for bar in bars):
        layers.append(_layer({"type": "tick", "thickness": 2}, **place, x={**x, "field": "bound"}))
    text = {"type": "text", "align": "left", "dx": 6, "fontSize": 11.5}
    layers.append(_layer(text, **place, x={**x, "field": "end"}, text={"field": "text"}))
    groups = len({bar.label for bar in bars})
    return _chart(rows, layers, description, (440, groups * (22 * len(kinds) + 14)))


def heat_map(
    cells: Sequence[Sequence[float | None]],
    xs: Sequence[object],
    ys: Sequence[object],
    *,
    description: str = "",
    x_title: str,
    y_title: str,
    tooltips: Mapping[tuple[int, int], str] | None = None,
    limits: tuple[float, float] = (0.0, 1.0),
    digits: int = 0,
    title: str | None = None,
    side: int = 260,
) -> Chart:
    """Fractions `cells[y][x]` in percent, darker for more; rows may be shorter than `xs` (a triangle)."""
    low, high = limits if limits[1] > limits[0] else (limits[0], limits[0] + 0.01)
    rows = []
    for i, line in enumerate(cells):
        for j, cell in enumerate(line):
            if (value := _finite(cell)) is not None:
                usual = f"{y_title} {ys[i]}, {x_title} {xs[j]}: {percent(value)}"
                text = {"text": f"{100 * value:.{digits}f}", "tooltip": tooltips[i, j] if tooltips else usual}
                rows.append(_row(x=str(xs[j]), y=str(ys[i]), value=value, **text))
    axis = {"labelAngle": 0, "labelOverlap": True, "grid": False}
    place: Spec = {
        "x": {**_o("x"), "title": x_title, "scale": {"domain": list(map(str, xs))}, "axis": axis},
        "y": {**_o("y"), "title": y_title, "scale": {"domain": list(map(str, ys))}, "axis": axis},
        "tooltip": TOOLTIP,
    }
    opacity = _q("value", scale={"domain": [low, high], "range": [0.05, 1], "clamp": True}, legend=None)
    square = {"type": "rect", "fill": "var(--heat)", "cornerRadius": 3, "stroke": "var(--page)"}
    layers = [_layer(square | {"strokeWidth": 2}, **place, fillOpacity=opacity)]
    if side / max(len(xs), 1) >= 20:
        dark = f"datum.value > {low + 0.6 * (high - low)}"
        ink = {"condition": {"test": dark, "value": "var(--heat-ink)"}, "value": INK}
        layers.append(_layer({"type": "text", "fontSize": 11}, **place, text={"field": "text"}, color=ink))
    height = max(round(side * len(ys) / max(len(xs), 1)), 60)
    return _chart(rows, layers, description, (side, height), title)


def dumbbell_chart(
    tasks: Sequence[int], pairs: Mapping[str, Sequence[CentroidDistance | None]], *, description: str = ""
) -> Chart:
    """For each task and kind of class, an open dot (stored) and a filled dot (adapted), joined."""
    rows = [
        _row(
            task=task,
            kind=kind,
            stored=distance.stored,
            adapted=distance.adapted,
            tooltip=f"task {task}, {kind}: {distance.stored:.2f} stored, {distance.adapted:.2f} adapted",
        )
        for kind, each in pairs.items()
        for task, distance in zip(tasks, each)
        if distance is not None
    ]
    kinds = ["known", "novel"]
    place: Spec = {
        "x": {**_o("task"), "title": "task", "axis": {"labelAngle": 0}},
        "xOffset": {**_n("kind"), "sort": kinds},
        "color": _style("kind", kinds, [KNOWN, NOVEL], None),
        "tooltip": TOOLTIP,
    }
    stored = _q("stored", title="distance to the true means", axis={"tickCount": 5})
    open_dot = {"type": "point", "filled": False, "fill": "var(--page)", "size": 70}
    layers = [
        _layer({"type": "rule", "strokeWidth": 2}, **place, y=stored, y2={"field": "adapted"}),
        _layer(open_dot, **place, y=stored),
        _layer("point", **place, y=_q("adapted"), size=_fixed(80)),
    ]
    return _chart(rows, layers, description, (290, 190))


@dataclass(frozen=True)
class ScatterPoint:
    """A point with deviations along both axes."""

    label: str
    x: Spread
    y: Spread


def scatter_chart(
    points: Sequence[ScatterPoint], *, description: str = "", x_title: str, y_title: str
) -> Chart:
    """Fractions against fractions, with error bars of one standard deviation."""
    rows = []
    for p in points:
        x_std, y_std = p.x.std or 0.0, p.y.std or 0.0
        tooltip = f"{p.label}: {x_title} {percent(p.x.mean)}, {y_title} {percent(p.y.mean)}"
        ends = {"x0": p.x.mean - x_std, "x1": p.x.mean + x_std}
        ends |= {"y0": p.y.mean - y_std, "y1": p.y.mean + y_std}
        rows.append(_row(label=p.label, x=p.x.mean, y=p.y.mean, tooltip=tooltip, **ends))
    styles = [(p.label, Style.number(i)) for i, p in enumerate(points)]
    colour, _, shape = _styles(styles, "label", legend=True)
    scale = {"zero": False, "padding": 12}
    x = _q("x", title=x_title, axis=_number_axis(True), scale=scale)
    y = _q("y", title=y_title, axis=_number_axis(True), scale=scale)
    layers: list[Spec] = []
    if any(p.x.std or p.y.std for p in points):
        layers.append(_layer("rule", x={**x, "field": "x0"}, x2={"field": "x1"}, y=y, color=colour))
        layers.append(_layer("rule", x=x, y={**y, "field": "y0"}, y2={"field": "y1"}, color=colour))
    layers.append(_layer("point", x=x, y=y, color=colour, shape=shape, tooltip=TOOLTIP, size=_fixed(90)))
    return _chart(rows, layers, description, (380, 280))


def map_chart(
    drawn: FeatureMap,
    *,
    description: str = "",
    by_class: bool = False,
    title: str | None = None,
    side: int = 460,
) -> Chart:
    """The feature space in two dimensions; one unit is the same length along both axes.

    Small marks are test images, coloured by task, or by class with crosses for later tasks. Arrows lead from
    stored to adapted centroids, which are round for known and square for discovered categories; a ring is the
    true mean of the class.
    """
    classes = {t: sorted({p[4] for p in drawn.points if p[2] == t}) for t in {p[2] for p in drawn.points}}
    images = [
        _row(
            x=x,
            y=y,
            shape="cross" if by_class and task else "circle",
            colour=series_colour(classes[task].index(class_) if by_class else task),
        )
        for x, y, task, _, class_ in drawn.points
        if math.isfinite(x) and math.isfinite(y)
    ]
    places = [place for c in drawn.centroids for place in (c.stored, c.adapted, c.true) if place]
    x, y, pixel = _equal_axes([*places, *((p[0], p[1]) for p in drawn.points)], side)
    rows = [_centroid_row(c, pixel, INK if by_class else series_colour(c.task)) for c in drawn.centroids]
    size = min(1.0, max(0.4, 60 / max(len(rows), 1)))  # smaller marks for many categories
    colour, shape = ({**_n(name), "scale": None, "legend": None} for name in ("colour", "shape"))

    def at(name: str) -> Spec:
        return {"x": {**x, "field": f"{name}_x"}, "y": {**y, "field": f"{name}_y"}}

    def to(name: str) -> Spec:
        return {"x2": {"field": f"{name}_x"}, "y2": {"field": f"{name}_y"}}

    moved = {"transform": [{"filter": "datum.moved"}]}
    point = {"type": "point", "filled": True}
    image = point | {"size": 14, "opacity": 0.35, "aria": False}
    tether = {"type": "rule", "strokeDash": [2, 2], "opacity": 0.6}
    ring = {"type": "point", "filled": False, "size": 140 * size, "strokeWidth": 1.75}
    dot = point | {"size": 60 * size, "opacity": 1, "stroke": "var(--surface)"}
    tip = point | {"shape": "triangle", "size": 40 * size, "color": INK, "opacity": 0.9}
    layers = [
        _layer(image, images, x=x, y=y, color=colour, shape=shape),
        _layer(tether, **at("adapted"), **to("true"), color=colour),
        _layer(ring, **at("true"), color=colour, tooltip=TOOLTIP),
        _layer({"type": "rule", "opacity": 0.75}, **at("stored"), **to("tip")) | moved,
        _layer(dot, **at("adapted"), color=colour, shape=shape, tooltip=TOOLTIP),
        _layer(tip, **at("tip"), angle=_q("angle", scale=None), tooltip=TOOLTIP) | moved,
    ]
    return _chart(rows, layers, description, (side, side), title)


def _centroid_row(centroid: MapCentroid, pixel: float, colour: str) -> Spec:
    adapted, stored = centroid.adapted, centroid.stored or centroid.adapted
    dx, dy = adapted[0] - stored[0], adapted[1] - stored[1]
    far = math.hypot(dx, dy)
    back = 7 * pixel / far if far else 0.0  # the arrow ends before the mark of the centroid
    tip, true = (adapted[0] - dx * back, adapted[1] - dy * back), centroid.true or (None, None)
    places = {"adapted": adapted, "stored": stored, "tip": tip, "true": true}
    return _row(
        **{f"{name}_{axis}": place[i] for name, place in places.items() for i, axis in enumerate("xy")},
        angle=math.degrees(math.atan2(dx, dy)),
        moved=far > 9 * pixel,
        colour=colour,
        shape="circle" if centroid.kind == "known" else "square",
        tooltip=f"{centroid.name} ({centroid.kind}, task {centroid.task + 1})",
    )


def grid(panels: Sequence[Chart], columns: int, description: str, one_legend: bool = True) -> Chart:
    """Panels in rows of `columns`; `one_legend` if they show the same series."""
    resolve = dict.fromkeys(("color", "strokeDash", "shape"), "shared" if one_legend else "independent")
    spec: Spec = {"concat": [panel.spec for panel in panels], "columns": columns, "spacing": 28}
    return Chart(spec | {"resolve": {"scale": {**resolve, "fillOpacity": "independent"}}}, description)


TOOLTIP: Spec = {"field": "tooltip"}


def _chart(
    rows: Sequence[Spec],
    layers: Sequence[Spec],
    description: str,
    size: tuple[int, int],
    title: str | None = None,
) -> Chart:
    spec: Spec = {"data": {"values": list(rows)}, "layer": list(layers), "width": size[0], "height": size[1]}
    return Chart(spec | ({"title": title} if title else {}), description)


def _layer(mark: str | Spec, rows: Sequence[Spec] | None = None, **encoding: Any) -> Spec:
    """A layer of one mark with its encodings, over the rows of the chart or its own."""
    return {"mark": mark, "encoding": encoding} | ({"data": {"values": list(rows)}} if rows else {})


def _row(**values: Any) -> Spec:
    return values


def _fixed(value: object) -> Spec:
    return {"value": value}


def _q(field: str, **options: Any) -> Spec:
    return {"field": field, "type": "quantitative", **options}


def _n(field: str) -> Spec:
    return {"field": field, "type": "nominal"}


def _o(field: str) -> Spec:
    return {"field": field, "type": "ordinal", "sort": None}


def _number_axis(fractions: bool) -> Spec:
    return {"tickCount": 5, **({"format": "~%"} if fractions else {})}


def _x_axis(xs: Sequence[float | str], title: str) -> Spec:
    """An axis of names, of a few whole numbers, or of numbers."""
    numbers = sorted({x for x in xs if not isinstance(x, str)})
    if not numbers:
        return {**_o("x"), "title": title, "axis": {"labelAngle": 0, "grid": False}}
    few = numbers[-1] - numbers[0] <= 12 and all(float(x).is_integer() for x in numbers)
    axis: Spec = {"grid": False, "labelOverlap": True} | (
        {"values": numbers, "format": "d"} if few else {"tickCount": 6}
    )
    return _q("x", title=title, axis=axis, scale={"zero": False, "nice": False, "padding": 10})


def _styles(series: Sequence[tuple[str, Style]], field: str, legend: bool) -> tuple[Spec, Spec, Spec]:
    """Encodings of colour, dash and shape, with one legend of them all."""
    domain, styles = [label for label, _ in series], [style for _, style in series]
    shown = {"orient": "bottom", "columns": 5, "symbolSize": 60} if legend else None
    return (
        _style(field, domain, [style.colour for style in styles], shown),
        _style(field, domain, [DASHES[style.dash] for style in styles], shown),
        _style(field, domain, [SHAPES[style.shape] for style in styles], shown),
    )


def _style(field: str, domain: Sequence[str], values: Sequence[Any], legend: Spec | None) -> Spec:
    scale = {"domain": domain, "range": values}
    return {**_n(field), "title": None, "scale": scale, "legend": legend}


def _equal_axes(corners: Sequence[tuple[float, float]], side: int) -> tuple[Spec, Spec, float]:
    """Axes of one scale that show all corners, and the length of a pixel."""
    finite = [(x, y) for x, y in corners if math.isfinite(x) and math.isfinite(y)] or [(0.0, 0.0)]
    (x0, x1), (y0, y1) = ((min(axis), max(axis)) for axis in zip(*finite))
    half = 0.53 * max(x1 - x0, y1 - y0) or 1.0
    x, y = (
        _q(name, axis=None, scale={"domain": [(a + b) / 2 - half, (a + b) / 2 + half], "nice": False})
        for name, a, b in (("x", x0, x1), ("y", y0, y1))
    )
    return x, y, 2 * half / side


def _ends(mean: float | None, std: float | None) -> dict[str, float | None]:
    """One standard deviation below and above a mean."""
    low, high = (mean - std, mean + std) if mean is not None and std else (None, None)
    return {"low": low, "high": high}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
