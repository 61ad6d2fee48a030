"""A workspace in words: what a batch taught, which categories there are, and how sure of them it is."""

from typing import Any

from camp.app.workspace.events import described, standing
from camp.app.workspace.folder import Workspace
from camp.app.workspace.knowledge import FOUND
from camp.app.workspace.model import called
from camp.app.workspace.overview import needs, overview
from camp.core.progress import clock

KINDS = {"known": "new, with labels", "returned": "seen before", "discovered": "discovered"}
SHOWN = 40
"""Categories of a batch that are listed after learning."""


def many(count: int, what: str) -> str:
    """So many of something.

    >>> many(1, "picture"), many(2, "category")
    ('1 picture', '2 categories')
    """
    plural = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{count} {what if count == 1 else plural}"


def after_learning(report: dict[str, Any], workspace: str) -> str:
    """What `camp learn` ends with."""
    rows = report["categories"]
    lines = [f"{report['folder']}: {many(report['pictures'], 'picture')}, {report['labelled']} with a label."]
    for kind, words in KINDS.items():
        some = [row for row in rows if row["kind"] == kind]
        if some:
            counts = [f"{called(row['id'], row['name'])} {row['pictures']}" for row in some[:SHOWN]]
            more = f", and {len(some) - SHOWN} more" if len(some) > SHOWN else ""
            lines.append(f"  {words:16} {len(some):3}   {', '.join(counts)}{more}")
    for link in report["linked"]:
        lines.append(
            f"  {link['name']} is what was discovered as category {link['id']} "
            f"({link['agree']:.0%} of its labelled pictures look like it)."
        )
    if report["repeated"]:
        lines.append(f"  {report['repeated']} pictures had been learned before and count once.")
    unlabelled = report["pictures"] - report["labelled"]
    lines.append(
        f"Doubtful: {report['doubtful']} of {unlabelled} unlabelled pictures. It took {clock(report['seconds']['total'])}."
    )
    if report["n_new"] or report["doubtful"]:
        lines.append(f"Look at them and name what is new: camp review {workspace}")
    return "\n".join(lines)


def as_status(workspace: Workspace) -> str:
    """What `camp status` prints."""
    knowledge, reports = workspace.knowledge(), workspace.reports()
    seen = overview(knowledge)
    doubtful, told = seen.doubtful(), knowledge.pictures.told != FOUND
    why = needs(knowledge, seen)
    live = knowledge.live()
    nameless = sum(category.name is None for category in live)
    found = int((~told).sum())
    lines = [
        f"{workspace.path}: {len(live)} categories, {nameless} without a name; {len(knowledge.pictures)} pictures from "
        f"{len(reports)} batch{'es' * (len(reports) != 1)}.",
        f"{int((doubtful & ~told).sum())} of {found} pictures without a label are doubtful.",
        "",
        f"{'id':>4}  {'name':28} {'pictures':>8} {'labelled':>8} {'sure':>6}  what it needs",
    ]
    for category in sorted(live, key=lambda c: -why[c.id].score):
        rows = knowledge.rows_of(category.id)
        sure = f"{seen.own[rows].mean():.0%}" if len(rows) else "-"
        name = category.name if category.name is not None else "-"
        lines.append(
            f"{category.id:4}  {name:28} {len(rows):8} {int(told[rows].sum()):8} {sure:>6}  {why[category.id].reason}"
        )
    lines += ["", "Batches:"]
    for report in reports:
        new = sum(row["kind"] == "known" for row in report["categories"])
        back = sum(row["kind"] == "returned" for row in report["categories"])
        lines.append(
            f"{report['step']:4}  {report['folder']}: {report['pictures']} pictures, {report['labelled']} labelled; "
            f"{new} new with labels, {report['n_new']} discovered, {back} seen before; sure {report['confidence']:.0%}"
        )
    decisions = standing(workspace.events())
    if decisions:
        lines += [
            "",
            "Decided since the last batch:",
            *(f"      {described(event, knowledge)}" for event in decisions),
        ]
    return "\n".join(lines)
