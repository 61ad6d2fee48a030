"""Tables for a terminal, a README, a spreadsheet or a paper."""

import io
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from camp.bench.report.numbers import Spread, in_percent
from camp.core.csv_output import csv_text

TableFormat = Literal["text", "md", "csv", "latex"]

Cell = str | int | Spread | None
Cells = tuple[Cell, ...]

LEFT = ("dataset", "method")
"""Columns aligned to the left."""
LOWER_IS_BETTER = ("forgetting",)

LATEX = {letter: "\\" + letter for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
"""Characters with a meaning in LaTeX."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under column names. Metrics (`Spread`) are fractions and are shown in percent."""

    columns: tuple[str, ...]
    rows: list[Cells]
    metrics: frozenset[str] = frozenset()
    """The columns that hold metrics."""
    blocks: Sequence[Hashable] = ()
    """For each row, the block of rows that it is compared with; by default all rows are one block."""

    @property
    def best(self) -> frozenset[tuple[int, int]]:
        """(row, column) of the best metrics, which are printed in bold.

        Best is the greatest value of its column within a block of at least two rows, the least for forgetting.
        Values that are printed alike are equally good.
        """
        best = set()
        for j, column in enumerate(self.columns):
            if column not in self.metrics:
                continue
            sign = -1 if column in LOWER_IS_BETTER else 1
            blocks: dict[Hashable, dict[int, float]] = {}
            for i, row in enumerate(self.rows):
                if isinstance(cell := row[j], Spread):
                    block = self.blocks[i] if self.blocks else None
                    blocks.setdefault(block, {})[i] = sign * float(in_percent(cell.mean))
            for values in blocks.values():
                if len(values) > 1:
                    best |= {(i, j) for i, value in values.items() if value == max(values.values())}
        return frozenset(best)


def render(table: Table, format: TableFormat) -> str:
    """The table as text; it ends in a newline."""
    return {"text": _text, "md": _markdown, "csv": _csv, "latex": _latex}[format](table)


def shown(cell: Cell) -> str:
    """A cell for reading: percent with one decimal, a dash where there is nothing.

    >>> shown(Spread(0.5213, 0.004)), shown(Spread(0.5, None)), shown(None), shown(20)
    ('52.1 ± 0.4', '50.0', '–', '20')
    """
    if cell is None:
        return "–"
    if isinstance(cell, Spread):
        return in_percent(cell.mean) + ("" if cell.std is None else f" ± {in_percent(cell.std)}")
    return str(cell)


def _text(table: Table) -> str:
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        drawn.add_column(column, justify="left" if column in LEFT else "right", no_wrap=True)
    for row in table.rows:
        drawn.add_row(*(shown(cell).replace("[", r"\[") for cell in row))
    file = io.StringIO()
    # Wide enough for every label: the terminal breaks the lines.
    Console(file=file, width=1000, no_color=True, highlight=False).print(drawn)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    return "\n".join(line.removeprefix(" ") for line in lines if line) + "\n"


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"

    best = table.best
    rule = ["---" if column in LEFT else "---:" for column in table.columns]
    rows = [
        [f"**{shown(cell)}**" if (i, j) in best else shown(cell) for j, cell in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    return line(table.columns) + line(rule) + "".join(line(row) for row in rows)


def _csv(table: Table) -> str:
    """Metrics in percent, four decimals, each followed by its standard deviation (empty for one seed)."""
    header: list[str | int] = [
        name.replace(" ", "_")
        for column in table.columns
        for name in ([column, f"{column}_std"] if column in table.metrics else [column])
    ]
    lines: list[list[str | int]] = [header]
    for row in table.rows:
        cells: list[str | int] = []
        for column, cell in zip(table.columns, row):
            if column not in table.metrics:
                cells.append(cell if isinstance(cell, str | int) else "")
            elif isinstance(cell, Spread):
                cells.append(in_percent(cell.mean, 4))
                cells.append("" if cell.std is None else in_percent(cell.std, 4))
            else:
                cells += ["", ""]
        lines.append(cells)
    return csv_text(lines)


def _latex(table: Table) -> str:
    """A `tabular` in the style of booktabs."""

    def cell(value: Cell, bold: bool = False) -> str:
        if isinstance(value, Spread):
            inner = shown(value).replace(" ± ", r" \pm ")
            return rf"$\mathbf{{{inner}}}$" if bold else f"${inner}$"
        return "--" if value is None else "".join(LATEX.get(letter, letter) for letter in str(value))

    best = table.best
    align = "".join("l" if column in LEFT else "r" for column in table.columns)
    lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", " & ".join(map(cell, table.columns)) + r" \\"]
    rows = [[cell(c, (i, j) in best) for j, c in enumerate(row)] for i, row in enumerate(table.rows)]
    lines += [r"\midrule", *(" & ".join(row) + r" \\" for row in rows)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"
