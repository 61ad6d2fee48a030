"""Heat maps."""

import numpy as np

from camp.bench.evaluation.class_groups import GROUPS
from camp.bench.evaluation.confusion import normalised_rows
from camp.bench.report.tables import Cell, Table
from camp.bench.studies.figures import Drawn
from camp.bench.studies.figures.rows import Row, values_of, wanted
from camp.bench.studies.figures.style import heat, name_of, sheet
from camp.bench.studies.figures.tables import varied
from camp.bench.studies.study import Study


def heat_maps(study: Study, rows: list[Row]) -> Drawn:
    """A panel a figure: its mean over two options."""
    what = list(wanted(study, "what", ["all"]))
    figure, panels = sheet(len(what), size=(3.6, 3.0))
    for axes, column in zip(panels, what):
        _map(study, rows, column, axes, name_of(column))
    return Drawn(figure, varied(rows, what), f"{', '.join(what)} for every pair.")


def scenarios(study: Study, rows: list[Row]) -> Drawn:
    """Panels of figures x values of an option: heat maps over two other options, alike in colour within a figure."""
    what, by = list(wanted(study, "what")), wanted(study, "panels")
    values = values_of(rows, by)
    figure, panels = sheet(len(values), len(what), size=(3.4, 2.8))
    for i, column in enumerate(what):
        means = [100 * f.mean for row in rows if (f := row.figure(column))]
        limits = (min(means, default=0.0), max(means, default=1.0))
        for j, value in enumerate(values):
            own = [row for row in rows if row[by] == value]
            title = f"{name_of(value)}: {name_of(column)}"
            _map(study, own, column, panels[i * len(values) + j], title, limits)
    return Drawn(figure, varied(rows, what), f"{', '.join(what)} over the scenarios.")


def _map(study: Study, rows: list[Row], column: str, axes, title: str,  # type: ignore[no-untyped-def]
         limits: tuple[float, float] | None = None) -> None:  # fmt: skip
    x, y = wanted(study, "x"), wanted(study, "y")
    xs, ys = values_of(rows, x), values_of(rows, y)
    cells: list[list[float | None]] = [[None] * len(xs) for _ in ys]
    for row in rows:
        found = row.figure(column)
        cells[ys.index(row[y])][xs.index(row[x])] = found.mean if found else None
    heat(axes, cells, xs, ys, title, limits)
    axes.set_xlabel(name_of(x))
    axes.set_ylabel(name_of(y))


def task_confusion(study: Study, rows: list[Row]) -> Drawn:
    """For each method: the share of each task's pictures that goes to the categories of every task."""
    figure, panels = sheet(len(rows), 3, size=(3.2, 2.8))
    table: list[tuple[Cell, ...]] = []
    for i, kind in enumerate(GROUPS):
        for j, row in enumerate(rows):
            counts = sum(np.array(run.results.confusion[kind]) for run in row.runs)
            shares = normalised_rows(np.asarray(counts))
            tasks = list(range(1, len(shares) + 1))
            cells = [[None if value != value else float(value) for value in line] for line in shares]
            axes = panels[i * len(rows) + j]
            heat(
                axes, cells, tasks, tasks, f"{name_of(row.options['method'])}: {name_of(kind)}", (0.0, 100.0)
            )
            axes.set_xlabel("sent to task")
            axes.set_ylabel("of task")
            to_last = [line[-1] for line in cells[:-1]]
            right = [line[t] for t, line in enumerate(cells)]
            table.append((row.label, name_of(kind), _mean(right), _mean(to_last)))
    columns = ("method", "classes", "to their own task", "earlier ones to the last task")
    return Drawn(figure, Table(columns, table, frozenset()), "To which task pictures of each task are sent.")


def _mean(shares: list[float | None]) -> str | None:
    there = [share for share in shares if share is not None]
    return f"{100 * sum(there) / len(there):.1f} %" if there else None
