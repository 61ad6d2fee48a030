"""Tables of a study."""

from camp.bench.report import table1 as paper1
from camp.bench.report import table2 as paper2
from camp.bench.report.groups import RunGroup, group_runs
from camp.bench.report.tables import FIGURES, Cell, Table
from camp.bench.studies.figures import Drawn
from camp.bench.studies.figures.rows import Row
from camp.bench.studies.figures.style import name_of
from camp.bench.studies.study import Study
from camp.core.errors import CampError

ON, OFF = "yes", "no"


def comparison_of_rows(study: Study, rows: list[Row]) -> Drawn:
    """One row a row of the study, with what it varies in columns of its own."""
    return Drawn(None, varied(rows, list(FIGURES)))


def varied(rows: list[Row], figures: list[str]) -> Table:
    """The options that rows differ in, and `figures`; the best of each in bold."""
    names = list(dict.fromkeys(name for row in rows for name in row.options))
    names = [name for name in names if len({str(row[name]) for row in rows}) > 1] or ["method"]
    seeds = [len(row.runs) for row in rows]
    lines: list[tuple[Cell, ...]] = []
    for row in rows:
        told = [None if row[name] is None else name_of(row[name]) for name in names]
        lines.append((*told, len(row.runs), *(row.figure(column) for column in figures)))
    columns = (*(name.replace("_", " ") for name in names), "seeds", *figures)
    table = Table(columns, lines, frozenset(figures))
    return table if max(seeds) > 1 else table.without("seeds")


def ablation(study: Study, rows: list[Row]) -> Drawn:
    """The paper's Table 4: which part is left out, and what is left of the accuracy."""
    parts = ("L_SL", "L_SSL", "L_KD", "adaptation")
    lines: list[tuple[Cell, ...]] = []
    for row in rows:
        there = (
            row.options.get("supervised", True),
            row.options.get("self_supervised", True),
            row.options.get("distiller", "mlp") != "none",
            row.options.get("adapter", "linear") != "none",
        )
        lines.append(
            (*(ON if part else OFF for part in there), *(row.figure(c) for c in ("all", "known", "novel")))
        )
    return Drawn(None, Table((*parts, "all", "known", "novel"), lines, frozenset(("all", "known", "novel"))))


def table1(study: Study, rows: list[Row]) -> Drawn:
    """Ours beside the paper's Table 1."""
    groups = _groups(rows)
    return Drawn(None, paper1.beside_paper(groups), notes=paper1.other_orders(groups))


def table2(study: Study, rows: list[Row]) -> Drawn:
    """Ours beside the paper's Table 2."""
    groups = _groups(rows)
    return Drawn(None, paper2.beside_paper(groups), notes=[paper2.NOTE, *paper2.other_orders(groups)])


def _groups(rows: list[Row]) -> list[RunGroup]:
    groups = group_runs([run for row in rows for run in row.runs])
    if not groups:
        raise CampError("There is no finished run to make a table of.")
    return groups
