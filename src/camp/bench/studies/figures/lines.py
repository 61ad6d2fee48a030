"""Figures of lines and bars, and plasticity against forgetting."""

import itertools
from collections.abc import Callable

from camp.bench.evaluation.class_groups import GROUPS, Group
from camp.bench.evaluation.feature_map import Kind
from camp.bench.evaluation.summary import mean
from camp.bench.report.charts import (
    Chart,
    ChartBar,
    Rule,
    ScatterPoint,
    Series,
    bar_chart,
    grid,
    line_chart,
    scatter_chart,
)
from camp.bench.report.numbers import decimal
from camp.bench.report.tables import Cell, Cells, Table
from camp.bench.report.theme import INK, KNOWN, NOVEL, Style
from camp.bench.results import StoredRun
from camp.bench.studies.figures.rows import Drawn, End, Row, name_of, values_of, wanted
from camp.bench.studies.figures.tables import varied
from camp.bench.studies.study import Study

ENDS: tuple[tuple[End, int], ...] = (("stored", 1), ("adapted", 0))
"""Which centroids, and the dash of their line."""
KINDS: tuple[tuple[Kind, str], ...] = (("known", KNOWN), ("novel", NOVEL))
TITLE = "distance to the true means"


def lines(study: Study, rows: list[Row]) -> Drawn:
    """Metrics over an option: one panel per metric if there are several series, or else all in one.

    Rows that do not have the option are level lines.
    """
    x, what, by = wanted(study, "x"), list(wanted(study, "what", ["all"])), study.look.get("series")
    level, varying = [row for row in rows if row[x] is None], [row for row in rows if row[x] is not None]
    numbers = all(isinstance(row[x], int | float) for row in varying)

    def series(label: str, number: int, own: list[Row], metric: str) -> Series:
        xs: list[float | str] = [float(row[x]) if numbers else name_of(row[x]) for row in own]
        return Series(label, Style.number(number), xs, [row.metric(metric) for row in own])

    def rules(metrics: list[str]) -> list[Rule]:
        found = [(row.label, row.metric(name)) for name in metrics for row in level]
        return [
            Rule(label, y=m.mean, dash=(i + 3) % 4) for i, (label, m) in enumerate(found) if m is not None
        ]

    if by is None:
        drawn = [series(name_of(name), i, varying, name) for i, name in enumerate(what)]
        panels = [_panel(drawn, name_of(x), rules(what))]
    else:
        panels = []
        for name in what:
            drawn = [
                series(name_of(value), i, [row for row in varying if row[by] == value], name)
                for i, value in enumerate(values_of(varying, by))
            ]
            panels.append(_panel(drawn, name_of(x), rules([name]), name_of(name)))
    return Drawn(varied(rows, what), grid(panels, 3, f"{', '.join(what)} over {name_of(x)}."))


def _panel(drawn: list[Series], x_title: str, rules: list[Rule], title: str | None = None) -> Chart:
    return line_chart(drawn, x_title=x_title, from_zero=False, rules=rules, legend=True, title=title)


def alpha(study: Study, rows: list[Row]) -> Drawn:
    """Accuracy, and distance to the true means before and after adaptation, for each distiller."""
    accuracy, distance = [], []
    for number, distiller in enumerate(values_of(rows, "distiller")):
        own = [row for row in rows if row["distiller"] == distiller]
        own.sort(key=lambda row: float(row["alpha"]))
        xs, style = [float(row["alpha"]) for row in own], Style.number(number)
        accuracy.append(Series(name_of(distiller), style, xs, [row.metric("all") for row in own]))
        for end, dash in ENDS:
            dashed = Style(style.colour, dash, style.shape)
            values = [row.distance(end) for row in own]
            distance.append(Series(f"{name_of(distiller)}, {end}", dashed, xs, values))
    x_title = "alpha, weight of distillation"
    left = _panel(accuracy, x_title, [], "accuracy, all classes")
    right = line_chart(distance, x_title=x_title, title=TITLE, fractions=False, legend=True)
    cells: list[Cells] = [
        (
            *(name_of(row[name]) for name in ("distiller", "alpha")),
            *(row.metric(name) for name in GROUPS),
            *(decimal(row.distance(end)) for end, _ in ENDS),
        )
        for row in rows
    ]
    columns = ("distiller", "alpha", *GROUPS, "distance stored", "distance adapted")
    words = "Accuracy and distance of centroids to the true means over alpha."
    return Drawn(Table(columns, cells, frozenset(GROUPS)), grid([left, right], 2, words, one_legend=False))


def curves(study: Study, rows: list[Row]) -> Drawn:
    """Mean accuracy over the tasks so far, after each task."""
    tasks = range(max(len(row.first.results.tasks) for row in rows))
    xs, panels = [t + 1 for t in tasks], []
    for kind in GROUPS:
        drawn = []
        for number, row in enumerate(rows):
            values = [row.over_seeds(_after(t, kind)) for t in tasks]
            drawn.append(Series(name_of(row.options["method"]), Style.number(number), xs, values))
        title = name_of(kind)
        panels.append(line_chart(drawn, x_title="after task", y_title="accuracy", legend=True, title=title))
    cells: list[Cells] = [(row.label, *(row.over_seeds(_after(t, "all")) for t in tasks)) for row in rows]
    columns = tuple(f"after task {t + 1}" for t in tasks)
    table = Table(("method", *columns), cells, frozenset(columns))
    return Drawn(table, grid(panels, 3, "Accuracy after each task."))


def _after(task: int, kind: Group) -> Callable[[StoredRun], float | None]:
    """The mean accuracy of a run over its tasks so far, after `task`."""

    def of(run: StoredRun) -> float | None:
        tasks = run.results.tasks
        return mean(tasks[task].agnostic[kind]) if task < len(tasks) else None

    return of


def number_of_categories(study: Study, rows: list[Row]) -> Drawn:
    """For each method and task: the score over the number of categories, the estimate, and the true number."""
    tasks = max(len(row.first.results.tasks) for row in rows)
    panels = []
    cells: list[Cells] = []
    for row in rows:
        method = name_of(row.options["method"])
        for t in range(tasks):
            drawn, rules = [], []
            for number, run in enumerate(row.runs):
                if t >= len(run.results.tasks):
                    continue
                task, style = run.results.tasks[t], Style.number(number)
                known = len(task.known)
                true, used = known + task.novel_true, known + task.novel_used
                points = task.curve or []
                seed = f"seed {run.results.seed}"
                drawn.append(Series(seed, style, [k for k, _ in points], [score for _, score in points]))
                if not number:
                    rules.append(Rule(f"true number: {true}", x=true, colour=INK))
                rules.append(Rule(f"{seed}: {used} estimated", x=used, colour=style.colour, dash=2))
                cells.append((method, t + 1, true, used))
            panels.append(
                line_chart(
                    drawn,
                    x_title="categories",
                    y_title="score on labelled images",
                    from_zero=False,
                    rules=rules,
                    title=f"{method}, task {t + 1}" if len(rows) > 1 else f"task {t + 1}",
                    size=(190, 150),
                )
            )
    words = "Score on labelled images over the number of categories; solid: true number, dotted: estimate."
    table = Table(("method", "task", "there are", "estimated"), cells)
    return Drawn(table, grid(panels, tasks, words), [words])


def plasticity_forgetting(study: Study, rows: list[Row]) -> Drawn:
    """One point per method: how much it forgets (lower is better) and how well it learns."""
    found = [(row, row.metric("forgetting"), row.metric("plasticity")) for row in rows]
    points = [
        ScatterPoint(name_of(row.options["method"]), lost, learned)
        for row, lost, learned in found
        if lost and learned
    ]
    figure = scatter_chart(
        points,
        description="Plasticity against forgetting, one point per method.",
        x_title="forgetting (lower is better)",
        y_title="plasticity",
    )
    return Drawn(varied(rows, ["plasticity", "forgetting", "all"]), figure)


def before_after(study: Study, rows: list[Row]) -> Drawn:
    """Bars: the distance of stored and adapted centroids, for each value of an option."""
    x = wanted(study, "x")
    bars = [
        ChartBar(f"{name_of(x)} {name_of(row[x])}", end, row.distance(end)) for row in rows for end, _ in ENDS
    ]
    figure = bar_chart(
        bars,
        {"stored": "var(--s3)", "adapted": "var(--s4)"},
        description=f"Distance of centroids to the true means, by {name_of(x)}.",
        x_title=TITLE,
        fractions=False,
        legend=True,
    )
    cells: list[Cells] = [(name_of(row[x]), *(decimal(row.distance(end)) for end, _ in ENDS)) for row in rows]
    return Drawn(Table((name_of(x), "stored", "adapted"), cells), figure)


def centroid_distance(study: Study, rows: list[Row]) -> Drawn:
    """Lines over tasks: known and novel classes, stored and adapted centroids; one panel per row."""
    panels = []
    cells: list[Cells] = []
    for row in rows:
        tasks = range(1, len(row.first.results.tasks))
        drawn = []
        for (kind, colour), (end, dash) in itertools.product(KINDS, ENDS):
            values = [row.distance(end, kind, t) for t in tasks]
            drawn.append(Series(f"{kind}, {end}", Style(colour, dash, dash), [t + 1 for t in tasks], values))
        panels.append(
            line_chart(
                drawn,
                x_title="after task",
                y_title=TITLE,
                fractions=False,
                legend=True,
                title=row.label,
            )
        )
        for t in tasks:
            line: list[Cell] = [row.label, t + 1]
            for kind, _ in KINDS:
                before, after = row.distance("stored", kind, t), row.distance("adapted", kind, t)
                less = 1 - after.mean / before.mean if before and after and before.mean else None
                line += [decimal(before), decimal(after), None if less is None else f"{100 * less:.1f} %"]
            cells.append(tuple(line))
    each = ("known stored", "known adapted", "less by", "novel stored", "novel adapted", "less by ")
    table = Table(("method", "after task", *each), cells)
    return Drawn(table, grid(panels, 3, "Distance of centroids to the true means by task."))
