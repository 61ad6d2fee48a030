"""Tables of runs: the comparison of settings, accuracy by task, and numbers of categories."""

from collections.abc import Callable, Sequence
from typing import Literal

from camp.bench.evaluation.accuracy import AccuracySplit, Share
from camp.bench.evaluation.class_groups import GROUPS, Group, Protocol
from camp.bench.evaluation.summary import mean
from camp.bench.report.groups import RunGroup, group_runs
from camp.bench.report.numbers import Spread, spread
from camp.bench.report.tables import Cell, Cells, Table, TableFormat, render
from camp.bench.results import StoredRun, TaskResults

Metric = Literal["all", "known", "novel", "forgetting", "plasticity", "incremental"]
METRICS: tuple[Metric, ...] = ("all", "known", "novel", "forgetting", "plasticity", "incremental")
"""Columns of the comparison, in the paper's order: final accuracy by group of classes, and of all classes the rest."""
NORMAL_90 = 1.645
"""Number of standard errors on both sides of an estimate within which a normal distribution has 90 %."""


def metric(group: RunGroup, name: Metric, protocol: Protocol = "agnostic") -> Spread | None:
    """A metric over the seeds of a group; None where no run has the protocol."""
    return spread([metric_of_run(run, name, protocol) for run in group.runs])


def metric_of_run(run: StoredRun, name: Metric, protocol: Protocol = "agnostic") -> Share:
    """A metric of one run."""
    summary = run.results.summary.get(protocol)
    if summary is None:
        return None
    if name == "all" or name == "known" or name == "novel":
        return summary.final[name]
    split: AccuracySplit = getattr(summary, name)
    return split.all


def has_novel(groups: Sequence[RunGroup]) -> bool:
    """Whether any class came without labels; if none did, all classes are known."""
    return any(task.novel for group in groups for task in group.first.results.tasks)


def comparable(group: RunGroup) -> tuple[str, int, int]:
    """Groups with equal values can be compared: the same data after the same number of tasks."""
    results = group.first.results
    return results.dataset, results.tasks_planned, len(results.tasks)


def comparison(groups: Sequence[RunGroup], protocol: Protocol = "agnostic") -> Table:
    """One row for each group of runs; a column only where rows differ in it."""
    datasets = len({group.first.results.dataset for group in groups}) > 1
    tasks = len({group.first.results.tasks_planned for group in groups}) > 1
    seeds = any(len(group.runs) > 1 for group in groups)
    metrics = [name for name in METRICS if has_novel(groups) or name not in ("known", "novel")]
    rows: list[Cells] = []
    for group in groups:
        results = group.first.results
        row: list[Cell] = [results.dataset] if datasets else []
        row += [group.label, results.exemplars]
        row += [results.tasks_planned] if tasks else []
        row += [len(group.runs)] if seeds else []
        row += [metric(group, name, protocol) for name in metrics]
        rows.append(tuple(row))
    columns = [*(["dataset"] if datasets else []), "method", "exemplars"]
    columns += [*(["tasks"] if tasks else []), *(["seeds"] if seeds else []), *metrics]
    return Table(tuple(columns), rows, frozenset(metrics), [comparable(group) for group in groups])


def per_task(groups: Sequence[RunGroup], protocol: Protocol = "agnostic") -> Table:
    """One row for each task of each group: accuracy right after learning it, and after the last task."""
    novel = has_novel(groups)
    tasks = len({group.first.results.tasks_planned for group in groups}) > 1
    kinds: tuple[Group, ...] = GROUPS if novel else ("all",)
    rows: list[Cells] = []
    blocks = []
    for group in groups:
        for i, task in enumerate(group.first.results.tasks):
            row: list[Cell] = [group.label, *([group.first.results.tasks_planned] if tasks else [])]
            row += [i + 1, len(task.known), *([len(task.novel)] if novel else [])]
            then = [_accuracies(run.results.tasks[i], "all", protocol) for run in group.runs]
            row += [spread([line[i] for line in then]), spread([mean(line) for line in then])]
            for kind in kinds:
                last = [_accuracies(run.results.tasks[-1], kind, protocol) for run in group.runs]
                row.append(spread([line[i] for line in last]))
            rows.append(tuple(row))
            blocks.append((*comparable(group), i))
    metrics = ("learned", "mean so far", *(kinds if novel else ("in the end",)))
    classes = ("known classes", "novel classes") if novel else ("classes",)
    columns = ("method", *(["tasks"] if tasks else []), "task", *classes, *metrics)
    return Table(columns, rows, frozenset(metrics), blocks)


def numbers_of_categories(groups: Sequence[RunGroup], protocol: Protocol = "agnostic") -> Table:
    """One row for each group: true and used numbers of novel categories, and their mean absolute error.

    `own error` is the standard error that the method itself estimates, and `covered` the tasks in which the true
    number lies within NORMAL_90 of these (90 % of a normal distribution). `protocol` changes nothing.
    """
    most = max(len(group.first.results.tasks) for group in groups)
    datasets = len({group.first.results.dataset for group in groups}) > 1
    rows: list[Cells] = []
    for group in groups:
        tasks = [run.results.tasks for run in group.runs]
        row: list[Cell] = [*([group.first.results.dataset] if datasets else []), group.label]
        row.append(_listed(sorted({task.novel_true for task in tasks[0]})))
        for i in range(most):
            row.append(_listed([own[i].novel_used for own in tasks]) if i < len(tasks[0]) else None)
        every = [task for own in tasks for task in own]
        off = mean(abs(task.novel_used - task.novel_true) for task in every)
        estimated = mean(task.novel_error for task in every)
        row += [f"{off:.1f}", None if estimated is None else f"{estimated:.1f}", _covered(every)]
        rows.append(tuple(row))
    columns = [*(["dataset"] if datasets else []), "method", "there are"]
    columns += [*(f"task {i + 1}" for i in range(most)), "off", "own error", "covered"]
    return Table(tuple(columns), rows)


def _covered(tasks: Sequence[TaskResults]) -> str | None:
    """Count the tasks with an error, and those of them in which the true number is within it, as `18 of 20`."""
    inside = [
        abs(task.novel_used - task.novel_true) <= NORMAL_90 * task.novel_error
        for task in tasks
        if task.novel_error is not None
    ]
    return f"{sum(inside)} of {len(inside)}" if inside else None


TABLES: dict[str, Callable[[Sequence[RunGroup], Protocol], Table]] = {
    "comparison": comparison,
    "tasks": per_task,
    "numbers": numbers_of_categories,
}
"""The tables of `camp report --table`."""


def run_table(
    runs: list[StoredRun],
    table: str = "comparison",
    format: TableFormat = "text",
    protocol: Protocol = "agnostic",
) -> str:
    """One of TABLES as text: runs that differ only in their seed are one row, mean ± standard deviation."""
    return render(TABLES[table](group_runs(runs), protocol), format)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _accuracies(task: TaskResults, kind: Group, protocol: Protocol) -> list[Share]:
    """A[t] under a protocol; all None where the run does not have it."""
    row = task.accuracy(protocol)
    return row[kind] if row else [None] * len(task.agnostic.all)
