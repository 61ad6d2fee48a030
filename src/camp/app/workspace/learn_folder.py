"""`camp learn`: a folder of pictures into a workspace, all of it or nothing."""

import contextlib
import csv
import datetime
import io
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from camp.app.workspace.batch_input import Arrivals, read_arrivals, settled
from camp.app.workspace.folder import Workspace, WorkspaceSettings
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.learning import Arrived, Learned, learn
from camp.app.workspace.load_model import load_tip_into
from camp.app.workspace.names import near_misses
from camp.app.workspace.overview import most_doubtful, typical
from camp.app.workspace.status import after_learning, many
from camp.app.workspace.steps import new_step, save_step
from camp.app.workspace.thumbnails import SIDE, representatives, save_thumbnail
from camp.app.workspace.training_budget import Plan, expected_seconds, plan
from camp.core.errors import CampError
from camp.core.files import write_text
from camp.core.progress import Progress, clock
from camp.core.seeds import generator
from camp.data.bank.bank import Bank, BankSpec, BankViews
from camp.data.bank.fill import Filled, fill
from camp.data.bank.pipeline import ahead
from camp.data.datasets.base import FileReader, Reader
from camp.data.fresh_views import Lens, views_of
from camp.data.images import BadImage
from camp.data.view_settings import Augmentation, ViewSettings
from camp.nn.backbones import make_backbone
from camp.nn.backbones.base import Backbone

CROP_SCALE = 0.3
"""Smallest share of the area a random crop keeps, as for folders of classes in `camp run`."""
BAD_SHARE = 0.5
"""A batch of which more than this share can not be read is a mistake."""


@dataclass(frozen=True)
class Batch:
    """What `camp learn` is asked to learn."""

    folder: Path
    csv: Path | None = None
    """Labels beside those of the folders."""
    new: int | None = None
    """New categories among the unlabelled pictures; None estimates them."""
    epochs: int | None = None
    """Passes of training; None: by the size of the batch."""
    views: int | None = None
    """Augmented views of a picture; None: by the size of the batch."""


def learn_folder(
    path: Path, batch: Batch, begin: WorkspaceSettings | None, progress: Progress
) -> dict[str, Any]:
    """Learn `batch` into the workspace `path`, which is made with the settings `begin` if it is not there.

    Returns the report. Until everything is written the workspace is as it was before.
    """
    begun = time.monotonic()
    if batch.new is not None and batch.new < 0:
        raise CampError(f"--new counts categories and can not be {batch.new}; 0 means that there are none.")
    _apart(path, batch.folder)
    arrivals = read_arrivals(batch.folder, batch.csv)
    unlabelled = arrivals.labels.count(None)
    if batch.new is not None and batch.new > unlabelled > 0:
        raise CampError(
            f"--new {batch.new} asks for more categories than there are pictures without a label, {unlabelled}."
        )
    labelled = len(arrivals.keys) - unlabelled
    chosen = plan(len(arrivals.keys), labelled, batch.epochs, batch.views)
    exists = Workspace.there(path)
    if exists and begin is not None and begin != Workspace.open(path).settings:
        raise CampError(
            f"{path} was begun with other settings and keeps them: leave out options of the backbone, --seed and "
            "--thumbnails, or begin another workspace."
        )
    workspace = Workspace.open(path) if exists else None
    settings = workspace.settings if workspace else begin or WorkspaceSettings()
    if settings.backbone.backbone == "embeddings":
        raise CampError(
            "The backbone embeddings takes vectors, not pictures; use camp.CAMP in Python for it."
        )
    with progress.track("Opening the backbone", 1):
        backbone = make_backbone(settings.backbone, generator(settings.seed, "backbone"))
    if workspace is not None:
        return _learn(workspace, backbone, arrivals, batch, chosen, begun, progress)
    workspace = Workspace.begin(path, settings)
    try:
        return _learn(workspace, backbone, arrivals, batch, chosen, begun, progress)
    except CampError:  # nothing was learned, so there is nothing to keep; after an interruption the bank is
        if not workspace.learned():
            shutil.rmtree(path, ignore_errors=True)
        raise


def _learn(
    workspace: Workspace,
    backbone: Backbone,
    arrivals: Arrivals,
    batch: Batch,
    chosen: Plan,
    begun: float,
    progress: Progress,
) -> dict[str, Any]:
    """The pictures through the trunk, the learning, and the writing; `begun` is when the command was given."""
    name = batch.folder.resolve().name
    with workspace.alone(progress):
        known = _known(workspace, backbone)
        for remark in near_misses(_names(arrivals.labels), _names(known.named() if known else ())):
            progress.note(remark)
        seconds = expected_seconds(backbone, len(arrivals.keys), chosen)
        progress.note(f"{_described(arrivals, chosen)} This takes about {clock(max(seconds, 1))}.")
        reader, bank = FileReader(arrivals.root), workspace.path / "bank"
        filled, views = through_trunk(backbone, reader, arrivals.keys, chosen, bank, progress)
        arrivals, remarks = settled(arrivals, filled.digests)
        _check_readable(filled.bad, len(arrivals.keys), progress)
        for remark in remarks:
            progress.note(remark)
        trunk_seconds = time.monotonic() - begun
        arrived = Arrived(
            files=[f"{name}/{key}" for key in arrivals.keys],
            digests=np.array([list(filled.digests[key]) for key in arrivals.keys], dtype=np.uint8),
            labels=arrivals.labels,
            views=views([filled.digests[key] for key in arrivals.keys]),
        )
        learned = learn(
            known,
            backbone,
            arrived,
            new=batch.new,
            epochs=chosen.epochs,
            seed=workspace.settings.seed,
            progress=progress,
        )
        report = learned.report
        report |= {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "folder": name,
            "unreadable": len(filled.bad),
            "remarks": remarks,
        }
        report["seconds"] |= {"trunk": trunk_seconds, "total": time.monotonic() - begun}
        _commit(workspace, learned, arrivals, filled.bad, progress)
    return report


def _known(workspace: Workspace, backbone: Backbone) -> Knowledge | None:
    """What earlier batches taught, with the tip that they trained in `backbone`."""
    if not workspace.learned():
        return None
    knowledge = workspace.knowledge()
    load_tip_into(workspace, backbone, knowledge.step)
    return knowledge


def _apart(path: Path, folder: Path) -> None:
    """Refuse a workspace among the pictures, whose thumbnails would be learned, and pictures inside the workspace."""
    ours, theirs = (Path(os.path.realpath(place)) for place in (path, folder))
    if ours == theirs or ours in theirs.parents or theirs in ours.parents:
        raise CampError(
            f"The workspace {path} and the pictures {folder} must be apart; choose another folder."
        )


def _names(labels: Any) -> list[str]:
    return sorted({label for label in labels if label is not None})


def _described(arrivals: Arrivals, chosen: Plan) -> str:
    """The batch and the plan in a sentence."""
    labelled = sum(label is not None for label in arrivals.labels)
    names = len(_names(arrivals.labels))
    where = f" in {many(names, 'category')}" if names else ""
    training = "features as they are"
    if chosen.epochs:
        training = f"{many(chosen.epochs, 'epoch')} on {chosen.views} views each"
    return f"{many(len(arrivals.keys), 'picture')}, {labelled} of them labelled{where}; {training}."


def through_trunk(
    backbone: Backbone, reader: Reader, keys: Sequence[str], chosen: Plan, folder: Path, progress: Progress
) -> tuple[Filled, Callable[[Sequence[bytes]], BankViews]]:
    """Pictures through the trunk, into a bank in `folder`; and views of them by their fingerprints."""
    settings = ViewSettings(augmentations=max(chosen.views, 2), bank=str(folder))
    augmentation = Augmentation(crop_scale=CROP_SCALE)
    bank = Bank.at(settings, BankSpec.of(backbone, settings, augmentation))
    with_augmented = set(keys) if chosen.views else set()
    filled = fill(bank, backbone, reader, keys, with_augmented, progress)
    bank = Bank(bank.folder, bank.spec)
    device = backbone.device
    lens = Lens(backbone, augmentation, backbone.mean, backbone.std)

    return filled, lambda digests: views_of(bank, digests, device, lens)


def _check_readable(bad: Mapping[str, str], readable: int, progress: Progress) -> None:
    if not bad:
        return
    first = min(bad)
    if not readable or len(bad) > BAD_SHARE * (readable + len(bad)):
        raise CampError(
            f"{len(bad)} of {readable + len(bad)} pictures can not be read (first: {first}: {bad[first]}), so nothing "
            "was learned; mend or remove them."
        )
    left = "is left out" if len(bad) == 1 else "are left out"
    progress.note(f"{many(len(bad), 'picture')} can not be read and {left} (first: {first}: {bad[first]}).")


def _commit(
    workspace: Workspace, learned: Learned, arrivals: Arrivals, bad: Mapping[str, str], progress: Progress
) -> None:
    """Write the step, and enter it in the log as the last thing."""
    knowledge = learned.knowledge
    knowledge.pictures.features = knowledge.pictures.features.astype(np.float16)
    with _removed_unless_done() as written:
        _thumbnails(workspace, learned, arrivals, written, progress)
        with progress.track("Writing", 1), new_step(workspace.step_folder(knowledge.step)) as folder:
            save_step(folder, knowledge, learned.tip, learned.report)
            write_text(folder / "report.txt", after_learning(learned.report, str(workspace.path)) + "\n")
            if bad:
                text = io.StringIO()
                csv.writer(text).writerows([("picture", "reason"), *sorted(bad.items())])
                write_text(folder / "unreadable.csv", text.getvalue())
        workspace.enter_step(knowledge.step, {"folder": learned.report["folder"], "trunk": learned.trunk})


def _thumbnails(
    workspace: Workspace, learned: Learned, arrivals: Arrivals, written: list[Path], progress: Progress
) -> None:
    """Small pictures of the batch's representatives; the files that are new are added to `written`."""
    knowledge, most = learned.knowledge, workspace.settings.thumbnails
    mine = knowledge.pictures.steps == knowledge.step
    rows: list[int] = []
    for category in learned.report["categories"] if most else ():
        doubtful = most_doubtful(knowledge, learned.seen, category["id"])
        ordered = typical(knowledge, learned.seen, category["id"])
        rows += representatives(doubtful[mine[doubtful]].tolist(), ordered[mine[ordered]].tolist(), most)
    reader, prefix = FileReader(arrivals.root), f"{learned.report['folder']}/"

    def one(row: int) -> None:
        path = workspace.thumbnail(knowledge.pictures.digests[row])
        if path.exists():
            return
        with contextlib.suppress(BadImage, OSError):  # gone since it was learned: it has no thumbnail
            picture = reader.decode(
                reader.read(knowledge.pictures.files[row].removeprefix(prefix)), at_least=SIDE
            )
            if isinstance(picture, Image.Image):
                written.append(path)
                save_thumbnail(picture, path)

    with progress.track("Thumbnails", len(rows)) as bar:
        for _ in ahead(one, rows):
            bar.advance()


@contextlib.contextmanager
def _removed_unless_done() -> Iterator[list[Path]]:
    """A list of files, which are removed if what is inside the `with` fails."""
    files: list[Path] = []
    try:
        yield files
    except BaseException:
        for file in files:
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
        raise
