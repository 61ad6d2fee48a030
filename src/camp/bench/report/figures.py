"""The figures of the page: which numbers of a run go into which chart."""

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from camp.bench.evaluation.accuracy import Share
from camp.bench.evaluation.class_groups import GROUPS, Group
from camp.bench.evaluation.confusion import normalised_rows
from camp.bench.evaluation.summary import mean
from camp.bench.report.charts import BarRow, Line, Mark, bar_chart, dumbbell_chart, heat_map, line_chart
from camp.bench.report.groups import RunGroup, spread
from camp.bench.report.latent import colour, group_style, latent_map
from camp.bench.report.numbers import percent
from camp.bench.report.svg import ticks
from camp.bench.results import StoredRun

NOT_A_LOSS = {"task", "epoch", "seconds", "step", "steps", "lr"}
"""Entries of a line of `metrics.jsonl` that are not drawn."""


def accuracy_after_tasks(groups: Sequence[RunGroup], names: Sequence[str], which: Group) -> Markup | None:
    """Mean accuracy over the tasks so far, after each task; thin lines are the seeds of a group."""
    longest = max(len(group.first.results.tasks) for group in groups)
    lines = []
    for number, (group, name) in enumerate(zip(groups, names)):
        seeds = [[mean(task.agnostic[which]) for task in run.results.tasks] for run in group.runs]
        seeds = [[*seed, *[None] * (longest - len(seed))] for seed in seeds]
        figures = [spread(list(column)) for column in zip(*seeds)]
        values = [figure.mean if figure else None for figure in figures]
        lines.append(Line(name, group_style(number), values, seeds if len(seeds) > 1 else []))
    if not any(value is not None for line in lines for value in line.values):
        return None
    told = ", ".join(f"{line.label} ends at {percent(_last(line.values))}" for line in lines)
    label = f"Accuracy on {which} classes after each task: {told}."
    return line_chart(list(range(1, longest + 1)), lines, label=label, x_name="after task", high=1.0)


def known_and_novel(groups: Sequence[RunGroup], names: Sequence[str]) -> Markup:
    """Final accuracy on known and on novel classes, with the upper bound."""
    rows = []
    for group, name in zip(groups, names):
        bars: list[tuple[str, Share, Share]] = []
        for kind in ("known", "novel"):
            value = spread([run.results.summary["agnostic"].final[kind] for run in group.runs])
            bound = spread([run.results.summary["upper_bound"].final[kind] for run in group.runs])
            bars.append((kind, value.mean if value else None, bound.mean if bound else None))
        rows.append(BarRow(name, bars))
    told = "; ".join(
        f"{row.label}: " + ", ".join(f"{kind} {percent(value)}" for kind, value, _ in row.bars)
        for row in rows
    )
    return bar_chart(rows, label=f"Final accuracy on known and novel classes. {told}.")


def accuracy_matrix(run: StoredRun) -> Markup:
    """A[t][i]: a row for each task learned, a column for each test set."""
    rows = [task.agnostic.all for task in run.results.tasks]

    def tell(t: int, i: int) -> str:
        task = run.results.tasks[t].agnostic
        split = ", ".join(f"{group} {percent(task[group][i])}" for group in GROUPS)
        return f"after task {t + 1}, on the test pictures of task {i + 1}: {split}"

    label = f"Accuracy matrix. After the last task: {', '.join(percent(share) for share in rows[-1])}."
    return heat_map(rows, label=label, row_name="after task", column_name="tested on task", tell=tell)


def task_confusion(run: StoredRun) -> list[tuple[Group, Markup]]:
    """Where test pictures of each task are sent, for each group that has pictures and is not all there is."""
    maps: list[tuple[Group, Markup]] = []
    novel = any(task.novel for task in run.results.tasks)
    for group in GROUPS if novel else ("all",):
        counts = np.array(run.results.confusion[group])
        if not counts.sum():
            continue
        shares = [[None if math.isnan(x) else x for x in row] for row in normalised_rows(counts).tolist()]

        def tell(i: int, j: int, counts: np.ndarray = counts) -> str:
            return f"{counts[i, j]} of {counts[i].sum()} pictures of task {i + 1} went to task {j + 1}"

        right = percent(float(np.trace(counts) / counts.sum()))
        label = f"Task confusion, {group} classes: {right} of the pictures stay in their own task."
        drawn = heat_map(
            shares, label=label, row_name="true task", column_name="predicted task", tell=tell, width=240
        )
        maps.append((group, drawn))
    return maps


def centroid_distances(run: StoredRun) -> tuple[Markup, str] | None:
    """Distances of stored and adapted centroids to the truth, and a sentence about them."""
    later = [task for task in run.results.tasks if task.drift]
    if not later:
        return None
    pairs = {
        "known": [task.drift.known if task.drift else None for task in later],
        "novel": [task.drift.novel if task.drift else None for task in later],
    }
    told = []
    for kind, each in pairs.items():
        share = mean(distance.relative_reduction for distance in each if distance)
        if share is not None:
            told.append(f"{'−' if share >= 0 else '+'}{percent(abs(share), 0)} for {kind} centroids")
    sentence = (
        f"Adaptation changes the distance by {' and '.join(told)}." if told else "Nothing was measured."
    )
    if told and all(d.stored == d.adapted for each in pairs.values() for d in each if d):
        sentence = "This run does not adapt its centroids."
    tasks = [task.task + 1 for task in later]
    return dumbbell_chart(tasks, pairs, label=f"Distance of centroids to the truth. {sentence}"), sentence


def latent_space(run: StoredRun) -> Markup | None:
    """The map, where the run has one."""
    drawn = run.results.map
    if not drawn:
        return None
    centroids, pictures = len(drawn.centroids), len(drawn.points)
    return latent_map(drawn, label=f"Map of the feature space: {centroids} centroids, {pictures} pictures.")


def estimated_k(run: StoredRun) -> list[tuple[int, Markup, str]]:
    """For each task whose number of categories was estimated: its number, the curve, and a sentence."""
    curves = []
    for task in run.results.tasks:
        if not task.curve:
            continue
        points = sorted(task.curve)
        xs = [pair[0] for pair in points]
        known = len(task.known)
        true, used = known + task.novel_true, known + task.novel_used
        marks = [Mark(true, f"true number: {true}", "true"), Mark(used, f"used: {used}", "used")]
        error = task.novel_error
        sure = f" (± {error:.1f} by the method's own estimate)" if error is not None else ""
        sentence = f"Task {task.task + 1}: {used} categories used{sure}, {true} are true."
        drawn = line_chart(
            xs,
            [Line("score", "novel", [pair[1] for pair in points])],
            label=f"Score over the number of categories. {sentence}",
            x_name="number of categories",
            low=None,
            marks=[mark for mark in marks if xs[0] <= mark.x <= xs[-1]],
            x_labels=[(x, f"{x:g}") for x in ticks(xs[0], xs[-1]) if x == int(x)],
        )
        curves.append((task.task + 1, drawn, sentence))
    return curves


def losses(run: StoredRun) -> tuple[Markup, list[tuple[str, str]]] | None:
    """Losses over all epochs of the run, and their legend as (name, CSS class)."""
    epochs = run.epochs
    names = [
        key
        for key in dict.fromkeys(key for line in epochs for key in line)
        if key not in NOT_A_LOSS and any(_number(line.get(key)) is not None for line in epochs)
    ]
    if not names:
        return None
    names.sort(key=lambda name: name != "loss")
    styles = {name: "total" if name == "loss" else colour(i) for i, name in enumerate(names)}
    lines = [Line(name, styles[name], [_number(line.get(name)) for line in epochs]) for name in names]
    starts = [i for i in range(1, len(epochs)) if epochs[i].get("task") != epochs[i - 1].get("task")]
    values = [value for line in lines for value in line.values if value is not None]
    drawn = line_chart(
        list(range(1, len(epochs) + 1)),
        lines[::-1],  # the total is drawn last, on top
        label=f"Losses over {len(epochs)} epochs: {', '.join(names)}.",
        x_name="epoch",
        show=lambda value: f"{value:g}",
        tell=lambda value: f"{value:.3g}",
        low=min(0.0, *values) if len(values) > 1 else 0.0,
        dots=False,
        marks=[Mark(i + 0.5, f"task {epochs[i].get('task', 0) + 1} begins", "task") for i in starts],
        x_labels=[(x, f"{x:g}") for x in ticks(1, max(len(epochs), 2)) if x == int(x)],
        size=(480, 260),
    )
    return drawn, list(styles.items())


def _number(value: object) -> float | None:
    """Only finite numbers can be drawn."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _last(values: Sequence[Share]) -> Share:
    return next((value for value in reversed(values) if value is not None), None)
