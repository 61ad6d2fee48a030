"""The charts of the page: which numbers of the runs go into which chart."""

import sys
from collections.abc import Sequence

import numpy as np

from camp.bench.evaluation.class_groups import GROUPS, Group
from camp.bench.evaluation.confusion import normalised_rows
from camp.bench.evaluation.summary import mean
from camp.bench.report.charts import (
    Chart,
    ChartBar,
    Rule,
    Series,
    bar_chart,
    dumbbell_chart,
    heat_map,
    line_chart,
    map_chart,
)
from camp.bench.report.groups import RunGroup
from camp.bench.report.numbers import percent, spread
from camp.bench.report.run_tables import metric
from camp.bench.report.theme import FAINT, INK, KNOWN, NOVEL, Style
from camp.bench.results import StoredRun

NOT_A_LOSS = {"task", "epoch", "seconds", "step", "steps", "lr"}
"""Entries of a line of `metrics.jsonl` that are not drawn."""


def accuracy_after_tasks(groups: Sequence[RunGroup], names: Sequence[str], kind: Group) -> Chart | None:
    """Mean accuracy over the tasks so far, after each task; thin lines are the seeds of a group."""
    longest = max(len(group.first.results.tasks) for group in groups)
    tasks = list(range(1, longest + 1))
    lines = []
    for number, (group, name) in enumerate(zip(groups, names)):
        seeds = [[mean(task.agnostic[kind]) for task in run.results.tasks] for run in group.runs]
        values = [spread(column) for column in zip(*seeds)]
        means = [value.mean if value else None for value in values]
        lines.append(Series(name, Style.number(number), tasks, means, seeds if len(seeds) > 1 else []))
    ends = {line.label: [v for v in line.values if isinstance(v, float)] for line in lines}
    if not any(ends.values()):
        return None
    ending = ", ".join(f"{label} ends at {percent(v[-1] if v else None)}" for label, v in ends.items())
    description = f"Accuracy on {kind} classes after each task: {ending}."
    return line_chart(lines, description=description, x_title="after task", top=1.0)


def known_and_novel(groups: Sequence[RunGroup], names: Sequence[str]) -> Chart:
    """Final accuracy on known and on novel classes, with the upper bound."""
    bars = []
    for group, name in zip(groups, names):
        for kind in ("known", "novel"):
            bound = metric(group, kind, "upper_bound")
            bars.append(ChartBar(name, kind, metric(group, kind), bound.mean if bound else None))
    values = "; ".join(
        f"{bar.label}, {bar.kind}: {percent(bar.value.mean if bar.value else None)}" for bar in bars
    )
    description = f"Final accuracy on known and novel classes. {values}."
    return bar_chart(bars, {"known": KNOWN, "novel": NOVEL}, description=description)


def accuracy_matrix(run: StoredRun) -> Chart:
    """A[t][i]: a row for each task learned, a column for each test set."""
    rows = [task.agnostic for task in run.results.tasks]
    tooltips = {
        (t, i): f"after task {t + 1}, on the test images of task {i + 1}: "
        + ", ".join(f"{group} {percent(row[group][i])}" for group in GROUPS)
        for t, row in enumerate(rows)
        for i in range(t + 1)
    }
    tasks = range(1, len(rows) + 1)
    last = ", ".join(percent(share) for share in rows[-1].all)
    return heat_map(
        [row.all for row in rows],
        tasks,
        tasks,
        description=f"Accuracy matrix. After the last task: {last}.",
        x_title="tested on task",
        y_title="after task",
        tooltips=tooltips,
    )


def task_confusion(run: StoredRun) -> list[tuple[Group, Chart]]:
    """To which task test images are assigned, for each group of classes that has images."""
    maps: list[tuple[Group, Chart]] = []
    novel = any(task.novel for task in run.results.tasks)
    groups: tuple[Group, ...] = GROUPS if novel else ("all",)
    for group in groups:
        counts = np.array(run.results.confusion[group])
        if not counts.sum():
            continue
        tasks = range(1, len(counts) + 1)
        tooltips = {
            (i, j): f"{count} of {counts[i].sum()} images of task {i + 1} were assigned to task {j + 1}"
            for (i, j), count in np.ndenumerate(counts)
        }
        right = percent(float(np.trace(counts) / counts.sum()))
        drawn = heat_map(
            normalised_rows(counts).tolist(),
            tasks,
            tasks,
            description=f"Task confusion, {group} classes: {right} of the images stay in their own task.",
            x_title="predicted task",
            y_title="true task",
            tooltips=tooltips,
            side=180,
        )
        maps.append((group, drawn))
    return maps


def centroid_distances(run: StoredRun) -> tuple[Chart, str] | None:
    """Distances of stored and adapted centroids to the true means, and a sentence about them."""
    drifts = {task.task + 1: task.drift for task in run.results.tasks if task.drift}
    if not drifts:
        return None
    pairs = {"known": [d.known for d in drifts.values()], "novel": [d.novel for d in drifts.values()]}
    changes = []
    for kind, each in pairs.items():
        share = mean(distance.relative_reduction for distance in each if distance)
        if share is not None:
            changes.append(f"{'−' if share >= 0 else '+'}{percent(abs(share), 0)} for {kind} centroids")
    sentence = (
        f"Adaptation changes the distance by {' and '.join(changes)}." if changes else "Nothing was measured."
    )
    if changes and all(d.stored == d.adapted for each in pairs.values() for d in each if d):
        sentence = "This run does not adapt its centroids."
    description = f"Distance of centroids to the true class means. {sentence}"
    return dumbbell_chart(list(drifts), pairs, description=description), sentence


def feature_map(run: StoredRun) -> Chart | None:
    """The map of the feature space, where the run has one."""
    drawn = run.results.map
    if not drawn:
        return None
    what = f"{len(drawn.centroids)} centroids, {len(drawn.points)} images"
    return map_chart(drawn, description=f"Map of the feature space: {what}.")


def estimated_k(run: StoredRun) -> list[tuple[int, Chart, str]]:
    """For each task whose number of categories was estimated: its number, the curve, and a sentence."""
    curves = []
    for task in run.results.tasks:
        if not task.curve:
            continue
        points = sorted(task.curve)
        known = len(task.known)
        true, used = known + task.novel_true, known + task.novel_used
        error = (
            "" if task.novel_error is None else f" (± {task.novel_error:.1f} by the method's own estimate)"
        )
        sentence = f"Task {task.task + 1}: {used} categories used{error}, {true} true."
        rules = [Rule(f"true number: {true}", x=true), Rule(f"used: {used}", x=used, colour=NOVEL, dash=1)]
        drawn = line_chart(
            [Series("score", Style(NOVEL), [k for k, _ in points], [score for _, score in points])],
            description=f"Score over the number of categories. {sentence}",
            x_title="number of categories",
            from_zero=False,
            rules=rules,
        )
        curves.append((task.task + 1, drawn, sentence))
    return curves


def losses(run: StoredRun) -> tuple[Chart, list[tuple[str, str]]] | None:
    """Losses over all epochs of the run, and their legend as (name, colour)."""
    epochs = run.epochs
    names = [
        key
        for key in dict.fromkeys(key for line in epochs for key in line)
        if key not in NOT_A_LOSS and any(_number(line.get(key)) is not None for line in epochs)
    ]
    if not names:
        return None
    names.sort(key=lambda name: name != "loss")
    styles = {name: Style(INK) if name == "loss" else Style.number(i) for i, name in enumerate(names)}
    xs = list(range(1, len(epochs) + 1))
    lines = [Series(name, styles[name], xs, [_number(line.get(name)) for line in epochs]) for name in names]
    starts = [i for i in range(1, len(epochs)) if epochs[i].get("task") != epochs[i - 1].get("task")]
    drawn = line_chart(
        lines[::-1],  # the total is drawn last, on top
        description=f"Losses over {len(epochs)} epochs: {', '.join(names)}.",
        x_title="epoch",
        fractions=False,
        dots=False,
        rules=[Rule(f"task {epochs[i].get('task', 0) + 1} begins", x=i + 0.5, colour=FAINT) for i in starts],
        size=(460, 220),
    )
    return drawn, [(name, style.colour) for name, style in styles.items()]


def _number(value: object) -> float | None:
    """Only finite numbers can be drawn."""
    if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
        return float(value)
    return None
