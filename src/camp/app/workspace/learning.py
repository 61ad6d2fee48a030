"""Learning one batch: from earlier knowledge and the views of new images to new knowledge. It opens no files."""

import dataclasses
import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from camp.app.inputs.base import ReadableImages
from camp.app.workspace.category_ids import Numbering, find_links, number_labels, split_repeated
from camp.app.workspace.knowledge import CLUSTERED, DISCARDED, LABELLED, Category, Images, Knowledge
from camp.app.workspace.overview import LARGE, Overview, category_regions, metric_labels, overview
from camp.app.workspace.report import BatchReport, CategoryReport, CategoryShift, Link, Seconds
from camp.app.workspace.step_files import Step
from camp.core.errors import CampError
from camp.core.large_arrays import BLOCK, copy_rows, empty_array, row_blocks
from camp.core.progress import Progress
from camp.core.provenance import current_provenance
from camp.core.types import UNLABELLED
from camp.data.tasks import Task
from camp.data.views import Views
from camp.discovery.class_metric import MAX_SAMPLES, ClassMetric
from camp.discovery.held_out_calibration import Members, calibrate
from camp.discovery.open_set import OpenSet
from camp.discovery.open_world_discoverer import OpenWorldDiscoverer
from camp.methods.gccd.centroid_method import CentroidMethod
from camp.methods.gccd.open_world import FeatureMemory, make_open_world
from camp.methods.gccd.settings import CampSettings
from camp.methods.settings import Training
from camp.methods.trainer import clean_features
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class ImageBatch:
    """The n readable images of a batch, each once, and how they were given."""

    images: ReadableImages
    views: Views
    name: str
    numeric_labels: bool
    unreadable: Mapping[str, str]
    """Why other files of the batch could not be read, by file."""
    started: float
    """`time.monotonic()` when the command started."""

    def __len__(self) -> int:
        return len(self.images.files)

    def subset(self, rows: np.ndarray) -> "ImageBatch":
        """Return the batch with the images in `rows`, at least one."""
        if len(rows) == len(self):
            return self
        if not len(rows):
            raise CampError(
                f"All {len(self)} pictures have been learned before and bring no new label: there is nothing to learn."
            )
        images = dataclasses.replace(
            self.images,
            keys=[self.images.keys[row] for row in rows],
            files=[self.images.files[row] for row in rows],
            digests=self.images.digests[rows],
            labels=[self.images.labels[row] for row in rows],
        )
        return dataclasses.replace(self, images=images, views=self.views.subset(torch.from_numpy(rows)))


@dataclass(frozen=True)
class LearnedBatch:
    """The result of learning a batch."""

    step: Step
    keys: Sequence[str]
    """Keys of the images of the batch, which are the last rows of `step.knowledge.images`."""
    overview: Overview
    """Of all images, after the batch."""


def learn(
    known: Knowledge,
    backbone: Backbone,
    batch: ImageBatch,
    *,
    new: int | None,
    epochs: int,
    seed: int,
    progress: Progress,
) -> LearnedBatch:
    """Train on a batch, discover its categories, and adapt the old ones.

    Args:
        known: Knowledge of earlier batches.
        backbone: Its tip is that of `known`, and is trained in place.
        new: Number of new categories among the unlabelled images, or None to estimate it.
        epochs: Number of training epochs; 0 keeps the features as they are.
    """
    started = time.monotonic()
    kept, counting = split_repeated(known, batch.images.digests, batch.images.labels)
    repeated = len(batch) - len(counting) + len(known.images) - len(kept)
    known = known.with_images(kept)
    batch = batch.subset(counting)
    old = [id for id, count in known.counts().items() if count]
    links = _links(known, old, backbone, batch, progress)
    numbering = number_labels(known, old, batch.images.labels, links)

    memory, discoverer = _memory(known, old), OpenWorldDiscoverer()
    settings = CampSettings(training=Training(epochs=epochs))
    method = make_open_world(backbone, settings, memory, discoverer, seed, backbone.device)
    n_unlabelled = int((numbering.labels == UNLABELLED).sum())
    task = Task(known.step, batch.views, numbering.labels, new if n_unlabelled else 0, None)
    method.start_task(task, progress)
    _train(method, progress)
    trained = time.monotonic()
    method.finish_task(progress)
    assert method.discovery is not None
    assert discoverer.metric is not None

    after = _apply_metric(_add_batch(known, method, memory, numbering, batch), discoverer.metric)
    from camp.app.workspace.tsne_layout import tsne_layout  # imports scikit-learn

    positions = tsne_layout(
        after.images.features, after.images.category, known.images.positions, seed, progress
    )
    after = dataclasses.replace(after, images=dataclasses.replace(after.images, positions=positions))
    seen = overview(after, progress)
    estimate, now = method.discovery.estimate, time.monotonic()
    mine = after.images.steps == after.step
    clustered = after.images.source == CLUSTERED
    categories = _category_reports(after, old)
    report = BatchReport(
        step=after.step,
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        folder=batch.name,
        n_images=int(mine.sum()),
        n_labelled=int((mine & ~clustered).sum()),
        unreadable=len(batch.unreadable),
        repeated=repeated,
        n_new=sum(row.kind == "discovered" for row in categories),
        new_given=new is not None,
        numeric_labels=batch.numeric_labels,
        curve=list(estimate.curve) if estimate is not None else None,
        categories=categories,
        drift=_shifts(old, method, memory),
        linked=links,
        doubtful=int((seen.doubtful() & clustered & mine).sum()),
        confidence=float(seen.confidence[mine].mean()),
        epochs=epochs,
        views=batch.views.augmentations if epochs else 0,
        seconds=Seconds(started - batch.started, trained - started, now - trained, now - batch.started),
        remarks=list(batch.images.remarks),
        provenance=current_provenance(str(backbone.device)),
    )
    tip = {name: tensor.detach().cpu().clone() for name, tensor in method.tip.state_dict().items()}
    stored = seen.state() if len(after.images) > LARGE else None
    step = Step(after, tip, report, batch.unreadable, overview=stored)
    return LearnedBatch(step, batch.images.keys, seen)


def _links(
    known: Knowledge, old: list[int], backbone: Backbone, batch: ImageBatch, progress: Progress
) -> list[Link]:
    """Find new labels that are names of categories discovered earlier, by the features before training."""
    labels = batch.images.labels
    new = {label for label in labels if label is not None} - set(known.named())
    rows = [row for row, label in enumerate(labels) if label in new]
    if not rows or not old:
        return []
    views = batch.views.subset(torch.tensor(rows))
    features = clean_features(backbone.tip, views, progress, "Recognising the labelled pictures")
    answers = OpenSet.of(category_regions(known)[1]).answer(known.metric.transform(features))
    nearest = answers.nearest.masked_fill(answers.unknown, DISCARDED)
    return find_links(known, old, [labels[row] for row in rows], nearest.tolist())


def _memory(known: Knowledge, old: Sequence[int]) -> FeatureMemory:
    """Return the features of the images that were not discarded, with the positions of their categories."""
    rows = np.flatnonzero(known.images.category != DISCARDED)
    return FeatureMemory(
        features=torch.from_numpy(copy_rows(known.images.features, rows, np.float32)),
        positions=torch.from_numpy(np.searchsorted(old, known.images.category[rows])),
    )


def _train(method: CentroidMethod, progress: Progress) -> None:
    """Run the training epochs (phase 1)."""
    if not method.epochs:
        return
    with progress.track("Training", method.epochs) as bar:
        for epoch in range(method.epochs):
            terms = method.train_epoch(epoch)
            bar.advance()
            bar.say(f"epoch {epoch + 1}, loss {terms['loss']:.3f}")
            if not np.isfinite(terms["loss"]):
                raise CampError(f"The loss became {terms['loss']} in epoch {epoch + 1}; try fewer epochs.")


def _shifts(old: Sequence[int], method: CentroidMethod, memory: FeatureMemory) -> list[CategoryShift]:
    """Return how far the centroid of each old category moved; nothing in the first batch."""
    if method.drift is None:
        return []
    distances = (method.drift.adapted - method.drift.stored).norm(dim=1)
    parts = zip(memory.features.split(BLOCK), memory.positions.split(BLOCK))
    around = torch.cat([(x - method.drift.adapted[at]).square().sum(dim=1) for x, at in parts])
    spread = float(around.mean().sqrt()) or 1.0
    return [CategoryShift(id, float(distance) / spread) for id, distance in zip(old, distances)]


def _add_batch(
    known: Knowledge, method: CentroidMethod, memory: FeatureMemory, numbering: Numbering, batch: ImageBatch
) -> Knowledge:
    """Add categories and images of the batch; positions become ids. Metric and map positions are set later.

    `memory` holds the features of the earlier images in the new feature space.
    """
    assignments = method.assigned().numpy()
    filled = np.bincount(assignments, minlength=len(method.categories)) > 0
    step, next_id = known.step + 1, max(known.next_id(), *(id + 1 for id in numbering.ids), 1)
    categories, ids = dict(known.categories), list(numbering.ids)
    for id in ids:
        name = numbering.names.get(id)
        if id not in categories:
            categories[id] = Category(id, name, step, "labelled")
        elif name is not None:
            categories[id] = dataclasses.replace(categories[id], name=name)
    for position in range(len(ids), len(method.categories)):
        if filled[position]:  # an empty cluster is not a category
            categories[next_id] = Category(next_id, None, step, "discovered")
            ids.append(next_id)
            next_id += 1
        else:
            ids.append(DISCARDED)
    before, n = known.images, len(batch)
    source = np.where(numbering.labels.numpy() == UNLABELLED, CLUSTERED, LABELLED).astype(np.uint8)
    images = Images(
        files=[*before.files, *batch.images.files],
        digests=np.concatenate([before.digests, batch.images.digests]),
        steps=np.concatenate([before.steps, np.full(n, step, np.int32)]),
        category=np.concatenate([before.category, np.array(ids, np.int32)[assignments]]),
        source=np.concatenate([before.source, source]),
        features=_all_features(before, memory.features.numpy(), method.task_features.numpy()),
        points=np.empty((0, 1), np.float32),
        positions=np.concatenate([before.positions, np.zeros((n, 2), np.float32)]),
    )
    return dataclasses.replace(known, step=step, categories=categories, images=images)


def _all_features(before: Images, remembered: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Join the features of earlier images with new ones; `remembered` are those of images that were not discarded."""
    m = len(before)
    features = empty_array((m + len(new), new.shape[1]), np.float32)
    kept = before.category != DISCARDED
    at = np.cumsum(kept) - 1
    for part in row_blocks(m):
        features[part] = before.features[part]
        features[part][kept[part]] = remembered[at[part][kept[part]]]
    for part in row_blocks(len(new)):
        features[m + part.start : m + part.stop] = new[part]
    return features


def _apply_metric(knowledge: Knowledge, metric: ClassMetric) -> Knowledge:
    """Compute the points of all images under the metric of the batch, and calibrate their distances."""
    images = knowledge.images
    kept = np.flatnonzero(images.category != DISCARDED)
    ids, positions = np.unique(images.category[kept], return_inverse=True)
    every = slice(None, None, max(1, -(-len(kept) // MAX_SAMPLES)))
    rows = kept[every]
    members = Members(
        features=torch.from_numpy(np.asarray(images.features[rows])),
        positions=torch.from_numpy(positions[every]),
        trusted=torch.from_numpy(images.source[rows] != CLUSTERED),
        fitted=torch.from_numpy(metric_labels(knowledge)[rows]),
    )
    calibration = calibrate(members, metric, len(ids))
    points = empty_array((len(images), metric.projection.shape[1]), np.float32)
    for part in row_blocks(len(images)):
        points[part] = metric.transform(torch.from_numpy(images.features[part])).numpy()
    images = dataclasses.replace(images, points=points)
    return dataclasses.replace(knowledge, images=images, metric=metric, calibration=calibration)


def _category_reports(after: Knowledge, old: list[int]) -> list[CategoryReport]:
    """Report every category that has images in the last batch; `old` ones had images before."""
    images, had_images = after.images, set(old)
    mine = images.steps == after.step
    sizes = np.bincount(images.category[mine & (images.category != DISCARDED)])
    labelled = images.category[mine & (images.category != DISCARDED) & (images.source != CLUSTERED)]
    n_labelled = np.bincount(labelled, minlength=len(sizes))
    reports = []
    for id in np.flatnonzero(sizes).tolist():
        category = after.categories[id]
        reports.append(
            CategoryReport(
                id=id,
                name=category.name,
                n_images=int(sizes[id]),
                n_labelled=int(n_labelled[id]),
                kind="returned"
                if id in had_images
                else "known"
                if category.origin == "labelled"
                else "discovered",
            )
        )
    return reports
