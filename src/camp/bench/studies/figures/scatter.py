"""Plasticity against forgetting."""

from camp.bench.studies.figures import Drawn
from camp.bench.studies.figures.rows import Row
from camp.bench.studies.figures.style import mark, name_of, sheet
from camp.bench.studies.figures.tables import varied
from camp.bench.studies.study import Study


def plasticity_forgetting(study: Study, rows: list[Row]) -> Drawn:
    """A point a method: what it forgets (less is better) and how well it learns."""
    figure, [axes] = sheet(size=(5.0, 3.8))
    for number, row in enumerate(rows):
        lost, learned = row.figure("forgetting"), row.figure("plasticity")
        if lost is None or learned is None:
            continue
        x, y = 100 * lost.mean, 100 * learned.mean
        colour, marker = mark(number)
        axes.errorbar(x, y, xerr=100 * (lost.std or 0), yerr=100 * (learned.std or 0), fmt=marker, color=colour,
                      markersize=6, linewidth=1, label=name_of(row.options["method"]))  # fmt: skip
    axes.set_xlabel("forgetting, points (less is better)")
    axes.set_ylabel("plasticity, %")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    table = varied(rows, ["plasticity", "forgetting", "all"])
    return Drawn(figure, table, "Plasticity against forgetting, a point a method.")
