"""What the page says first: the result in a sentence and in a few numbers."""

from camp.bench.report.groups import RunGroup
from camp.bench.report.numbers import in_percent, percent, spread
from camp.bench.report.run_tables import comparable, metric
from camp.bench.report.tables import shown
from camp.core.progress import format_duration


def best(groups: list[RunGroup]) -> RunGroup:
    """The group of highest final accuracy as printed, among the finished ones if there are any."""

    def worth(group: RunGroup) -> tuple[bool, float]:
        final = metric(group, "all")
        return (not group.first.results.unfinished, float(in_percent(final.mean)) if final else -1.0)

    return max(groups, key=worth)


def lead(groups: list[RunGroup], names: list[str]) -> str:
    """The result in one sentence."""
    leading = best(groups)
    final, tasks = metric(leading, "all"), len(leading.first.results.tasks)
    share = percent(final.mean if final else None)
    sentence = (
        f"After {tasks} task{'s' if tasks > 1 else ''}, {names[groups.index(leading)]} recognises {share}"
    )
    sentence += " of the test images"
    rivals = [g for g in groups if g is not leading and comparable(g) == comparable(leading)]
    if rivals and final:
        rival = best(rivals)
        other = metric(rival, "all")
        if other and other.mean <= final.mean:
            points = in_percent(final.mean - other.mean)
            name = names[groups.index(rival)]
            sentence += f", as many as {name}" if points == "0.0" else f", {points} points more than {name}"
    return sentence + "."


def tiles(group: RunGroup) -> list[tuple[str, str, str]]:
    """(name, number, remark) of the headline."""
    seconds = spread([run.results.seconds.get("total") for run in group.runs])
    tasks = group.first.results.tasks
    known, novel = sum(len(task.known) for task in tasks), sum(len(task.novel) for task in tasks)
    apart = [
        ("Known classes", shown(metric(group, "known")), f"{known} classes with labelled images"),
        ("Novel classes", shown(metric(group, "novel")), f"{novel} classes discovered without labels"),
    ]
    whole = ("Incremental", shown(metric(group, "incremental")), "mean of the accuracies after each task")
    bound = shown(metric(group, "all", "upper_bound"))
    return [
        ("All classes", shown(metric(group, "all")), f"{bound} with the true class means of these features"),
        *(apart if novel else [whole]),
        ("Forgetting", shown(metric(group, "forgetting")), "points lost on earlier tasks; lower is better"),
        ("Plasticity", shown(metric(group, "plasticity")), "accuracy on a task right after learning it"),
        (
            "Time",
            format_duration(seconds.mean) if seconds else "–",
            "so far" if group.first.results.unfinished else "for a whole run",
        ),
    ]
