"""One HTML file that shows one or several runs; it needs no network access."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from camp.bench.evaluation.class_groups import GROUPS, Group, Protocol
from camp.bench.report import figures, theme
from camp.bench.report.charts import Chart
from camp.bench.report.groups import RunGroup, group_runs
from camp.bench.report.numbers import Spread, in_percent, percent, spread
from camp.bench.report.rendering import vega_script
from camp.bench.report.run_tables import comparable, comparison, has_novel, metric
from camp.bench.report.tables import LEFT, shown
from camp.bench.results import CategoryResults, StoredRun
from camp.core.errors import CampError
from camp.core.output_file import write_output
from camp.core.progress import format_duration

TEMPLATES = Path(__file__).with_name("templates")

SHOWN_AT_FIRST = 3
"""Runs whose own charts are visible when the page opens."""

MAX_THUMBNAIL_BYTES = 200_000
"""A larger file was not written by CAMP and is not embedded."""

IMAGE_FORMATS = {b"\xff\xd8\xff": "jpeg", b"\x89PNG": "png", b"RIFF": "webp"}

PROTOCOLS: dict[Protocol, str] = {
    "agnostic": "Task-agnostic",
    "aware": "Task-aware",
    "test_hungarian": "Matched on all test images",
    "task_hungarian": "Matched on the test images of each task",
    "upper_bound": "True class means",
}


@dataclass(frozen=True)
class CategoryCard:
    """A category with its images as data addresses."""

    facts: CategoryResults
    images: list[str]


@dataclass(frozen=True)
class RunView:
    """A run as the page shows it."""

    id: str
    name: str
    colour: str
    shown: bool
    run: StoredRun
    matrix: Chart
    distances: tuple[Chart, str] | None
    confusion: list[tuple[Group, Chart]]
    map: Chart | None
    curves: list[tuple[int, Chart, str]]
    losses: tuple[Chart, list[tuple[str, str]]] | None
    discovered: list[CategoryCard]
    known: list[CategoryCard]


def render_template(name: str, **values: Any) -> str:
    """A page from a template, with style and scripts inside."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "shown": shown, "clock": format_duration}
    return environment.get_template(name).render(
        css=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        js=Markup((TEMPLATES / "page.js").read_text(encoding="utf-8")),
        vega=Markup(vega_script()),
        chart_config=theme.CONFIG,
        light=theme.LIGHT,
        dark=theme.DARK,
        left=LEFT,
        **values,
    )


def write_page(runs: list[StoredRun], path: Path, protocol: Protocol = "agnostic") -> None:
    """Write the page of `runs` to `path`."""
    write_output(path, render_page(runs, protocol))


def render_page(runs: list[StoredRun], protocol: Protocol = "agnostic") -> str:
    """The page of `runs` as HTML; the comparison counts by `protocol`."""
    if not runs:
        raise CampError("There is no run to report; give at least one run folder.")
    groups = group_runs(runs)
    names = _names(groups)
    best = best_group(groups)
    kinds: tuple[Group, ...] = GROUPS if has_novel(groups) else ("all",)
    drawn = [(kind, figures.accuracy_after_tasks(groups, names, kind)) for kind in kinds]
    return render_template(
        "report.html",
        title=" and ".join(dict.fromkeys(run.results.dataset_title for run in runs)),
        lead=lead(groups, names),
        groups=list(zip(groups, names, [theme.series_colour(i) for i in range(len(groups))])),
        views=_views(groups, names),
        best=best,
        best_name=names[groups.index(best)],
        tiles=tiles(best),
        protocol=None if protocol == "agnostic" else PROTOCOLS[protocol],
        table=comparison(groups, protocol),
        kinds=kinds,
        incremental=all(run.results.all_labelled for run in runs),
        protocols=_protocols(groups, kinds),
        lines=[(kind, chart) for kind, chart in drawn if chart is not None],
        bars=figures.known_and_novel(groups, names),
        task_colours=[theme.series_colour(t) for t in range(max(len(run.results.tasks) for run in runs))],
    )


def best_group(groups: list[RunGroup]) -> RunGroup:
    """The group of highest final accuracy as printed, among the finished ones if there are any."""

    def worth(group: RunGroup) -> tuple[bool, float]:
        final = metric(group, "all")
        return (not group.first.results.unfinished, float(in_percent(final.mean)) if final else -1.0)

    return max(groups, key=worth)


def lead(groups: list[RunGroup], names: list[str]) -> str:
    """The result in one sentence."""
    leading = best_group(groups)
    final, tasks = metric(leading, "all"), len(leading.first.results.tasks)
    share = percent(final.mean if final else None)
    sentence = f"After {tasks} task{'s' if tasks > 1 else ''}, {names[groups.index(leading)]} "
    sentence += f"recognises {share} of the test images"
    rivals = [g for g in groups if g is not leading and comparable(g) == comparable(leading)]
    if rivals and final:
        rival = best_group(rivals)
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


def _names(groups: list[RunGroup]) -> list[str]:
    """Labels that are unique outside a table: with exemplars, tasks and data set where these differ."""
    names = [group.label for group in groups]
    for field, unit in (("exemplars", " exemplars"), ("tasks_planned", " tasks"), ("dataset", "")):
        values = [getattr(group.first.results, field) for group in groups]
        if len(set(values)) > 1:
            names = [f"{name}, {value}{unit}" for name, value in zip(names, values)]
    return names


def _protocols(
    groups: list[RunGroup], kinds: tuple[Group, ...]
) -> list[list[tuple[str, list[Spread | None]]]]:
    """For each group and protocol, its name and the final accuracy on the `kinds` of classes."""
    return [
        [(name, [metric(group, kind, protocol) for kind in kinds]) for protocol, name in PROTOCOLS.items()]
        for group in groups
    ]


def _views(groups: list[RunGroup], names: list[str]) -> list[RunView]:
    several = any(len(group.runs) > 1 for group in groups)
    views: list[RunView] = []
    for g, (group, name) in enumerate(zip(groups, names)):
        for run in group.runs:
            first = run is group.first
            # Images make a page heavy: the first seed of each setting shows them.
            cards = [CategoryCard(c, _thumbnails(run, c) if first else []) for c in run.results.categories]
            views.append(
                RunView(
                    id=f"run{len(views)}",
                    name=f"{name}, seed {run.results.seed}" if several else name,
                    colour=theme.series_colour(g),
                    shown=first and g < SHOWN_AT_FIRST,
                    run=run,
                    matrix=figures.accuracy_matrix(run),
                    distances=figures.centroid_distances(run),
                    confusion=figures.task_confusion(run),
                    map=figures.feature_map(run),
                    curves=figures.estimated_k(run),
                    losses=figures.losses(run),
                    discovered=[card for card in cards if card.facts.kind == "novel"],
                    known=[card for card in cards if card.facts.kind == "known"],
                )
            )
    return views


def _thumbnails(run: StoredRun, category: CategoryResults) -> list[str]:
    """Data addresses of the thumbnails that are images inside the run folder."""
    addresses = []
    for name in category.images:
        path = (run.folder / name).resolve()
        inside = path.is_relative_to(run.folder.resolve()) and path.is_file()
        if not inside or path.stat().st_size > MAX_THUMBNAIL_BYTES:
            continue
        content = path.read_bytes()
        format = next((name for start, name in IMAGE_FORMATS.items() if content.startswith(start)), None)
        if format:
            addresses.append(f"data:image/{format};base64,{base64.b64encode(content).decode()}")
    return addresses
