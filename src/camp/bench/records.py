"""What a run writes down about a task: entries of results.json, and predictions.csv."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch

from camp.bench.evaluation.after_task import PROTOCOLS
from camp.bench.settings import RunSettings, to_dict
from camp.bench.thumbnails import save_thumbnails
from camp.data.datasets import dataset_info
from camp.data.datasets.base import Dataset
from camp.data.split import TaskSplit
from camp.data.tasks import Task, TaskTruth
from camp.discovery.base import DiscoveryResult
from camp.methods.base import Method
from camp.nn.backbones.base import Backbone

_PICTURES = 6
"""Shown of each discovered category: those nearest to its centroid."""


def described(settings: RunSettings, backbone: Backbone, epochs: int) -> dict[str, Any]:
    """What was run, for a reader who compares runs."""
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


def task_record(
    method: Method, plan: TaskSplit, truth: TaskTruth, measured: dict[str, Any]
) -> dict[str, Any]:
    """One task's entry: what it held, and what was measured after it."""
    names = truth.class_names
    return {
        "task": truth.index,
        "known": [names[c] for c in truth.known],
        "novel": [names[c] for c in truth.novel],
        "labelled": len(plan.labelled),
        "unlabelled": len(plan.unlabelled),
        "test": len(plan.test),
        "novel_true": len(truth.novel),
        **_discovered(method.discovery),
        **{name: measured[name] for name in (*PROTOCOLS, "stored", "drift") if name in measured},
    }


def _discovered(result: DiscoveryResult | None) -> dict[str, Any]:
    """The number of novel categories and how it was estimated."""
    if result is None:
        return {"novel_used": 0, "curve": None}
    estimate = result.estimate
    record = {"novel_used": result.n_novel, "curve": [*map(list, estimate.curve)] if estimate else None}
    if not result.parameters:
        return record
    error = estimate.standard_error if estimate else None
    return {**record, "novel_error": error, "recipe": result.parameters}


def category_records(
    method: Method, task: Task, truth: TaskTruth, class_of: list[int], dataset: Dataset, out: Path
) -> list[dict[str, Any]]:
    """An entry for each category of this task, with pictures of the discovered ones below `out`."""
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
        pictures = [truth.train_keys[row] for row in typical]
        right = truth.train_classes[members] == class_
        records.append(
            {
                "id": category.id,
                "task": category.task,
                "kind": "known" if known else "novel",
                "name": names[class_] if known else f"category {category.id}",
                "matched": names[class_] if class_ >= 0 else None,
                "size": category.size,
                "purity": float(right.mean()) if len(members) else None,
                "pictures": save_thumbnails(dataset, pictures, out, str(category.id)),
            }
        )
    return records


def _most_typical(method: Method, task: Task, members: np.ndarray, position: int) -> list[int]:
    """Rows of the members nearest to their centroid, or to their mean where a method has no centroids."""
    if not len(members):
        return []
    features = method.features(task.views.clean(torch.from_numpy(members)))
    centroid = features.mean(dim=0) if method.centroids is None else method.centroids[position].cpu()
    far = (features - centroid).norm(dim=1)
    return [int(members[i]) for i in far.argsort()[:_PICTURES].tolist()]


def predictions_csv(
    method: Method, truths: list[TaskTruth], predictions: list[np.ndarray], class_of: list[int]
) -> str:
    """What the present model says of every test picture so far."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["picture", "task", "class", "category", "predicted", "right"])
    for truth, predicted in zip(truths, predictions):
        for key, class_, position in zip(truth.test_keys, truth.test_classes, predicted):
            answer = class_of[position]
            name = truth.class_names[answer] if answer >= 0 else ""
            category = method.categories[position].id
            rows.writerow(
                [key, truth.index, truth.class_names[class_], category, name, int(answer == class_)]
            )
    return text.getvalue()
