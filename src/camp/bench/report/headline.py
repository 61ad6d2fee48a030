"""What the page says first: the result in a sentence, in a few figures, and who is best at what."""

from camp.bench.report.groups import RunGroup, spread
from camp.bench.report.numbers import hundredths, percent
from camp.bench.report.tables import FIGURES, figure, shown
from camp.bench.results import Protocol
from camp.core.progress import clock


def best(groups: list[RunGroup]) -> RunGroup:
    """The group of highest final accuracy, among the finished ones if there are any."""

    def worth(group: RunGroup) -> tuple[bool, float]:
        final = figure(group, "all")
        return (not group.first.results.unfinished, final.mean if final else -1.0)

    return max(groups, key=worth)


def lead(groups: list[RunGroup], names: list[str]) -> str:
    """The result in one sentence."""
    leading = best(groups)
    final, tasks = figure(leading, "all"), len(leading.first.results.tasks)
    share = percent(final.mean if final else None)
    sentence = (
        f"After {tasks} task{'s' if tasks > 1 else ''}, {names[groups.index(leading)]} recognises {share}"
    )
    sentence += " of the test pictures"
    rivals = [group for group in groups if group is not leading and _like(group, leading)]
    if rivals and final:
        rival = best(rivals)
        other = figure(rival, "all")
        if other and other.mean <= final.mean:
            points = hundredths(final.mean - other.mean)
            name = names[groups.index(rival)]
            sentence += f", as many as {name}" if points == "0.0" else f", {points} points more than {name}"
    return sentence + "."


def _like(group: RunGroup, other: RunGroup) -> bool:
    """Whether two groups can be compared: the same data, after as many tasks."""
    one, two = group.first.results, other.first.results
    return one.dataset == two.dataset and len(one.tasks) == len(two.tasks)


def tiles(group: RunGroup) -> list[tuple[str, str, str]]:
    """(name, figure, remark) of the headline."""
    bound = spread([run.results.summary["upper_bound"].final.all for run in group.runs])
    seconds = spread([run.results.seconds.get("total") for run in group.runs])
    tasks = group.first.results.tasks
    known, novel = (sum(len(getattr(task, kind)) for task in tasks) for kind in ("known", "novel"))
    apart = [
        ("Known classes", shown(figure(group, "known")), f"{known} classes with labelled pictures"),
        ("Novel classes", shown(figure(group, "novel")), f"{novel} classes found without labels"),
    ]
    whole = ("Incremental", shown(figure(group, "incremental")), "mean of the accuracies after each task")
    return [
        ("All classes", shown(figure(group, "all")), f"{shown(bound)} within reach of these features"),
        *(apart if novel else [whole]),
        ("Forgetting", shown(figure(group, "forgetting")), "points lost on earlier tasks; less is better"),
        ("Plasticity", shown(figure(group, "plasticity")), "on a task right after learning it"),
        (
            "Time",
            clock(seconds.mean) if seconds else "–",
            "so far" if group.first.results.unfinished else "for a whole run",
        ),
    ]


def winners(groups: list[RunGroup], protocol: Protocol) -> set[tuple[int, str]]:
    """(row, column) of the best figures among groups that can be compared; nobody wins alone."""
    won = set()
    for group in groups:
        rivals = [number for number, other in enumerate(groups) if _like(group, other)]
        for column in FIGURES:
            means = {
                r: round(value.mean, 3) for r in rivals if (value := figure(groups[r], column, protocol))
            }
            top = (min if column == "forgetting" else max)(means.values(), default=None)
            if len(means) > 1:
                won |= {(r, column) for r, value in means.items() if value == top}
    return won
