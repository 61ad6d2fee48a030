"""Figures of lines."""

from collections.abc import Callable

from camp.bench.evaluation.class_groups import GROUPS, Group
from camp.bench.evaluation.summary import mean
from camp.bench.report.groups import Spread
from camp.bench.report.tables import Cell, Table
from camp.bench.results import StoredRun
from camp.bench.studies.figures import Drawn
from camp.bench.studies.figures.rows import Row, values_of, wanted
from camp.bench.studies.figures.style import DASHES, legend_below, mark, name_of, series, sheet
from camp.bench.studies.figures.tables import varied
from camp.bench.studies.study import Study


def lines(study: Study, rows: list[Row]) -> Drawn:
    """Figures over an option: a panel a figure if there are several series, or else all in one.

    Rows that do not have the option are level lines.
    """
    x, what = wanted(study, "x"), list(wanted(study, "what", ["all"]))
    by = study.look.get("series")
    level, varying = [row for row in rows if row[x] is None], [row for row in rows if row[x] is not None]
    values = values_of(varying, x)
    numbers = all(isinstance(value, int | float) for value in values)
    place = {value: float(value) if numbers else float(i) for i, value in enumerate(values)}
    figure, panels = sheet(1 if by is None else len(what))
    for number, column in enumerate(what):
        axes = panels[0] if by is None else panels[number]
        for at, value in enumerate([None] if by is None else values_of(varying, by)):
            own = [row for row in varying if by is None or row[by] == value]
            line = number if by is None else at
            label = name_of(column) if by is None else name_of(value)
            places, figures = [place[row[x]] for row in own], [row.figure(column) for row in own]
            series(axes, places, figures, label, line, DASHES[line % 4])
        for at, row in enumerate(level):
            if (found := row.figure(column)) is not None:
                axes.axhline(
                    100 * found.mean, color="#555555", linestyle=DASHES[(at + 3) % 4], label=row.label
                )
        if by is not None:
            axes.set_title(name_of(column))
    for axes in panels:
        axes.set_xlabel(name_of(x))
        axes.set_ylabel("%")
        if not numbers:
            axes.set_xticks(list(place.values()), [name_of(value) for value in values])
        legend_below(axes)
    return Drawn(figure, varied(rows, what), f"{', '.join(what)} over {name_of(x)}.")


def alpha(study: Study, rows: list[Row]) -> Drawn:
    """Accuracy, and distance to the true means before and after adaptation, for each distiller."""
    figure, [left, right] = sheet(2)
    distillers = values_of(rows, "distiller")
    for number, distiller in enumerate(distillers):
        own = sorted(
            (row for row in rows if row["distiller"] == distiller), key=lambda row: float(row["alpha"])
        )
        xs = [float(row["alpha"]) for row in own]
        series(left, xs, [row.figure("all") for row in own], name_of(distiller), number)
        for end, dash in (("stored", "--"), ("adapted", "-")):
            label = f"{name_of(distiller)}, {'as stored' if end == 'stored' else 'adapted'}"
            series(right, xs, [row.distance(end) for row in own], label, number, dash, scale=1.0)
    left.set_ylabel("accuracy, all classes, %")
    right.set_ylabel("distance to the true means")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("alpha, weight of distillation")
        legend_below(axes)
    table = _with_distances(rows, ("distiller", "alpha"))
    return Drawn(figure, table, "Accuracy and distance of centroids to the true means over alpha.")


def _with_distances(rows: list[Row], names: tuple[str, ...]) -> Table:
    """Accuracy, and distances, which are no shares and are written as they are."""
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        told = [name_of(row[name]) for name in names]
        ends = [plain(row.distance(end)) for end in ("stored", "adapted")]
        cells.append((*told, *(row.figure(column) for column in ("all", "known", "novel")), *ends))
    columns = (*names, "all", "known", "novel", "distance stored", "distance adapted")
    return Table(columns, cells, frozenset(("all", "known", "novel")))


def plain(figure: Spread | None, digits: int = 3) -> str | None:
    """A figure that is no share."""
    if figure is None:
        return None
    return f"{figure.mean:.{digits}f}" + (f" ± {figure.std:.{digits}f}" if figure.std is not None else "")


def curves(study: Study, rows: list[Row]) -> Drawn:
    """Mean accuracy over the tasks so far, after each task."""
    figure, panels = sheet(3)
    tasks = max(len(row.first.results.tasks) for row in rows)
    table: list[tuple[Cell, ...]] = []
    for number, row in enumerate(rows):
        for axes, kind in zip(panels, GROUPS):
            after = [row.over_seeds(_after(t, kind)) for t in range(tasks)]
            places = list(range(1, tasks + 1))
            series(axes, places, after, name_of(row.options["method"]), number, DASHES[number // 8 % 4])
            if kind == "all":
                table.append((row.label, *after))
    for axes, kind in zip(panels, GROUPS):
        axes.set_title(name_of(kind))
        axes.set_xlabel("after task")
        axes.set_xticks(range(1, tasks + 1))
        axes.set_ylabel("accuracy, %")
        axes.set_ylim(bottom=0)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=10)
    columns = tuple(f"after task {t + 1}" for t in range(tasks))
    return Drawn(figure, Table(("method", *columns), table, frozenset(columns)), "Accuracy after each task.")


def _after(task: int, kind: Group) -> Callable[[StoredRun], float | None]:
    """The mean accuracy of a run over its tasks so far, after `task`."""

    def of(run: StoredRun) -> float | None:
        tasks = run.results.tasks
        return mean(tasks[task].agnostic[kind]) if task < len(tasks) else None

    return of


def number_of_categories(study: Study, rows: list[Row]) -> Drawn:
    """For each method and task: the score over the number of categories, its choice, and the truth."""
    tasks = max(len(row.first.results.tasks) for row in rows)
    figure, panels = sheet(tasks, len(rows), size=(2.6, 2.4))
    table: list[tuple[Cell, ...]] = []
    for r, row in enumerate(rows):
        method = name_of(row.options["method"])
        for t in range(tasks):
            axes = panels[r * tasks + t]
            for number, run in enumerate(row.runs):
                if t >= len(run.results.tasks):
                    continue
                task = run.results.tasks[t]
                points = task.curve or []
                xs, ys = [point[0] for point in points], [100 * point[1] for point in points]
                colour, marker = mark(number)
                axes.plot(xs, ys, color=colour, marker=marker, markersize=3, linewidth=1.2)
                known = len(task.known)
                used = known + task.novel_used
                axes.axvline(used, color=colour, linestyle=":", linewidth=1.2, label="the estimate")
                if not number:
                    axes.axvline(known + task.novel_true, color="black", linewidth=1, label="the truth")
                table.append((method, t + 1, known + task.novel_true, known + task.novel_used))
            axes.set_title(f"{method}, task {t + 1}" if len(rows) > 1 else f"task {t + 1}")
            axes.set_xlabel("categories")
    panels[0].set_ylabel("score on labelled pictures, %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[:2], labels[:2], loc="outside lower center", ncols=2)
    columns = ("method", "task", "there are", "estimated")
    words = (
        "Score on labelled pictures over the number of categories; solid: the truth, dotted: the estimate."
    )
    return Drawn(figure, Table(columns, table, frozenset()), words, [words])
