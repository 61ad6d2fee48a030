"""Figures of distances between centroids and true means."""

from camp.bench.evaluation.feature_map import Kind
from camp.bench.report.tables import Cell, Table
from camp.bench.studies.figures import Drawn
from camp.bench.studies.figures.lines import plain
from camp.bench.studies.figures.rows import Row, wanted
from camp.bench.studies.figures.style import COLOURS, legend_below, name_of, series, sheet
from camp.bench.studies.study import Study

KINDS: tuple[Kind, ...] = ("known", "novel")
ENDS = {"stored": "as stored", "adapted": "adapted"}


def before_after(study: Study, rows: list[Row]) -> Drawn:
    """Bars: the distance as stored and adapted, for each value of an option."""
    x = wanted(study, "x")
    figure, [axes] = sheet()
    table: list[tuple[Cell, ...]] = []
    for side, (end, words) in zip((-0.2, 0.2), ENDS.items()):
        figures = [row.distance(end) for row in rows]
        heights = [f.mean if f else 0.0 for f in figures]
        errors = [f.std or 0.0 if f else 0.0 for f in figures]
        places = [i + side for i in range(len(rows))]
        hatch = "//" if end == "stored" else None
        colour = COLOURS[1] if end == "stored" else COLOURS[0]
        axes.bar(places, heights, 0.38, yerr=errors if any(errors) else None, label=words, color=colour, hatch=hatch,
                 edgecolor="white")  # fmt: skip
    for row in rows:
        table.append((name_of(row[x]), *(plain(row.distance(end)) for end in ENDS)))
    axes.set_xticks(range(len(rows)), [name_of(row[x]) for row in rows])
    axes.set_xlabel(name_of(x))
    axes.set_ylabel("distance to the true means")
    legend_below(axes)
    return Drawn(figure, Table((name_of(x), *ENDS.values()), table, frozenset()),
                 f"Distance of centroids to the true means, by {name_of(x)}.")  # fmt: skip


def centroid_distance(study: Study, rows: list[Row]) -> Drawn:
    """Lines over tasks: known and novel, as stored and adapted; a panel a row."""
    figure, panels = sheet(len(rows))
    table: list[tuple[Cell, ...]] = []
    for axes, row in zip(panels, rows):
        tasks = range(1, len(row.first.results.tasks))
        for number, kind in enumerate(KINDS):
            for end, dash in (("stored", "--"), ("adapted", "-")):
                found = [row.distance(end, kind, task) for task in tasks]
                series(axes, [t + 1 for t in tasks], found, f"{kind}, {ENDS[end]}", number, dash, scale=1.0)
        for task in tasks:
            ends = [row.distance(end, kind, task) for kind in KINDS for end in ENDS]
            less = [
                f"{100 * (1 - after.mean / before.mean):.1f} %" if before and after and before.mean else None
                for before, after in (ends[:2], ends[2:])
            ]
            told = [plain(end) for end in ends]
            table.append((row.label, task + 1, told[0], told[1], less[0], told[2], told[3], less[1]))
        axes.set_title(name_of(row.options["method"]))
        axes.set_xlabel("after task")
        axes.set_xticks([t + 1 for t in tasks])
        axes.set_ylabel("distance to the true means")
        axes.set_ylim(bottom=0)
        legend_below(axes)
    columns = (
        "method", "after task", "known as stored", "known adapted", "less by", "novel as stored", "novel adapted",
        "less by ",
    )  # fmt: skip
    return Drawn(
        figure, Table(columns, table, frozenset()), "Distance of centroids to the true means by task."
    )
