"""One HTML file that shows one or several runs; it asks nothing of the network."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from camp.bench.evaluation.class_groups import GROUPS, Group
from camp.bench.report import figures, headline
from camp.bench.report.groups import RunGroup, Spread, group_runs, spread
from camp.bench.report.latent import colour, group_style
from camp.bench.report.numbers import percent
from camp.bench.report.tables import comparison, has_novel, shown
from camp.bench.results import CategoryResults, Protocol, StoredRun
from camp.core.errors import CampError
from camp.core.files import write_text
from camp.core.progress import clock

SHOWN_AT_FIRST = 3
"""Runs whose own figures are visible when the page opens."""

PICTURE_LIMIT = 200_000
"""Bytes of a thumbnail that is still embedded; anything larger was not made by us."""

PICTURE_KINDS = {b"\xff\xd8\xff": "jpeg", b"\x89PNG": "png", b"RIFF": "webp"}

PROTOCOLS: dict[Protocol, str] = {
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
    run: StoredRun
    matrix: Markup
    distances: tuple[Markup, str] | None
    confusion: list[tuple[Any, Markup]]
    map: Markup | None
    curves: list[tuple[int, Markup, str]]
    losses: tuple[Markup, list[tuple[str, str]]] | None
    discovered: list[Category]
    known: list[Category]


def write_page(runs: list[StoredRun], path: Path, protocol: Protocol = "agnostic") -> None:
    """Write the page of `runs` to `path`."""
    write_text(path, render_page(runs, protocol))


def render_page(runs: list[StoredRun], protocol: Protocol = "agnostic") -> str:
    """The page of `runs` as HTML; `protocol` is that of the comparison's figures."""
    if not runs:
        raise CampError("There is no run to report; give at least one run folder.")
    groups = group_runs(runs)
    names = _names(groups)
    views = _views(groups, names)
    best = headline.best(groups)
    kinds: tuple[Group, ...] = GROUPS if has_novel(groups) else ("all",)
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
        lead=headline.lead(groups, names),
        groups=list(zip(groups, names, [group_style(i) for i in range(len(groups))])),
        views=views,
        best=best,
        best_name=names[groups.index(best)],
        tiles=headline.tiles(best),
        protocol=None if protocol == "agnostic" else PROTOCOLS[protocol],
        table=comparison(groups, protocol),
        winners=headline.winners(groups, protocol),
        kinds=kinds,
        incremental=all(run.results.all_labelled for run in runs),
        protocols=_protocols(groups, kinds),
        lines=[
            (kind, drawn) for kind in kinds if (drawn := figures.accuracy_after_tasks(groups, names, kind))
        ],
        bars=figures.known_and_novel(groups, names),
        task_colours=[colour(t) for t in range(max(len(run.results.tasks) for run in runs))],
    )


def _title(runs: list[StoredRun]) -> str:
    return " and ".join(dict.fromkeys(run.results.dataset_title for run in runs))


def _names(groups: list[RunGroup]) -> list[str]:
    """Labels that are enough outside a table: with exemplars, tasks and data set where these differ."""
    names = [group.label for group in groups]
    if len({group.first.results.exemplars for group in groups}) > 1:
        names = [f"{name}, {group.first.results.exemplars} exemplars" for name, group in zip(names, groups)]
    if len({group.first.results.tasks_planned for group in groups}) > 1:
        names = [f"{name}, {group.first.results.tasks_planned} tasks" for name, group in zip(names, groups)]
    if len({group.first.results.dataset for group in groups}) > 1:
        names = [f"{name}, {group.first.results.dataset}" for name, group in zip(names, groups)]
    return names


def _protocols(
    groups: list[RunGroup], kinds: tuple[Group, ...]
) -> list[list[tuple[str, list[Spread | None]]]]:
    """For each group and protocol its name and final accuracy on the `kinds` of classes."""
    blocks = []
    for group in groups:
        block = []
        for key, name in PROTOCOLS.items():
            summaries = [run.results.summary.get(key) for run in group.runs]
            finals = [summary.final for summary in summaries if summary]
            block.append((name, [spread([final[kind] for final in finals]) for kind in kinds]))
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
                Category(facts, _pictures(run, facts) if first else []) for facts in run.results.categories
            ]
            views.append(
                RunView(
                    id=f"run{len(views)}",
                    name=f"{name}, seed {run.results.seed}" if several else name,
                    colour=group_style(g),
                    shown=first and g < SHOWN_AT_FIRST,
                    run=run,
                    matrix=figures.accuracy_matrix(run),
                    distances=figures.centroid_distances(run),
                    confusion=figures.task_confusion(run),
                    map=figures.latent_space(run),
                    curves=figures.estimated_k(run),
                    losses=figures.losses(run),
                    discovered=[category for category in categories if category.facts.kind == "novel"],
                    known=[category for category in categories if category.facts.kind == "known"],
                )
            )
    return views


def _pictures(run: StoredRun, category: CategoryResults) -> list[str]:
    """Data addresses of the thumbnails that lie in the run folder and are pictures."""
    addresses = []
    for name in category.images:
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
