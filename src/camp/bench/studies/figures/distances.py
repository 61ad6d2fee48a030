"""Figures of distances between centroids and true means."""

from camp.bench.evaluation.feature_map import Kind
from camp.bench.report.charts import Bar, Series, bar_chart, grid, line_chart
from camp.bench.report.numbers import decimal
from camp.bench.report.tables import Cell, Table
from camp.bench.report.theme import KNOWN, NOVEL, Style
from camp.bench.studies.figures.drawn import Drawn, name_of
from camp.bench.studies.figures.lines import ENDS
from camp.bench.studies.figures.rows import Row, wanted
from camp.bench.studies.study import Study

KINDS: tuple[tuple[Kind, str], ...] = (("known", KNOWN), ("novel", NOVEL))
TITLE = "distance to the true means"


def before_after(study: Study, rows: list[Row]) -> Drawn:
    """Bars: the distance of stored and adapted centroids, for each value of an option."""
    x = wanted(study, "x")
    bars = [Bar(f"{name_of(x)} {name_of(row[x])}", end, row.distance(end)) for row in rows for end, _ in ENDS]
    figure = bar_chart(
        bars,
        {"stored": "var(--s3)", "adapted": "var(--s4)"},
        description=f"Distance of centroids to the true means, by {name_of(x)}.",
        x_title=TITLE,
        fractions=False,
        legend=True,
    )
    cells: list[tuple[Cell, ...]] = [
        (name_of(row[x]), *(decimal(row.distance(end)) for end, _ in ENDS)) for row in rows
    ]
    return Drawn(Table((name_of(x), "stored", "adapted"), cells, frozenset()), figure)


def centroid_distance(study: Study, rows: list[Row]) -> Drawn:
    """Lines over tasks: known and novel classes, stored and adapted centroids; one panel per row."""
    panels = []
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        tasks = range(1, len(row.first.results.tasks))
        drawn = [
            Series(
                f"{kind}, {end}",
                Style(colour, dash, dash),
                [t + 1 for t in tasks],
                [row.distance(end, kind, t) for t in tasks],
            )
            for kind, colour in KINDS
            for end, dash in ENDS
        ]
        panels.append(
            line_chart(
                drawn,
                description="",
                x_title="after task",
                y_title=TITLE,
                fractions=False,
                legend=True,
                title=name_of(row.options["method"]),
            )
        )
        for t in tasks:
            line: list[Cell] = [row.label, t + 1]
            for kind, _ in KINDS:
                before, after = row.distance("stored", kind, t), row.distance("adapted", kind, t)
                less = 1 - after.mean / before.mean if before and after and before.mean else None
                line += [decimal(before), decimal(after), None if less is None else f"{100 * less:.1f} %"]
            cells.append(tuple(line))
    columns = (
        "method",
        "after task",
        "known stored",
        "known adapted",
        "less by",
        "novel stored",
        "novel adapted",
    )
    table = Table((*columns, "less by "), cells, frozenset())
    return Drawn(table, grid(panels, 3, "Distance of centroids to the true means by task."))
