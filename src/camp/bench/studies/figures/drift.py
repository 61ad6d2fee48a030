"""The feature space of two tasks in two dimensions, and where centroids went."""

from collections.abc import Sequence

from camp.bench.evaluation.feature_map import Position as Point
from camp.bench.report.tables import Cell, Table
from camp.bench.studies.figures import Drawn
from camp.bench.studies.figures.rows import Row
from camp.bench.studies.figures.style import COLOURS, name_of, sheet
from camp.bench.studies.study import Study


def drift(study: Study, rows: list[Row]) -> Drawn:
    """A panel a method: test pictures, centroids as stored, adapted and true; arrows lead from stored to adapted."""
    figure, panels = sheet(len(rows), size=(4.2, 4.0))
    table: list[tuple[Cell, ...]] = []
    for axes, row in zip(panels, rows):
        results = row.first.results
        drawn = results.map
        if drawn is None:
            axes.set_visible(False)
            continue
        for task, kinds in _classes_of_tasks(drawn.points).items():
            for number, kind in enumerate(kinds):
                xs, ys = zip(*(point[:2] for point in drawn.points if point[4] == kind))
                marker = "+" if task else "."
                axes.plot(xs, ys, marker, color=COLOURS[number % 8], alpha=0.6, markersize=3)
        for centroid in drawn.centroids:
            stored, adapted, true = centroid.stored, centroid.adapted, centroid.true
            if true:
                axes.plot(*true, "*", color="black", markersize=9, markerfacecolor="white")
            if centroid.task == 0 and stored:
                axes.plot(*stored, "s", color="#555555", markersize=5)
                arrow = {"arrowstyle": "->", "color": "black", "lw": 1}
                axes.annotate("", _pair(adapted), _pair(stored), arrowprops=arrow)
            axes.plot(*adapted, "o", color="black", markersize=4)
        last = results.tasks[-1]
        accuracy = last.agnostic.all
        distance = last.drift.all if last.drift else None
        words = name_of(row.options["method"])
        axes.set_title(f"{words}: task 1 {_per_cent(accuracy[0])}, task 2 {_per_cent(accuracy[-1])}")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_aspect("equal", adjustable="datalim")
        ends = (f"{distance.stored:.3f}", f"{distance.adapted:.3f}") if distance else (None, None)
        stays = last.stored
        kept = _per_cent(stays.all[0]) if stays else None
        table.append((row.label, kept, _per_cent(accuracy[0]), _per_cent(accuracy[-1]), *ends))
    marks = [("s", "#555555", "as stored"), ("o", "black", "adapted"), ("*", "black", "true mean")]
    for marker, colour, label in marks:
        face = "white" if marker == "*" else colour
        panels[0].plot([], [], marker, color=colour, markerfacecolor=face, label=label)
    panels[0].legend(loc="best", fontsize=7)
    columns = (
        "method",
        "task 1 by stored centroids",
        "task 1",
        "task 2",
        "distance stored",
        "distance adapted",
    )
    words = (
        "Test pictures (dots: task 1, crosses: task 2; a colour a class) and centroids after the second task."
    )
    return Drawn(figure, Table(columns, table, frozenset()), words, [words])


def _classes_of_tasks(points: Sequence[tuple[float, float, int, int, int]]) -> dict[int, list[float]]:
    """The classes of each task's points, in their order."""
    found: dict[int, set[float]] = {}
    for _, _, task, _, kind in points:
        found.setdefault(int(task), set()).add(kind)
    return {task: sorted(kinds) for task, kinds in sorted(found.items())}


def _pair(point: Point) -> tuple[float, float]:
    return point[0], point[1]


def _per_cent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"
