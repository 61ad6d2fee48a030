"""Tables of a study."""

from camp.bench.evaluation.class_groups import GROUPS
from camp.bench.report.groups import group_runs
from camp.bench.report.published import TABLE_1, TABLE_2, PaperTable, beside_paper, notes_of
from camp.bench.report.run_tables import METRICS
from camp.bench.report.tables import Cells, Table
from camp.bench.studies.figures.rows import Drawn, Row, name_of
from camp.bench.studies.study import Study
from camp.core.errors import CampError


def comparison_of_rows(study: Study, rows: list[Row]) -> Drawn:
    """One row for each row of the study, with what it varies in columns of its own."""
    return Drawn(varied(rows, list(METRICS)))


def varied(rows: list[Row], metrics: list[str]) -> Table:
    """The options that rows differ in, and `metrics`."""
    names = list(dict.fromkeys(name for row in rows for name in row.options))
    names = [name for name in names if len({str(row[name]) for row in rows}) > 1] or ["method"]
    seeds = max(len(row.runs) for row in rows) > 1
    lines: list[Cells] = []
    for row in rows:
        values = [None if row[name] is None else name_of(row[name]) for name in names]
        lines.append((*values, *([len(row.runs)] if seeds else []), *(row.metric(name) for name in metrics)))
    columns = (*(name.replace("_", " ") for name in names), *(["seeds"] if seeds else []), *metrics)
    return Table(columns, lines, frozenset(metrics))


def ablation(study: Study, rows: list[Row]) -> Drawn:
    """The paper's Table 4: which part is left out, and the accuracy without it."""
    lines: list[Cells] = []
    for row in rows:
        parts = (
            row.options.get("supervised", True),
            row.options.get("self_supervised", True),
            row.options.get("distiller", "mlp") != "none",
            row.options.get("adapter", "linear") != "none",
        )
        lines.append((*("yes" if part else "no" for part in parts), *(row.metric(name) for name in GROUPS)))
    return Drawn(Table(("L_SL", "L_SSL", "L_KD", "adaptation", *GROUPS), lines, frozenset(GROUPS)))


def table1(study: Study, rows: list[Row]) -> Drawn:
    """Ours beside the paper's Table 1."""
    return _published(TABLE_1, rows)


def table2(study: Study, rows: list[Row]) -> Drawn:
    """Ours beside the paper's Table 2."""
    return _published(TABLE_2, rows)


def _published(paper: PaperTable, rows: list[Row]) -> Drawn:
    groups = group_runs([run for row in rows for run in row.runs])
    if not groups:
        raise CampError("There is no finished run to make a table of.")
    return Drawn(beside_paper(paper, groups), notes=notes_of(paper, groups))
