"""Build what a run records about a task: entries of results.json, and predictions.csv."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from camp.bench.evaluation.after_task import TaskMeasurement
from camp.bench.results import CategoryResults, TaskResults
from camp.bench.settings import RunSettings, to_dict
from camp.core.csv_output import csv_text
from camp.core.files import atomic_write
from camp.data.datasets import dataset_info
from camp.data.datasets.base import Dataset
from camp.data.split import TaskSplit
from camp.data.tasks import Task, TaskTruth
from camp.methods.base import Method
from camp.nn.backbones.base import Backbone

_THUMBNAILS = 6
"""Images kept of each discovered category, so that a report needs no data set: those nearest to its centroid."""
_THUMBNAIL_SIDE = 112


def run_description(settings: RunSettings, backbone: Backbone, epochs: int) -> dict[str, Any]:
    """The fields of `Results` that say what was run."""
    fresh = settings.views.views == "fresh" or backbone.trunk is None
    return {
        "method": settings.method,
        "dataset": settings.data.dataset,
        "dataset_title": dataset_info(settings.data.dataset).title,
        "backbone": backbone.name,
        "seed": settings.seed,
        "exemplars": getattr(settings.settings, "exemplars", 0),
        "k": settings.data.k,
        "resolution": backbone.resolution,
        "views": None if fresh else settings.views.augmentations,
        "epochs": epochs,
        "settings": to_dict(settings),
    }


def task_record(method: Method, plan: TaskSplit, truth: TaskTruth, measured: TaskMeasurement) -> TaskResults:
    """The entry of a task: its classes and images, and what was measured after it."""
    names = truth.class_names
    discovery = method.discovery
    estimate = discovery.estimate if discovery is not None else None
    return TaskResults(
        task=truth.index,
        known=[names[c] for c in truth.known],
        novel=[names[c] for c in truth.novel],
        labelled=len(plan.labelled),
        unlabelled=len(plan.unlabelled),
        test=len(plan.test),
        novel_true=len(truth.novel),
        novel_used=discovery.n_novel if discovery is not None else 0,
        curve=[[k, score] for k, score in estimate.curve] if estimate is not None else None,
        novel_error=estimate.standard_error if estimate is not None else None,
        parameters=discovery.parameters or None if discovery is not None else None,
        **measured.rows,
        stored=measured.stored,
        drift=measured.drift,
    )


def category_records(
    method: Method, task: Task, truth: TaskTruth, class_of: list[int], dataset: Dataset, out: Path
) -> list[CategoryResults]:
    """The entries of the categories of this task; thumbnails of the discovered ones are written below `out`."""
    assigned = method.assigned().numpy()
    names = truth.class_names
    records = []
    for position, category in enumerate(method.categories):
        if category.task != task.index:
            continue
        class_ = class_of[position]
        members = np.flatnonzero(assigned == position)
        known = category.label is not None
        typical = [] if known else _most_typical(method, task, members, position)
        keys = [truth.train_keys[row] for row in typical]
        right = truth.train_classes[members] == class_
        records.append(
            CategoryResults(
                id=category.id,
                task=category.task,
                kind="known" if known else "novel",
                name=names[class_] if known else f"category {category.id}",
                matched=names[class_] if class_ >= 0 else None,
                size=category.size,
                purity=float(right.mean()) if len(members) else None,
                images=_save_thumbnails(dataset, keys, out, str(category.id)),
            )
        )
    return records


def _most_typical(method: Method, task: Task, members: npt.NDArray[np.int64], position: int) -> list[int]:
    """Rows of the members nearest to their centroid, or to their mean if the method has no centroids."""
    if not len(members):
        return []
    features = method.features(task.views.clean(torch.from_numpy(members)))
    centroid = features.mean(dim=0) if method.centroids is None else method.centroids[position].cpu()
    far = (features - centroid).norm(dim=1)
    return [int(members[i]) for i in far.argsort()[:_THUMBNAILS].tolist()]


def _save_thumbnails(dataset: Dataset, keys: Sequence[str], out: Path, name: str) -> list[str]:
    """Write `thumbnails/<name>-<i>.jpg` for each image and return the paths relative to `out`; none for vectors."""
    written: list[str] = []
    for key in keys:
        image = dataset.decode(dataset.read(key))
        if not isinstance(image, Image.Image):
            return []
        if max(image.size) < _THUMBNAIL_SIDE:  # enlarge small images without blur
            scale = _THUMBNAIL_SIDE // max(image.size)
            image = image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
        image.thumbnail((_THUMBNAIL_SIDE, _THUMBNAIL_SIDE))
        path = f"thumbnails/{name}-{len(written)}.jpg"
        with atomic_write(out / path) as file:
            image.save(file, format="JPEG", quality=80)
        written.append(path)
    return written


def predictions_csv(
    method: Method, truths: list[TaskTruth], predictions: list[npt.NDArray[np.int64]], class_of: list[int]
) -> str:
    """Predictions of the present model for the test images of all tasks so far."""
    rows: list[tuple[object, ...]] = [("image", "task", "class", "category", "predicted", "right")]
    for truth, predicted in zip(truths, predictions):
        for key, class_, position in zip(truth.test_keys, truth.test_classes, predicted):
            answer = class_of[position]
            name = truth.class_names[answer] if answer >= 0 else ""
            category = method.categories[position].id
            right = int(answer == class_)
            rows.append((key, truth.index, truth.class_names[class_], category, name, right))
    return csv_text(rows)
