"""The map of the feature space: pictures, centroids, and where centroids went."""

import math
from collections.abc import Iterable

from markupsafe import Markup

from camp.bench.evaluation.feature_map import FeatureMap, MapCentroid
from camp.bench.evaluation.feature_map import Position as Point
from camp.bench.report.svg import Scale, drawing, scale, tag


def latent_map(drawn: FeatureMap, *, label: str, width: float = 560, height: float = 480) -> Markup:
    """Small dots are test pictures, coloured by task; arrows lead from stored to adapted centroids.

    A ring is where a class truly is now. Known categories are round, discovered ones square.
    """
    places = [getattr(centroid, at) for centroid in drawn.centroids for at in ("stored", "adapted", "true")]
    corners = [place for place in [*drawn.points, *places] if place]
    x, y = _scales(corners, width, height, margin=14)
    pictures = [
        tag("circle", cx=x(p[0]), cy=y(p[1]), r=2, class_=f"picture {colour(int(p[2]))}")
        for p in drawn.points
        if math.isfinite(p[0]) and math.isfinite(p[1])
    ]
    # Many categories get smaller marks, or the map would be all marks.
    size = min(1.0, max(0.5, (60 / max(len(drawn.centroids), 1)) ** 0.5))
    marks = [_centroid(centroid, x, y, size) for centroid in drawn.centroids]
    return drawing(width, height, label, *pictures, *marks)


def colour(number: int) -> str:
    """The CSS class of the number-th run or task."""
    return f"c{number % 8}"


def group_style(number: int) -> str:
    """The CSS classes of the number-th setting: eight colours, then the same ones dashed.

    >>> group_style(1), group_style(9)
    ('g1', 'g1 again')
    """
    return f"g{number % 8}" + (" again" if number >= 8 else "")


def _scales(corners: Iterable[Point], width: float, height: float, margin: float) -> tuple[Scale, Scale]:
    """One unit is the same length along both axes: distances on the map mean something."""
    finite = [(p[0], p[1]) for p in corners if math.isfinite(p[0]) and math.isfinite(p[1])] or [(0.0, 0.0)]
    (x0, x1), (y0, y1) = ((min(axis), max(axis)) for axis in zip(*finite))
    unit = max((x1 - x0) / (width - 2 * margin), (y1 - y0) / (height - 2 * margin)) or 1.0
    cx, cy = (x0 + x1) / 2, (y0 + y1) / 2
    half_x, half_y = unit * width / 2, unit * height / 2
    return scale(cx - half_x, cx + half_x, 0, width), scale(cy - half_y, cy + half_y, height, 0)


def _centroid(centroid: MapCentroid, x: Scale, y: Scale, size: float) -> Markup:
    hue = colour(centroid.task)
    end = (x(centroid.adapted[0]), y(centroid.adapted[1]))
    parts = [tag("title", f"{centroid.name} ({centroid.kind}, task {centroid.task + 1})")]
    if centroid.true:
        true = (x(centroid.true[0]), y(centroid.true[1]))
        parts.append(tag("line", x1=end[0], y1=end[1], x2=true[0], y2=true[1], class_=f"tether {hue}"))
        parts.append(tag("circle", cx=true[0], cy=true[1], r=6 * size, class_=f"ring {hue}"))
    if centroid.stored:
        start = (x(centroid.stored[0]), y(centroid.stored[1]))
        parts.append(tag("g", *_arrow(start, end), opacity=size))
    if centroid.kind == "known":
        parts.append(tag("circle", cx=end[0], cy=end[1], r=4 * size, class_=f"dot {hue}"))
    else:
        side = 8 * size
        corner = {"x": end[0] - side / 2, "y": end[1] - side / 2}
        parts.append(tag("rect", **corner, width=side, height=side, class_=f"dot {hue}"))
    return tag("g", *parts)


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> list[Markup]:
    """A line with a head just before the centroid's own mark; nothing where it is too short to see."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy)
    if length < 9:
        return []
    ux, uy = dx / length, dy / length
    tip = (end[0] - 5 * ux, end[1] - 5 * uy)
    back = (tip[0] - 6 * ux, tip[1] - 6 * uy)
    wings = [(back[0] - 3 * uy, back[1] + 3 * ux), (back[0] + 3 * uy, back[1] - 3 * ux)]
    head = " ".join(f"{px:.1f},{py:.1f}" for px, py in [tip, *wings])
    return [
        tag("line", x1=start[0], y1=start[1], x2=back[0], y2=back[1], class_="arrow"),
        tag("polygon", points=head, class_="head"),
    ]
