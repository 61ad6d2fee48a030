"""Our runs beside the paper's Table 1 (category discovery) and Table 2 (class-incremental learning)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from camp.bench.evaluation.class_groups import Protocol
from camp.bench.report.groups import RunGroup, group_runs
from camp.bench.report.numbers import Spread
from camp.bench.report.run_tables import Metric, metric
from camp.bench.report.tables import Cell, Cells, Table, TableFormat, render
from camp.bench.results import StoredRun
from camp.core.files import read_json

# paper_tables.json has the numbers as printed, misprints included. In Table 1 a mean over all classes must lie
# between those of the known and of the novel ones; simgcd on stanford_cars and domainnet and gcd-fd, metagcd and
# igcd (5 exemplars) on domainnet do not. gcd-er with 5 exemplars has the same numbers for cub200 and fgvc_aircraft.
# The text says that FeTrIL is second on cifar100; in Table 2 that is PASS.

JOINT = "joint"
"""In the paper a single training on the whole data set: compared with our accuracy after the last task."""

PUBLISHED_PROTOCOLS: dict[str, Protocol] = {"simgcd": "task_hungarian"}
"""Protocols of methods whose numbers in the paper were not made with that of the other methods."""
OWN_PROTOCOL = "authors' protocol"
OWN_PROTOCOL_NOTE = (
    f"simgcd ({OWN_PROTOCOL}) is the same run of simgcd, with categories matched to classes anew on the test images "
    "of each task, as in the code behind the paper's number. In all other rows a category is matched once, when it is "
    "discovered, so that an image assigned to a category of another task counts as wrong."
)


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper."""

    columns: list[tuple[str, int | None]]
    """Data set and number of tasks (None: any) of each block of columns, in the paper's order."""
    metrics: tuple[Metric, ...]
    """The columns of a block."""
    rows: dict[tuple[str, int], list[list[float | None]]]
    """By method and exemplars per class, in the paper's order: for each block its metrics, in percent."""
    note: str = ""
    """What the columns hold."""

    def value(
        self, method: str, exemplars: int, column: tuple[str, int | None], name: Metric
    ) -> float | None:
        """A number of the paper, in percent as printed; None where it has none.

        >>> TABLE_1.value("camp", 0, ("cub200", None), "all")
        58.9
        >>> TABLE_2.value("il2a", 0, ("cifar100", 5), "incremental")
        """
        row = self.rows.get((method, exemplars))
        if row is None or column not in self.columns:
            return None
        return row[self.columns.index(column)][self.metrics.index(name)]

    def column_of(self, group: RunGroup) -> tuple[str, int | None]:
        """The block of columns of a group of runs."""
        results = group.first.results
        by_tasks = any(tasks is not None for _, tasks in self.columns)
        return results.dataset, results.tasks_planned if by_tasks else None

    def ours(self, group: RunGroup, name: Metric, protocol: Protocol) -> Spread | None:
        """Our value of what the table holds."""
        joint = name == "incremental" and group.first.results.method == JOINT
        return metric(group, "all" if joint else name, protocol)


def _read(name: str, note: str = "") -> PaperTable:
    value = read_json(Path(__file__).with_name("paper_tables.json"))[name]
    return PaperTable(
        [(dataset, tasks) for dataset, tasks in value["columns"]],
        tuple(value["metrics"]),
        {(method, exemplars): blocks for method, exemplars, blocks in value["rows"]},
        note,
    )


TABLE_1 = _read("table1")
TABLE_2 = _read(
    "table2",
    "Ours and the paper's are average incremental accuracy, the mean of the accuracies after each task; of "
    f"{JOINT}, one training on the whole data set, the final accuracy. `last` is ours after the last task.",
)


def beside_paper(
    paper: PaperTable, groups: Sequence[RunGroup], protocol: Protocol = "agnostic", full_names: bool = False
) -> Table:
    """One row for each method, in the paper's order, and a block of columns for each data set.

    A column of the paper is called `paper`, or with `full_names` after the column that it stands beside.
    Table 2 also has our accuracy after the last task, `last`. A method whose numbers in the paper were made under
    another protocol has a second row under that one.
    """
    second = paper is TABLE_2
    cells = {(_row_of(group), paper.column_of(group)): group for group in groups}
    in_paper = _position_in(paper.columns)
    columns = sorted({column for _, column in cells}, key=lambda c: (in_paper(c), c[0], c[1] or 0))
    titles, metrics = ["method", "seeds" if second else "exemplars"], []
    for dataset, tasks in columns:
        for name in paper.metrics:
            named = len(columns) > 1 and (full_names or name == "all")
            ours = f"{dataset} {tasks} tasks" if second else f"{dataset} {name}" if named else name
            titles += [ours, f"{ours} paper" if full_names else "paper"]
            metrics.append(ours)
            if second:
                titles.append(f"{ours} last" if full_names else "last")
                metrics.append(titles[-1])
    in_rows = _position_in(list(paper.rows))
    keys = sorted({row: None for row, _ in cells}, key=lambda row: (row[1], in_rows(row[:2])))
    rows: list[Cells] = []
    blocks = []
    for key in keys:
        method, exemplars, label = key
        of_row = {column: cells[key, column] for column in columns if (key, column) in cells}
        own = _own_protocol(paper, list(of_row.values()), protocol)
        for under in (protocol, own) if own else (protocol,):
            title = label if under == protocol else f"{label} ({OWN_PROTOCOL})"
            row: list[Cell] = [title, _seeds(key, cells, columns) if second else exemplars]
            for column in columns:
                group = of_row.get(column)
                for name in paper.metrics:
                    printed = paper.value(method, exemplars, column, name)
                    row.append(paper.ours(group, name, under) if group else None)
                    # The paper's number stands beside ours of the same protocol.
                    row.append(None if printed is None or under != (own or protocol) else f"{printed:.1f}")
                    if second:
                        row.append(metric(group, "all", under) if group else None)
            rows.append(tuple(row))
            blocks.append((exemplars, method == JOINT, under))
    return Table(tuple(titles), rows, frozenset(metrics), blocks)


def notes_of(paper: PaperTable, groups: Sequence[RunGroup], protocol: Protocol = "agnostic") -> list[str]:
    """What is to be known about a table of runs beside the paper's."""
    own = _own_protocol(paper, groups, protocol)
    about = [*([paper.note] if paper.note else []), *([OWN_PROTOCOL_NOTE] if own else [])]
    return [*about, *other_orders(paper, groups, protocol)]


def other_orders(paper: PaperTable, groups: Sequence[RunGroup], protocol: Protocol = "agnostic") -> list[str]:
    """The orders of methods in our runs and in the paper, for each block of columns where they differ.

    Only methods that both have count, and of ours only finished runs, the first group of a method. Ours is under the
    protocol of the paper's number.
    """
    blocks: dict[tuple[tuple[str, int | None], int], dict[str, tuple[float, float]]] = {}
    titles = {}
    for group in groups:
        results, column = group.first.results, paper.column_of(group)
        under = _own_protocol(paper, [group], protocol) or protocol
        ours = paper.ours(group, paper.metrics[0], under)
        printed = paper.value(results.method, results.exemplars, column, paper.metrics[0])
        if ours is None or printed is None or results.unfinished:
            continue
        block = column, results.exemplars
        pair = round(100 * ours.mean, 1), printed
        blocks.setdefault(block, {}).setdefault(results.method, pair)
        what = f"{results.exemplars} exemplars" if column[1] is None else f"{column[1]} tasks"
        titles[block] = f"{results.dataset_title}, {what}"
    in_paper = _position_in(paper.columns)
    orders = {key: _other_order(blocks[key]) for key in sorted(blocks, key=lambda b: (in_paper(b[0]), b[1]))}
    return [f"{titles[key]}: {order}" for key, order in orders.items() if order]


def published_table(
    runs: list[StoredRun], format: TableFormat = "text", protocol: Protocol = "agnostic"
) -> str:
    """Our runs beside the paper's numbers: Table 2 for runs in which every image is labelled, else Table 1.

    Runs of both kinds give both tables. In Markdown, notes follow each table.
    """
    tables = []
    for paper, labelled in ((TABLE_1, False), (TABLE_2, True)):
        groups = group_runs([run for run in runs if run.results.all_labelled is labelled])
        if not groups:
            continue
        text = render(beside_paper(paper, groups, protocol, full_names=format == "csv"), format)
        notes = notes_of(paper, groups, protocol)
        if format == "md" and notes:
            text += "\n" + "".join(f"- {note}\n" for note in notes)
        tables.append(text)
    return "\n".join(tables)


def _own_protocol(paper: PaperTable, groups: Sequence[RunGroup], protocol: Protocol) -> Protocol | None:
    """The protocol of the paper's numbers of any of the groups, where it is another one and the runs have it."""
    if paper is not TABLE_1 or protocol != "agnostic":
        return None
    for group in groups:
        own = PUBLISHED_PROTOCOLS.get(group.first.results.method)
        if own is not None and metric(group, "all", own) is not None:
            return own
    return None


def _row_of(group: RunGroup) -> tuple[str, int, str]:
    """Method, exemplars and label: what one row of a table has in common."""
    results = group.first.results
    return results.method, results.exemplars, group.label


def _seeds(
    row: tuple[str, int, str],
    cells: Mapping[tuple[tuple[str, int, str], tuple[str, int | None]], RunGroup],
    columns: Sequence[tuple[str, int | None]],
) -> str:
    """Number of seeds of a row, or of each of its blocks where they differ."""
    counts = [str(len(cells[row, column].runs)) for column in columns if (row, column) in cells]
    return counts[0] if len(set(counts)) == 1 else ", ".join(counts)


def _position_in(order: Sequence[object]) -> Callable[[object], int]:
    """Position of something in `order`; behind all of it if it is not there."""
    return lambda entry: order.index(entry) if entry in order else len(order)


def _other_order(pairs: Mapping[str, tuple[float, float]]) -> str | None:
    """Both orders, if two methods are ranked differently; `pairs` of (ours, paper). Ties agree with any order.

    >>> _other_order({"camp": (50.0, 58.9), "gcd": (60.0, 20.6)})
    'ours gcd > camp, paper camp > gcd'
    """
    if not any((a - b) * (c - d) < 0 for a, c in pairs.values() for b, d in pairs.values()):
        return None
    ours, paper = ({name: pair[side] for name, pair in pairs.items()} for side in (0, 1))
    return f"ours {_ranked(ours)}, paper {_ranked(paper)}"


def _ranked(values: Mapping[str, float]) -> str:
    """The names by falling value.

    >>> _ranked({"gcd": 20.6, "camp": 58.9, "gcd-fd": 42.0, "metagcd": 42.0})
    'camp > gcd-fd = metagcd > gcd'
    """
    names = sorted(values, key=lambda name: -values[name])
    signs = ["", *(" = " if values[a] == values[b] else " > " for a, b in pairwise(names))]
    return "".join(sign + name for sign, name in zip(signs, names))
