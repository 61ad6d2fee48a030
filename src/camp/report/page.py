"""One HTML file that shows one or several runs; it asks nothing of the network."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from camp.errors import CampError
from camp.evaluation.accuracy import GROUPS
from camp.files import write_text
from camp.progress import clock
from camp.report import figures
from camp.report.groups import RunGroup, Spread, group_runs, spread
from camp.report.latent import colour, group_style
from camp.report.schema import CategoryResults, Protocol, RunResults
from camp.report.svg import percent
from camp.report.tables import FIGURES, comparison, figure, shown

SHOWN_AT_FIRST = 3
"""Runs whose own figures are visible when the page opens."""

PICTURE_LIMIT = 200_000
"""Bytes of a thumbnail that is still embedded; anything larger was not made by us."""

PICTURE_KINDS = {b"\xff\xd8\xff": "jpeg", b"\x89PNG": "png", b"RIFF": "webp"}

PROTOCOLS = {
    "agnostic": "Task not told",
    "aware": "Task told",
    "test_hungarian": "Names given by the test pictures",
    "task_hungarian": "Names given by each task's test pictures",
    "upper_bound": "True class means",
}


@dataclass(frozen=True)
class Category:
    """A category with its pictures as data addresses."""

    facts: CategoryResults
    pictures: list[str]


@dataclass(frozen=True)
class RunView:
    """A run as the page shows it."""

    id: str
    name: str
    colour: str
    shown: bool
    run: RunResults
    matrix: Markup
    distances: tuple[Markup, str] | None
    confusion: list[tuple[Any, Markup]]
    map: Markup | None
    curves: list[tuple[int, Markup, str]]
    losses: tuple[Markup, list[tuple[str, str]]] | None
    discovered: list[Category]
    known: list[Category]


def write_page(runs: list[RunResults], path: Path, protocol: Protocol = "agnostic") -> None:
    """Write the page of `runs` to `path`."""
    write_text(path, render_page(runs, protocol))


def render_page(runs: list[RunResults], protocol: Protocol = "agnostic") -> str:
    """The page of `runs` as HTML; `protocol` is that of the comparison's figures."""
    if not runs:
        raise CampError("There is no run to report; give at least one run folder.")
    groups = group_runs(runs)
    names = _names(groups)
    views = _views(groups, names)
    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "shown": shown, "clock": clock}
    return environment.get_template("page.html").render(
        css=Markup((here / "page.css").read_text(encoding="utf-8")),
        js=Markup((here / "page.js").read_text(encoding="utf-8")),
        title=_title(runs),
        lead=_lead(groups, names),
        groups=list(zip(groups, names, [group_style(i) for i in range(len(groups))])),
        views=views,
        best=_best(groups),
        best_name=names[groups.index(_best(groups))],
        tiles=_tiles(_best(groups)),
        protocol=None if protocol == "agnostic" else PROTOCOLS[protocol],
        table=comparison(groups, protocol),
        winners=_winners(groups, protocol),
        protocols=_protocols(groups),
        lines=[
            (kind, drawn) for kind in GROUPS if (drawn := figures.accuracy_after_tasks(groups, names, kind))
        ],
        bars=figures.known_and_novel(groups, names),
        task_colours=[colour(t) for t in range(max(len(run.results["tasks"]) for run in runs))],
    )


def _title(runs: list[RunResults]) -> str:
    return " and ".join(dict.fromkeys(run.results["dataset_title"] for run in runs))


def _names(groups: list[RunGroup]) -> list[str]:
    """Labels that are enough outside a table: with exemplars and data set where these differ."""
    names = [group.label for group in groups]
    if len({group.first.results["exemplars"] for group in groups}) > 1:
        names = [
            f"{name}, {group.first.results['exemplars']} exemplars" for name, group in zip(names, groups)
        ]
    if len({group.first.results["dataset"] for group in groups}) > 1:
        names = [f"{name}, {group.first.results['dataset']}" for name, group in zip(names, groups)]
    return names


def _best(groups: list[RunGroup]) -> RunGroup:
    """The group of highest final accuracy, among the finished ones if there are any."""

    def worth(group: RunGroup) -> tuple[bool, float]:
        final = figure(group, "all")
        return (not group.first.unfinished, final.mean if final else -1.0)

    return max(groups, key=worth)


def _lead(groups: list[RunGroup], names: list[str]) -> str:
    """The result in one sentence."""
    best = _best(groups)
    final, tasks = figure(best, "all"), len(best.first.results["tasks"])
    share = percent(final.mean if final else None)
    sentence = f"After {tasks} task{'s' if tasks > 1 else ''}, {names[groups.index(best)]} recognises {share}"
    sentence += " of the test pictures"
    rivals = [group for group in groups if group is not best and _like(group, best)]
    if rivals and final:
        rival = _best(rivals)
        other = figure(rival, "all")
        if other and other.mean <= final.mean:
            points = f"{100 * (final.mean - other.mean):.1f}"
            name = names[groups.index(rival)]
            sentence += f", as many as {name}" if points == "0.0" else f", {points} points more than {name}"
    return sentence + "."


def _like(group: RunGroup, other: RunGroup) -> bool:
    """Whether two groups can be compared: the same data, after as many tasks."""
    one, two = group.first.results, other.first.results
    return one["dataset"] == two["dataset"] and len(one["tasks"]) == len(two["tasks"])


def _tiles(group: RunGroup) -> list[tuple[str, str, str]]:
    """(name, figure, remark) of the headline."""
    bound = spread([run.results["summary"]["upper_bound"]["final"]["all"] for run in group.runs])
    seconds = spread([run.results["seconds"].get("total") for run in group.runs])
    tasks = group.first.results["tasks"]
    known, novel = (sum(len(task[kind]) for task in tasks) for kind in ("known", "novel"))
    return [
        ("All classes", shown(figure(group, "all")), f"{shown(bound)} within reach of these features"),
        ("Known classes", shown(figure(group, "known")), f"{known} classes with labelled pictures"),
        ("Novel classes", shown(figure(group, "novel")), f"{novel} classes found without labels"),
        ("Forgetting", shown(figure(group, "forgetting")), "points lost on earlier tasks; less is better"),
        ("Plasticity", shown(figure(group, "plasticity")), "on a task right after learning it"),
        (
            "Time",
            clock(seconds.mean) if seconds else "–",
            "so far" if group.first.unfinished else "for a whole run",
        ),
    ]


def _winners(groups: list[RunGroup], protocol: Protocol) -> set[tuple[int, str]]:
    """(row, column) of the best figures among groups that can be compared; nobody wins alone."""
    winners = set()
    for group in groups:
        rivals = [number for number, other in enumerate(groups) if _like(group, other)]
        for column in FIGURES:
            means = {
                r: round(value.mean, 3) for r in rivals if (value := figure(groups[r], column, protocol))
            }
            best = (min if column == "forgetting" else max)(means.values(), default=None)
            if len(means) > 1:
                winners |= {(r, column) for r, value in means.items() if value == best}
    return winners


def _protocols(groups: list[RunGroup]) -> list[list[tuple[str, list[Spread | None]]]]:
    """For each group and protocol its name and final accuracy on all, known and novel classes."""
    blocks = []
    for group in groups:
        block = []
        for key, name in PROTOCOLS.items():
            summaries: list[Any] = [run.results["summary"].get(key) for run in group.runs]
            finals = [summary["final"] for summary in summaries if summary]
            block.append((name, [spread([final[kind] for final in finals]) for kind in GROUPS]))
        blocks.append(block)
    return blocks


def _views(groups: list[RunGroup], names: list[str]) -> list[RunView]:
    several = any(len(group.runs) > 1 for group in groups)
    views: list[RunView] = []
    for g, (group, name) in enumerate(zip(groups, names)):
        for run in group.runs:
            first = run is group.first
            # Pictures make a page heavy: the first seed of each setting shows them.
            categories = [
                Category(facts, _pictures(run, facts) if first else []) for facts in run.results["categories"]
            ]
            views.append(
                RunView(
                    id=f"run{len(views)}",
                    name=f"{name}, seed {run.results['seed']}" if several else name,
                    colour=group_style(g),
                    shown=first and g < SHOWN_AT_FIRST,
                    run=run,
                    matrix=figures.accuracy_matrix(run),
                    distances=figures.centroid_distances(run),
                    confusion=figures.task_confusion(run),
                    map=figures.latent_space(run),
                    curves=figures.estimated_k(run),
                    losses=figures.losses(run),
                    discovered=[category for category in categories if category.facts["kind"] == "novel"],
                    known=[category for category in categories if category.facts["kind"] == "known"],
                )
            )
    return views


def _pictures(run: RunResults, category: CategoryResults) -> list[str]:
    """Data addresses of the thumbnails that lie in the run folder and are pictures."""
    addresses = []
    for name in category["pictures"]:
        path = (run.folder / name).resolve()
        if (
            not path.is_relative_to(run.folder.resolve())
            or not path.is_file()
            or path.stat().st_size > PICTURE_LIMIT
        ):
            continue
        content = path.read_bytes()
        kind = next((kind for start, kind in PICTURE_KINDS.items() if content.startswith(start)), None)
        if kind:
            addresses.append(f"data:image/{kind};base64,{base64.b64encode(content).decode()}")
    return addresses
