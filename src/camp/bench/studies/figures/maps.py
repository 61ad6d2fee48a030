"""Heat maps, and the map of the feature space."""

import numpy as np

from camp.bench.evaluation.class_groups import GROUPS
from camp.bench.evaluation.confusion import normalised_rows
from camp.bench.report.charts import Chart, grid, heat_map, map_chart
from camp.bench.report.tables import Cells, Table
from camp.bench.studies.figures.rows import Drawn, Row, name_of, values_of, wanted
from camp.bench.studies.figures.tables import varied
from camp.bench.studies.study import Study


def heat_maps(study: Study, rows: list[Row]) -> Drawn:
    """One panel per metric: its mean over two options."""
    what = list(wanted(study, "what", ["all"]))
    panels = [_map(study, rows, name, name_of(name), _limits(rows, name)) for name in what]
    return Drawn(varied(rows, what), grid(panels, 3, f"{', '.join(what)} for every pair."))


def scenarios(study: Study, rows: list[Row]) -> Drawn:
    """Panels of metrics x values of an option: heat maps over two other options, alike in colour within a metric."""
    what, by = list(wanted(study, "what")), wanted(study, "panels")
    values = values_of(rows, by)
    panels = [
        _map(study, [row for row in rows if row[by] == value], name, f"{name_of(value)}: {name_of(name)}",
             _limits(rows, name))
        for name in what
        for value in values
    ]  # fmt: skip
    return Drawn(varied(rows, what), grid(panels, len(values), f"{', '.join(what)} over the scenarios."))


def _limits(rows: list[Row], name: str) -> tuple[float, float]:
    means = [metric.mean for row in rows if (metric := row.metric(name))]
    return min(means, default=0.0), max(means, default=1.0)


def _map(study: Study, rows: list[Row], name: str, title: str, limits: tuple[float, float]) -> Chart:
    x, y = wanted(study, "x"), wanted(study, "y")
    xs, ys = values_of(rows, x), values_of(rows, y)
    cells: list[list[float | None]] = [[None] * len(xs) for _ in ys]
    for row in rows:
        found = row.metric(name)
        cells[ys.index(row[y])][xs.index(row[x])] = found.mean if found else None
    return heat_map(
        cells,
        list(map(name_of, xs)),
        list(map(name_of, ys)),
        x_title=name_of(x),
        y_title=name_of(y),
        limits=limits,
        digits=1,
        title=title,
    )


def task_confusion(study: Study, rows: list[Row]) -> Drawn:
    """For each method: the fraction of each task's images assigned to the categories of every task."""
    panels = []
    cells: list[Cells] = []
    for kind in GROUPS:
        for row in rows:
            counts = sum(np.array(run.results.confusion[kind]) for run in row.runs)
            shares = normalised_rows(counts)
            tasks = range(1, len(shares) + 1)
            panels.append(
                heat_map(
                    shares.tolist(),
                    tasks,
                    tasks,
                    x_title="predicted task",
                    y_title="true task",
                    digits=1,
                    title=f"{name_of(row.options['method'])}: {name_of(kind)}",
                    side=200,
                )
            )
            cells.append((row.label, name_of(kind), _mean(np.diag(shares)), _mean(shares[:-1, -1])))
    columns = ("method", "classes", "to their own task", "earlier ones to the last task")
    words = "To which task the images of each task are assigned."
    return Drawn(Table(columns, cells), grid(panels, len(rows), words))


def _mean(shares: np.ndarray) -> str | None:
    present = shares[~np.isnan(shares)]
    return _percent(present.mean()) if present.size else None


def drift(study: Study, rows: list[Row]) -> Drawn:
    """One panel per method: test images, and stored, adapted and true centroids after the second of two tasks."""
    panels = []
    cells: list[Cells] = []
    for row in rows:
        results = row.first.results
        if results.map is None:
            continue
        last = results.tasks[-1]
        first, second = _percent(last.agnostic.all[0]), _percent(last.agnostic.all[-1])
        title = f"{name_of(row.options['method'])}: task 1 {first}, task 2 {second}"
        panels.append(map_chart(results.map, by_class=True, title=title, side=300))
        distance = last.drift.all if last.drift else None
        ends = (f"{distance.stored:.3f}", f"{distance.adapted:.3f}") if distance else (None, None)
        cells.append((row.label, _percent(last.stored.all[0]) if last.stored else None, first, second, *ends))
    tasks = ("task 1 by stored centroids", "task 1", "task 2")
    words = (
        "Test images (dots: task 1, crosses: task 2; one colour per class), centroids after the second task "
        "(arrows from stored to adapted) and true class means (rings)."
    )
    table = Table(("method", *tasks, "distance stored", "distance adapted"), cells)
    return Drawn(table, grid(panels, 3, words), [words])


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"
