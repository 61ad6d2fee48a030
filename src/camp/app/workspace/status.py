"""The text of `camp status`."""

from camp.app.workspace.history import standing
from camp.app.workspace.knowledge import CLUSTERED, Knowledge, count
from camp.app.workspace.overview import needs
from camp.app.workspace.workspace import Workspace
from camp.core.types import FALSE_ALARMS


def status_text(workspace: Workspace) -> str:
    """Describe categories, batches and decisions of a workspace."""
    knowledge, reports = workspace.knowledge(), workspace.reports()
    seen = workspace.overview(knowledge)
    doubtful, clustered = seen.doubtful(), knowledge.images.source == CLUSTERED
    why = needs(knowledge, seen)
    live = knowledge.live()
    nameless = sum(category.name is None for category in live)
    lines = [
        f"{workspace.name}: {len(live)} categories, {nameless} without a name; {len(knowledge.images)} pictures from "
        f"{len(reports)} batch{'es' * (len(reports) != 1)}.",
        f"{int((doubtful & clustered).sum())} of {int(clustered.sum())} pictures without a label are doubtful.",
        *_detection(knowledge),
        *_kept(knowledge),
        "",
        f"{'id':>4}  {'name':28} {'pictures':>8} {'labelled':>8} {'sure':>6}  what it needs",
    ]
    for category in sorted(live, key=lambda c: -why[c.id].score):
        rows = knowledge.rows_of(category.id)
        sure = f"{seen.confidence[rows].mean():.0%}" if len(rows) else "-"
        name = category.name if category.name is not None else "-"
        lines.append(
            f"{category.id:4}  {name:28} {len(rows):8} {int((~clustered[rows]).sum()):8} {sure:>6}  {why[category.id].reason}"
        )
    lines += ["", "Batches:"]
    for report in reports:
        new, back = len(report.of_kind("known")), len(report.of_kind("returned"))
        lines.append(
            f"{report.step:4}  {report.folder}: {report.n_images} pictures, {report.n_labelled} labelled; "
            f"{new} new with labels, {report.n_new} discovered, {back} seen before; sure {report.confidence:.0%}"
        )
    decisions = standing(workspace.events())
    if decisions:
        lines += [
            "",
            "Decided since the last batch:",
            *(f"      {decision.describe(knowledge)}" for decision in decisions),
        ]
    return "\n".join(lines)


def _detection(knowledge: Knowledge) -> list[str]:
    """Say how many pictures of unseen categories are called unknown, if it is known."""
    rate = knowledge.calibration.detection_rate(FALSE_ALARMS)
    if rate is None:
        return []
    return [
        f"Of pictures of kinds it has never seen about {100 * rate:.0f} % are called unknown, "
        f"at {100 * FALSE_ALARMS:g} % false alarms."
    ]


def _kept(knowledge: Knowledge) -> list[str]:
    """Say how many unknown pictures are kept, and how many categories they propose."""
    lines, pending = [], len(knowledge.pending())
    if pending:
        from camp.app.workspace.proposals import proposals  # imports torch and scikit-learn

        proposed = len(proposals(knowledge))
        lines.append(
            f"{count(pending, 'unknown picture')} {'is' if pending == 1 else 'are'} kept; "
            f"camp review shows {count(proposed, 'proposed category')}."
        )
    if outdated := knowledge.kept.outdated:
        lines.append(
            f"{count(outdated, 'unknown picture')} {'was' if outdated == 1 else 'were'} kept before the last training and "
            "cannot be compared any more; predict again with --keep-unknown."
        )
    return lines
