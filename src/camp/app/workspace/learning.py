"""Learning one batch: from what was known and the views of new pictures to what is known now. It opens no files."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from camp.app.workspace.category_ids import Link, Numbering, came_before, links, numbered
from camp.app.workspace.knowledge import FOUND, LABEL, NOWHERE, Category, Knowledge, Pictures
from camp.app.workspace.overview import Overview, open_set_of, overview
from camp.app.workspace.tsne_layout import laid_out
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.data.tasks import Task
from camp.data.views import Views
from camp.discovery.calibration import Members, Sureness, sureness
from camp.discovery.class_metric import Metric, fit_metric
from camp.methods.gccd.camp import CampSettings
from camp.methods.gccd.centroid_method import CentroidMethod
from camp.methods.gccd.open_world import FeatureMemory, make_open_world
from camp.methods.settings import Training
from camp.methods.trainer import clean_features
from camp.nn.backbones.base import Backbone

DIRECTIONS = 128
"""Dimensions of the points by which pictures are recognised, or twice the number of categories if that is more."""


@dataclass(frozen=True)
class Arrived:
    """The n pictures of a batch, readable and each once."""

    files: Sequence[str]
    digests: np.ndarray
    """(n, 16) uint8."""
    labels: Sequence[str | None]
    """Names, None where unlabelled."""
    views: Views


@dataclass(frozen=True)
class Learned:
    """What a batch left behind."""

    knowledge: Knowledge
    tip: dict[str, Tensor]
    trunk: str
    """Fingerprint of the trunk that the tip belongs to."""
    seen: Overview
    """Of all pictures, now."""
    report: dict[str, Any]


def learn(
    known: Knowledge | None,
    backbone: Backbone,
    arrived: Arrived,
    *,
    new: int | None,
    epochs: int,
    seed: int,
    progress: Progress,
) -> Learned:
    """Train on a batch, find its categories, carry the old ones along. The backbone's tip is that of `known`, and changes.

    `new` is the number of new categories among the unlabelled pictures, or None to estimate it. Without `epochs` the
    tip stays as it is.
    """
    begun = time.monotonic()
    known = known or _nothing(backbone.dim)
    kept, fresh = came_before(known, arrived.digests, arrived.labels)
    repeated = len(arrived.files) - len(fresh) + len(known.pictures) - len(kept)
    known = dataclasses.replace(known, pictures=_rows(known.pictures, kept))
    arrived = _some(arrived, fresh)
    old = [id for id, count in known.counts().items() if count]
    linked = _linked(known, old, backbone, arrived, progress)
    numbering = numbered(known, old, arrived.labels, linked)

    held = np.flatnonzero(known.pictures.category != NOWHERE)
    memory = FeatureMemory(
        features=torch.from_numpy(np.asarray(known.pictures.features[held], dtype=np.float32)),
        positions=torch.from_numpy(np.searchsorted(old, known.pictures.category[held])),
    )
    settings = CampSettings(training=Training(epochs=epochs))
    method = make_open_world(backbone, settings, memory, seed, backbone.device)
    free = int((numbering.labels == UNLABELLED).sum())
    task = Task(known.step, arrived.views, numbering.labels, new if free else 0, None)
    method.start_task(task, progress)
    _train(method, progress)
    trained = time.monotonic()
    method.finish_task(progress)

    after = _measured(_remembered(known, held, method, memory, numbering, arrived))
    layout = laid_out(
        after.pictures.features, after.pictures.category, known.pictures.positions, seed, progress
    )
    after = dataclasses.replace(after, pictures=dataclasses.replace(after.pictures, positions=layout))
    seen = overview(after)
    report = {
        **_report(after, seen, method, memory, old, linked),
        "new_given": new is not None,
        "repeated": repeated,
        "epochs": epochs,
        "views": arrived.views.augmentations if epochs else 0,
        "seconds": {"train": trained - begun, "discover": time.monotonic() - trained},
    }
    tip = {name: tensor.detach().cpu().clone() for name, tensor in method.tip.state_dict().items()}
    return Learned(after, tip, backbone.fingerprint, seen, report)


def _nothing(dim: int) -> Knowledge:
    """Before the first batch."""
    none = Pictures(
        files=[],
        digests=np.empty((0, 16), np.uint8),
        steps=np.empty(0, np.int32),
        category=np.empty(0, np.int32),
        told=np.empty(0, np.uint8),
        features=np.empty((0, dim), np.float32),
        points=np.empty((0, 1), np.float32),
        positions=np.empty((0, 2), np.float32),
    )
    metric = Metric(torch.zeros(dim), torch.zeros(dim, 1), torch.zeros(1), unit=True)
    return Knowledge(0, {}, none, metric, Sureness())


def _rows(pictures: Pictures, rows: np.ndarray) -> Pictures:
    """Some of the pictures."""
    if len(rows) == len(pictures):
        return pictures
    columns = ("digests", "steps", "category", "told", "features", "points", "positions")
    some = {name: np.asarray(getattr(pictures, name))[rows] for name in columns}
    return Pictures(files=[pictures.files[row] for row in rows], **some)


def _some(arrived: Arrived, rows: np.ndarray) -> Arrived:
    """Some of a batch, at least one."""
    if len(rows) == len(arrived.files):
        return arrived
    if not len(rows):
        raise CampError(
            f"All {len(arrived.files)} pictures have been learned before and bring no new label: there is nothing to learn."
        )
    return Arrived(
        files=[arrived.files[row] for row in rows],
        digests=arrived.digests[rows],
        labels=[arrived.labels[row] for row in rows],
        views=arrived.views.subset(torch.from_numpy(rows)),
    )


def _linked(
    known: Knowledge, old: list[int], backbone: Backbone, arrived: Arrived, progress: Progress
) -> list[Link]:
    """Names that belong to categories discovered earlier, by the old features, which no centroid had to be carried to."""
    fresh = {label for label in arrived.labels if label is not None} - set(known.named())
    rows = [row for row, label in enumerate(arrived.labels) if label in fresh]
    if not rows or not old:
        return []
    views = arrived.views.subset(torch.tensor(rows))
    z = clean_features(backbone.tip, views, progress, "Looking for old kinds")
    answers = open_set_of(known)[1].answer(known.metric(z))
    nearest = answers.nearest.masked_fill(answers.unknown, NOWHERE)
    return links(known, old, [arrived.labels[row] for row in rows], nearest.tolist())


def _train(method: CentroidMethod, progress: Progress) -> None:
    """Phase 1."""
    if not method.epochs:
        return
    with progress.track("Training", method.epochs) as bar:
        for epoch in range(method.epochs):
            terms = method.train_epoch(epoch)
            bar.advance()
            bar.say(f"epoch {epoch + 1}, loss {terms['loss']:.3f}")
            if not np.isfinite(terms["loss"]):
                raise CampError(f"The loss became {terms['loss']} in epoch {epoch + 1}; try fewer epochs.")


def _remembered(
    known: Knowledge,
    held: np.ndarray,
    method: CentroidMethod,
    memory: FeatureMemory,
    numbering: Numbering,
    arrived: Arrived,
) -> Knowledge:
    """Old categories and pictures with those of the batch; positions become ids. Positions on the map come later."""
    step, next_id = known.step + 1, max(known.next_id(), *(id + 1 for id in numbering.ids), 1)
    categories, ids = dict(known.categories), list(numbering.ids)
    for id in ids:
        name = numbering.names.get(id)
        if id not in categories:
            categories[id] = Category(id, name, step, "labelled")
        elif name is not None:
            categories[id] = dataclasses.replace(categories[id], name=name)
    assigned = method.assigned().numpy()
    for position in range(len(ids), len(method.categories)):
        if (assigned == position).any():  # an empty cluster is no category
            categories[next_id] = Category(next_id, None, step, "discovered")
            ids.append(next_id)
            next_id += 1
        else:
            ids.append(NOWHERE)
    carried = np.asarray(known.pictures.features, dtype=np.float32).copy()
    carried[held] = memory.features.numpy()
    n = len(arrived.files)
    told = np.where(numbering.labels.numpy() == UNLABELLED, FOUND, LABEL).astype(np.uint8)
    before = known.pictures
    pictures = Pictures(
        files=[*before.files, *arrived.files],
        digests=np.concatenate([before.digests, arrived.digests]),
        steps=np.concatenate([before.steps, np.full(n, step, np.int32)]),
        category=np.concatenate([before.category, np.array(ids, np.int32)[assigned]]),
        told=np.concatenate([before.told, told]),
        features=np.concatenate([carried, method.task_features.numpy()]),
        points=np.empty((0, 1), np.float32),
        positions=np.concatenate([before.positions, np.zeros((n, 2), np.float32)]),
    )
    return Knowledge(step, categories, pictures, known.metric, known.sure, known.apart, known.used)


def _measured(knowledge: Knowledge) -> Knowledge:
    """The metric that the pictures make by their categories, and their points under it."""
    pictures = knowledge.pictures
    kept = pictures.category != NOWHERE
    ids, positions = np.unique(pictures.category[kept], return_inverse=True)
    features = torch.from_numpy(pictures.features)
    trusted = torch.from_numpy(pictures.told[kept] != FOUND)
    members = Members(features[kept], torch.from_numpy(positions), trusted)
    metric = fit_metric(members.features, members.positions, max(DIRECTIONS, 2 * len(ids)))
    sure = sureness(members, metric, len(ids))
    pictures = dataclasses.replace(pictures, points=metric(features).numpy())
    return dataclasses.replace(knowledge, pictures=pictures, metric=metric, sure=sure)


def _report(
    after: Knowledge,
    seen: Overview,
    method: CentroidMethod,
    memory: FeatureMemory,
    old: list[int],
    linked: list[Link],
) -> dict[str, Any]:
    """What the batch taught, in plain values."""
    mine = after.pictures.steps == after.step
    told = after.pictures.told != FOUND
    categories = []
    for id in np.unique(after.pictures.category[mine & (after.pictures.category != NOWHERE)]).tolist():
        rows = mine & (after.pictures.category == id)
        category = after.categories[id]
        kind = "returned" if id in old else "known" if category.origin == "labelled" else "discovered"
        categories.append(
            {
                "id": id,
                "name": category.name,
                "pictures": int(rows.sum()),
                "labelled": int((rows & told).sum()),
                "kind": kind,
            }
        )
    doubtful = seen.doubtful() & ~told & mine
    moved = []
    if method.drift is not None:
        steps = (method.drift.adapted - method.drift.stored).norm(dim=1)
        around = (memory.features - method.drift.adapted[memory.positions]).square().sum(dim=1)
        spread = float(around.mean().sqrt()) or 1.0
        moved = [{"id": id, "moved": float(step) / spread} for id, step in zip(old, steps)]
    return {
        "step": after.step,
        "pictures": int(mine.sum()),
        "labelled": int((mine & told).sum()),
        "n_new": sum(row["kind"] == "discovered" for row in categories),
        "curve": _curve(method),
        "categories": categories,
        "drift": moved,
        "linked": [vars(link) for link in linked],
        "doubtful": int(doubtful.sum()),
        "confidence": float(seen.own[mine].mean()),
    }


def _curve(method: CentroidMethod) -> list[list[float]] | None:
    """The estimate of the number of new categories, if there was one."""
    estimate = method.discovery.estimate if method.discovery is not None else None
    return [list(point) for point in estimate.curve] if estimate is not None else None
