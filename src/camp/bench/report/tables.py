"""Results as tables: for a terminal, a README, a spreadsheet or a paper."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from camp.bench.evaluation.accuracy import Share
from camp.bench.evaluation.class_groups import GROUPS, Group
from camp.bench.evaluation.summary import mean
from camp.bench.report.groups import RunGroup, Spread, group_runs, spread
from camp.bench.report.numbers import hundredths
from camp.bench.results import Protocol, Results, StoredRun, TaskResults

TableFormat = Literal["text", "md", "csv", "latex"]

Cell = str | int | Spread | None

FIGURES: dict[str, tuple[Literal["final", "forgetting", "plasticity", "incremental"], Group]] = {
    "all": ("final", "all"),
    "known": ("final", "known"),
    "novel": ("final", "novel"),
    "forgetting": ("forgetting", "all"),
    "plasticity": ("plasticity", "all"),
    "incremental": ("incremental", "all"),
}
"""The columns of figures of the comparison, in the paper's order: of the summary, for a group of classes."""

LATEX = {letter: "\\" + letter for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
"""Letters that LaTeX does not print as they are."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under column names; figures (`Spread`) are fractions and are shown in per cent."""

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    figures: frozenset[str]
    """The columns that hold figures."""
    best: frozenset[tuple[int, int]] = frozenset()
    """(row, column) of cells in bold, where a format has it."""

    def without(self, column: str) -> "Table":
        """The same without a column."""
        at = self.columns.index(column)
        rows = [row[:at] + row[at + 1 :] for row in self.rows]
        best = frozenset((i, j - (j > at)) for i, j in self.best if j != at)
        return Table(self.columns[:at] + self.columns[at + 1 :], rows, self.figures - {column}, best)

    def with_best(self) -> "Table":
        """The same with the greatest figure of each column in bold, or the least of forgetting."""
        best = set()
        for j, column in enumerate(self.columns):
            if column not in self.figures:
                continue
            sign = -1 if column == "forgetting" else 1
            there = [
                (sign * cell.mean, i) for i, row in enumerate(self.rows) if isinstance(cell := row[j], Spread)
            ]
            best |= {(i, j) for value, i in there if len(there) > 1 and value == max(there)[0]}
        return Table(self.columns, self.rows, self.figures, frozenset(best))


def as_table(runs: list[StoredRun], format: TableFormat = "text", protocol: Protocol = "agnostic") -> str:
    """The comparison of runs, one row for each setting, mean ± standard deviation over its seeds."""
    return render(comparison(group_runs(runs), protocol), format)


def as_task_table(
    runs: list[StoredRun], format: TableFormat = "text", protocol: Protocol = "agnostic"
) -> str:
    """For each setting and task: accuracy right after it was learned, and after the last task."""
    return render(per_task(group_runs(runs), protocol), format)


def as_number_table(
    runs: list[StoredRun], format: TableFormat = "text", protocol: Protocol = "agnostic"
) -> str:
    """For each setting: novel categories that each task has, and how many were looked for; `protocol` changes nothing."""
    return render(numbers_of_categories(group_runs(runs)), format)


TABLES = {"comparison": as_table, "tasks": as_task_table, "numbers": as_number_table}
"""What `camp report --table` draws."""


def figure(group: RunGroup, column: str, protocol: Protocol = "agnostic") -> Spread | None:
    """A column of the comparison for a group of runs; None where none of them has the protocol."""
    return spread([_share(run.results, column, protocol) for run in group.runs])


def _share(results: Results, column: str, protocol: Protocol) -> Share:
    summary, (name, classes) = results.summary.get(protocol), FIGURES[column]
    return getattr(summary, name)[classes] if summary else None


def has_novel(groups: Sequence[RunGroup]) -> bool:
    """Whether any class came without labels; where none did, all classes are the known ones."""
    return any(task.novel for group in groups for task in group.first.results.tasks)


def _differ(groups: Sequence[RunGroup], fact: Literal["dataset", "tasks_planned"]) -> bool:
    return len({getattr(group.first.results, fact) for group in groups}) > 1


def comparison(groups: Sequence[RunGroup], protocol: Protocol = "agnostic") -> Table:
    """One row for each group of runs; a column only where it tells something."""
    datasets, tasks = _differ(groups, "dataset"), _differ(groups, "tasks_planned")
    seeds = any(len(group.runs) > 1 for group in groups)
    figures = [name for name in FIGURES if has_novel(groups) or name not in ("known", "novel")]
    columns = [
        *(["dataset"] if datasets else []),
        "method",
        "exemplars",
        *(["tasks"] if tasks else []),
        *(["seeds"] if seeds else []),
        *figures,
    ]
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        results = group.first.results
        row: list[Cell] = [results.dataset] if datasets else []
        row += [group.label, results.exemplars]
        row += [results.tasks_planned] if tasks else []
        row += [len(group.runs)] if seeds else []
        row += [figure(group, column, protocol) for column in figures]
        rows.append(tuple(row))
    return Table(tuple(columns), rows, frozenset(figures))


def per_task(groups: Sequence[RunGroup], protocol: Protocol = "agnostic") -> Table:
    """One row for each task of each group; known and novel classes apart where there are novel ones."""
    novel, tasks = has_novel(groups), _differ(groups, "tasks_planned")
    kinds: tuple[Group, ...] = GROUPS if novel else ("all",)
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        for i, task in enumerate(group.first.results.tasks):
            row: list[Cell] = [group.label, *([group.first.results.tasks_planned] if tasks else [])]
            row += [i + 1, len(task.known), *([len(task.novel)] if novel else [])]
            then = [_row(run.results.tasks[i], "all", protocol) for run in group.runs]
            row += [spread([line[i] for line in then]), spread([mean(line) for line in then])]
            for classes in kinds:
                last = [_row(run.results.tasks[-1], classes, protocol) for run in group.runs]
                row.append(spread([line[i] for line in last]))
            rows.append(tuple(row))
    figures = ("learned", "mean so far", *(kinds if novel else ("in the end",)))
    classes_of = ("known classes", "novel classes") if novel else ("classes",)
    columns = ("method", *(["tasks"] if tasks else []), "task", *classes_of, *figures)
    return Table(columns, rows, frozenset(figures))


def numbers_of_categories(groups: Sequence[RunGroup]) -> Table:
    """One row for each group: the numbers of its seeds in each task, what they are off by, and what was thought they are."""
    most = max(len(group.first.results.tasks) for group in groups)
    datasets = _differ(groups, "dataset")
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        results = group.first.results
        tasks = [run.results.tasks for run in group.runs]
        row: list[Cell] = [*([results.dataset] if datasets else []), group.label]
        row.append(_listed(sorted({task.novel_true for task in tasks[0]})))
        for i in range(most):
            row.append(_listed([own[i].novel_used for own in tasks]) if i < len(tasks[0]) else None)
        off = [abs(task.novel_used - task.novel_true) for own in tasks for task in own]
        thought = [task.novel_error for own in tasks for task in own]
        row.append(f"{sum(off) / len(off):.1f}")
        row.append(_plain_mean([error for error in thought if error is not None]))
        rows.append(tuple(row))
    columns = [*(["dataset"] if datasets else []), "method", "there are"]
    columns += [*(f"task {i + 1}" for i in range(most)), "off", "own error"]
    return Table(tuple(columns), rows, frozenset())


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _plain_mean(values: Sequence[float]) -> str | None:
    return f"{sum(values) / len(values):.1f}" if values else None


def _row(task: TaskResults, classes: Group, protocol: Protocol) -> list[Share]:
    """A[t] of a protocol; all None where the run does not have it."""
    row = task.accuracy(protocol)
    return row[classes] if row else [None] * len(task.agnostic.all)


def render(table: Table, format: TableFormat) -> str:
    """The table as text; it ends in a newline."""
    return {"text": _text, "md": _markdown, "csv": _csv, "latex": _latex}[format](table)


def shown(cell: Cell) -> str:
    """A cell for reading: per cent with one decimal, a dash where there is nothing.

    >>> shown(Spread(0.5213, 0.004)), shown(Spread(0.5, None)), shown(None), shown(20)
    ('52.1 ± 0.4', '50.0', '–', '20')
    """
    if cell is None:
        return "–"
    if isinstance(cell, Spread):
        return hundredths(cell.mean) + ("" if cell.std is None else f" ± {hundredths(cell.std)}")
    return str(cell)


def _text(table: Table) -> str:
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        left = column in ("dataset", "method")
        drawn.add_column(column, justify="left" if left else "right", no_wrap=True)
    for row in table.rows:
        drawn.add_row(*(shown(cell).replace("[", r"\[") for cell in row))
    file = io.StringIO()
    # Wide enough for every label: where the lines break is the terminal's business.
    Console(file=file, width=1000, no_color=True, highlight=False).print(drawn)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    return "\n".join(line.removeprefix(" ") for line in lines if line) + "\n"


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"

    rule = ["---" if column in ("dataset", "method") else "---:" for column in table.columns]
    rows = [
        [f"**{shown(cell)}**" if (i, j) in table.best else shown(cell) for j, cell in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    return line(table.columns) + line(rule) + "".join(line(row) for row in rows)


def _csv(table: Table) -> str:
    """Figures in per cent, four decimals, each followed by its standard deviation (empty for one seed)."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    header = [
        name.replace(" ", "_")
        for column in table.columns
        for name in ([column, f"{column}_std"] if column in table.figures else [column])
    ]
    writer.writerow(header)
    for row in table.rows:
        cells: list[str | int] = []
        for column, cell in zip(table.columns, row):
            if column not in table.figures:
                cells.append(cell if isinstance(cell, str | int) else "")
            else:
                figure = cell if isinstance(cell, Spread) else Spread(float("nan"), None)
                cells += ["" if x is None or x != x else hundredths(x, 4) for x in (figure.mean, figure.std)]
        writer.writerow(cells)
    return file.getvalue()


def _latex(table: Table) -> str:
    """A `tabular` in the style of booktabs."""

    def cell(value: Cell, bold: bool = False) -> str:
        if isinstance(value, Spread):
            inner = shown(value).replace(" ± ", r" \pm ")
            return rf"$\mathbf{{{inner}}}$" if bold else f"${inner}$"
        return "--" if value is None else "".join(LATEX.get(letter, letter) for letter in str(value))

    align = "".join("l" if column in ("dataset", "method") else "r" for column in table.columns)
    lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", " & ".join(map(cell, table.columns)) + r" \\"]
    rows = [[cell(c, (i, j) in table.best) for j, c in enumerate(row)] for i, row in enumerate(table.rows)]
    lines += [r"\midrule", *(" & ".join(row) + r" \\" for row in rows)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"
