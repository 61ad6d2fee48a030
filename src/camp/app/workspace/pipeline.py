"""Learning a batch from end to end, all of it or nothing: images through the trunk, learning, storing.

`camp learn` (`learn_folder`) and `camp.CAMP` use the same path (`learn_batch`).
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from camp.app.inputs.base import BatchInput, ImageInput, InputError
from camp.app.inputs.folders import FolderImages
from camp.app.inputs.vectors import NOT_FINITE, VectorBatch
from camp.app.workspace.knowledge import Knowledge, count
from camp.app.workspace.learning import ImageBatch, LearnedBatch, learn
from camp.app.workspace.report import BatchReport
from camp.app.workspace.storage import FolderStorage, WorkspaceGoneError, WorkspaceSettings
from camp.app.workspace.thumbnails import ThumbnailReader, new_thumbnails
from camp.app.workspace.training_budget import TrainingBudget, expected_seconds, training_budget
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError
from camp.core.progress import Progress, format_duration
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.fill import FillResult, fill
from camp.data.bank.views import BankViews, ViewRenderer, open_bank_views
from camp.data.datasets.base import Reader
from camp.data.vector_views import VectorViews
from camp.data.view_settings import Augmentation, ViewSettings
from camp.nn.backbones.base import Backbone

CROP_SCALE = 0.3
"""Smallest share of the area that a random crop keeps, as for folders of classes in `camp run`."""
VECTORS = "embeddings"
"""The backbone that takes vectors instead of images."""


@dataclass(frozen=True)
class LearnRequest:
    """A batch and how it is learned."""

    images: BatchInput
    new: int | None = None
    """Number of new categories among the unlabelled images; None estimates it."""
    epochs: int | None = None
    """Number of training epochs; None chooses by the size of the batch."""
    views: int | None = None
    """Augmented views per image; None chooses by the size of the batch."""


def learn_folder(
    path: Path, request: LearnRequest, settings: WorkspaceSettings | None, progress: Progress
) -> BatchReport:
    """Learn a batch into the workspace `path`. Until everything is stored the workspace is as it was.

    The workspace is created with `settings` if it does not exist; an existing one must have equal settings.
    """
    if isinstance(request.images, FolderImages):
        _check_separate(path, request.images.root)
    while True:
        try:
            if FolderStorage.exists(path):
                present = FolderStorage.open(path).settings
                _check_settings(path, present, settings, request.images)
                return learn_batch(Workspace.open(path), request, progress)
            report = _learn_first(path, request, _new_settings(settings, request.images), progress)
            if report is not None:
                return report
        except WorkspaceGoneError:  # another process could not learn the first batch, and has cleared it away
            continue


def _learn_first(
    path: Path, request: LearnRequest, settings: WorkspaceSettings, progress: Progress
) -> BatchReport | None:
    """Create a workspace with its first batch; None if another process has created it in the meantime."""
    plan(request, settings)
    workspace = Workspace.in_memory(settings)
    with progress.track("Opening the backbone", 1):
        workspace.backbone()
    # The folder is created only now, so that mistakes in the options leave nothing behind.
    storage = FolderStorage.reserve(path, settings)
    with storage.lock(progress):
        if FolderStorage.exists(path):
            return None
        storage.begin()
        workspace.storage = storage
        try:
            return learn_batch(workspace, request, progress)
        except Exception:  # nothing was learned; after an interruption the view bank is kept
            if not workspace.learned():
                storage.remove()
            raise


def _check_settings(
    path: Path, present: WorkspaceSettings, given: WorkspaceSettings | None, images: BatchInput
) -> None:
    """Refuse other settings than those of the workspace, and a batch that its backbone does not take."""
    if given is not None and given != present:
        raise CampError(
            f"{path} was created with other settings and keeps them: leave out options of the backbone, --seed and "
            "--thumbnails, or create another workspace."
        )
    takes_vectors, has_vectors = present.backbone.backbone == VECTORS, isinstance(images, VectorBatch)
    if takes_vectors != has_vectors:
        kinds = ("vectors", "pictures") if takes_vectors else ("pictures", "vectors")
        raise CampError(
            f"{path} was created with {kinds[0]}, and {images.name} holds {kinds[1]}; create another workspace."
        )
    if isinstance(images, VectorBatch) and images.vectors.shape[1] != present.backbone.dim:
        raise CampError(
            f"The vectors of {images.name} have {images.vectors.shape[1]} numbers, and {path} was created with vectors "
            f"of {present.backbone.dim}; create another workspace."
        )


def _new_settings(given: WorkspaceSettings | None, images: BatchInput) -> WorkspaceSettings:
    """Return the settings of a new workspace; those of the backbone for vectors depend on the first batch."""
    settings = given or WorkspaceSettings()
    named = settings.backbone.backbone
    if not isinstance(images, VectorBatch):
        if named == VECTORS:
            raise CampError(
                "The backbone embeddings takes vectors, not pictures; give an .npy or .npz file of vectors."
            )
        return settings
    if settings.backbone.weights is not None or named not in (None, VECTORS):
        raise CampError(
            f"{images.name} holds vectors, which need no network; leave out --backbone and --weights."
        )
    backbone = settings.backbone.with_name(VECTORS).with_vectors(images.vectors)
    return dataclasses.replace(settings, backbone=backbone)


def learn_batch(workspace: Workspace, request: LearnRequest, progress: Progress) -> BatchReport:
    """Learn a batch of images or vectors; the workspace changes once everything is stored.

    A `KeyboardInterrupt` after that carries a sentence that says so.
    """
    budget, learned = plan(request, workspace.settings), None
    try:
        with workspace.storage.lock(progress):
            images, reader = request.images, None
            if isinstance(images, ImageInput):
                reader = ThumbnailReader(images.reader, workspace.storage)
            learned = _learn_next(workspace, request, reader, budget, progress)
            _store(workspace, learned, reader, progress)
    except KeyboardInterrupt as stop:
        if learned is not None and workspace.storage.holds(learned.step):
            raise KeyboardInterrupt(learned.step.report.stored_sentence()) from stop
        raise
    return learned.step.report


def _learn_next(
    workspace: Workspace,
    request: LearnRequest,
    reader: ThumbnailReader | None,
    budget: TrainingBudget,
    progress: Progress,
) -> LearnedBatch:
    """Learn a batch, and change nothing; the lock must be held."""
    started, images = time.monotonic(), request.images
    with progress.track("Opening the backbone", 1):
        backbone = workspace.backbone()
    known = workspace.knowledge() if workspace.learned() else Knowledge.empty(backbone.dim)
    _announce(images, budget, list(known.named()), backbone, progress)
    with workspace.storage.bank() as folder:
        if isinstance(images, VectorBatch):
            batch = _vector_batch(images, known, backbone, started, progress)
        else:
            assert isinstance(images, ImageInput)
            assert reader is not None
            batch = _image_batch(images, known, backbone, reader, budget, folder, started, progress)
        if bad := batch.unreadable:
            first, left = min(bad.items()), "is" if len(bad) == 1 else "are"
            progress.note(
                f"{count(len(bad), 'picture')} cannot be read and {left} left out (first: {first[0]}: {first[1]})."
            )
        for remark in batch.images.remarks:
            progress.note(remark)
        seed = workspace.settings.seed
        learned = learn(
            known, backbone, batch, new=request.new, epochs=budget.epochs, seed=seed, progress=progress
        )
    if backbone.resolution:  # the range of vectors is not known
        table = learned.step.knowledge.images
        table.features = table.features.astype(np.float16)
    return dataclasses.replace(learned, step=dataclasses.replace(learned.step, trunk=backbone.fingerprint))


def _image_batch(
    images: ImageInput,
    known: Knowledge,
    backbone: Backbone,
    reader: ThumbnailReader,
    budget: TrainingBudget,
    folder: Path,
    started: float,
    progress: Progress,
) -> ImageBatch:
    """Run images through the trunk."""
    filled, views_of_digests = fill_bank(backbone, reader, images.keys, budget, folder, progress)
    readable = images.readable(filled.digests, filled.bad, known.images.digests, known.step)
    return ImageBatch(
        images=readable,
        views=views_of_digests([filled.digests[key] for key in readable.keys]),
        name=images.name,
        numeric_labels=images.numeric_labels,
        unreadable=filled.bad,
        started=started,
    )


def _vector_batch(
    images: VectorBatch, known: Knowledge, backbone: Backbone, started: float, progress: Progress
) -> ImageBatch:
    """Take vectors as they are: they have no trunk, and where they are is as good as a view bank."""
    digests, finite = images.digests(progress)
    rows, readable = images.readable(digests, finite, known.images.digests, known.step)
    augmentation = Augmentation(crop_scale=CROP_SCALE)
    return ImageBatch(
        images=readable,
        views=VectorViews(images.vectors, rows, digests[rows], backbone.device, augmentation),
        name=images.name,
        numeric_labels=images.numeric_labels,
        unreadable={images.keys[row]: NOT_FINITE for row in np.flatnonzero(~finite).tolist()},
        started=started,
    )


def _store(
    workspace: Workspace, learned: LearnedBatch, reader: ThumbnailReader | None, progress: Progress
) -> None:
    """Write thumbnails of images, and the step; the lock must be held."""
    thumbnails: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if reader is not None:
        thumbnails = new_thumbnails(workspace.storage, learned, reader, progress)
    with thumbnails, progress.track("Writing", 1):
        workspace.add_step(learned.step)


def plan(request: LearnRequest, settings: WorkspaceSettings) -> TrainingBudget:
    """Choose views and epochs for a batch; refuse options that contradict it."""
    new, labels = request.new, request.images.labels
    unlabelled = sum(label is None for label in labels)
    if new is not None and new < 0:
        raise InputError(
            f"The number of new categories cannot be negative, and {new} is; 0 means that there are none."
        )
    if new is not None and new > unlabelled > 0:
        raise InputError(
            f"{new} new categories are more than there are pictures without a label, {unlabelled}; ask for fewer."
        )
    # Vectors may come from any source: they are trained on only if epochs are given.
    labelled = 0 if settings.backbone.backbone == VECTORS else len(labels) - unlabelled
    return training_budget(len(labels), labelled, request.epochs, request.views)


def fill_bank(
    backbone: Backbone,
    reader: Reader,
    keys: Sequence[str],
    budget: TrainingBudget,
    folder: Path,
    progress: Progress,
) -> tuple[FillResult, Callable[[Sequence[bytes]], BankViews]]:
    """Run images through the trunk into a view bank in `folder`; return also a function from digests to views."""
    settings = ViewSettings(augmentations=max(budget.views, 2), bank=str(folder))
    augmentation = Augmentation(crop_scale=CROP_SCALE)
    bank = Bank.open(settings, BankSpec.for_encoder(backbone, settings, augmentation))
    with_augmented = set(keys) if budget.views else set()
    filled = fill(bank, backbone, reader, keys, with_augmented, progress)
    bank = Bank(bank.folder, bank.spec)
    renderer = ViewRenderer(backbone, augmentation, backbone.mean, backbone.std)
    return filled, lambda digests: open_bank_views(bank, digests, backbone.device, renderer)


def _announce(
    images: BatchInput, budget: TrainingBudget, names: Sequence[str], backbone: Backbone, progress: Progress
) -> None:
    """Say what is going to be learned, and how long it takes."""
    if progress.quiet:
        return
    for warning in images.warnings(names):
        progress.note(warning)
    labels = [label for label in images.labels if label is not None]
    where = f" in {count(len(set(labels)), 'category')}" if labels else ""
    training = "features as they are"
    if budget.epochs:
        training = f"{count(budget.epochs, 'epoch')} on {budget.views} views each"
    seconds = expected_seconds(backbone, len(images.keys), budget)
    progress.note(
        f"{count(len(images.keys), 'picture')}, {len(labels)} of them labelled{where}; {training}. "
        f"This takes about {format_duration(max(seconds, 1))}."
    )


def _check_separate(path: Path, folder: Path) -> None:
    """Refuse a workspace among the images, whose thumbnails would be learned, and images inside the workspace."""
    ours, theirs = (Path(os.path.realpath(place)) for place in (path, folder))
    if ours == theirs or ours in theirs.parents or theirs in ours.parents:
        raise CampError(
            f"The workspace {path} and the pictures {folder} must be apart; choose another folder."
        )
