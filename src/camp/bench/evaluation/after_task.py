"""Evaluation after each task: the only place where true labels and a method's predictions meet."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, Field
from torch import Tensor

from camp.bench.evaluation.accuracy import AccuracyRow, accuracy_row
from camp.bench.evaluation.class_groups import NO_CLASS, PROTOCOLS, Classes, Protocol, Vectors
from camp.bench.evaluation.confusion import TaskConfusion, split_confusion
from camp.bench.evaluation.drift import DriftMeasurement, centroid_drift
from camp.bench.evaluation.feature_map import FeatureMap, feature_map
from camp.bench.evaluation.matching import match_discovered, match_on_test, match_task
from camp.bench.evaluation.summary import Summary, summarise
from camp.bench.evaluation.upper_bound import nearest_mean, true_means
from camp.core import distributed
from camp.core.progress import Progress
from camp.data.tasks import Task, TaskTruth
from camp.data.views import Views
from camp.methods.base import Method

_BATCH = 256


@dataclass(frozen=True)
class TaskMeasurement:
    """What is measured after one task on the test images of all tasks so far."""

    rows: dict[Protocol, AccuracyRow]
    """Accuracy on each task so far."""
    stored: AccuracyRow | None
    """Task-agnostic accuracy by the centroids as stored before the task; None where none was adapted."""
    drift: DriftMeasurement | None
    """Distances of the centroids of earlier tasks; None after the first task or without centroids."""
    summary: dict[Protocol, Summary]
    confusion: TaskConfusion
    map: FeatureMap | None
    predictions: list[Classes]
    """Predicted categories of the test images of each task, task-agnostic."""


def _no_rows() -> dict[Protocol, list[AccuracyRow]]:
    return {protocol: [] for protocol in PROTOCOLS}


class Evaluator(BaseModel):
    """Accuracies so far, and the class of each category. It is saved in the checkpoint."""

    class_of_category: list[int] = Field(default_factory=list)
    """By position in the method's categories; NO_CLASS for a discovered category without a match."""
    rows: dict[Protocol, list[AccuracyRow]] = Field(default_factory=_no_rows)
    """A[t] of each protocol; a run started by a version without a protocol continues without it."""

    def after_task(
        self, method: Method, seen: list[tuple[Task, TaskTruth]], progress: Progress
    ) -> TaskMeasurement:
        """Evaluate on the test images of all tasks `seen`, the last of which was just learned."""
        total = sum(len(task.views) + len(truth.test_views) for task, truth in seen)
        with progress.track("Evaluation", total) as bar:

            def of(views: Views, rows: Tensor) -> Tensor:
                parts = []
                for part in torch.split(rows, _BATCH):
                    parts.append(method.features(views.clean(part)))
                    bar.advance(len(part) * distributed.world_size())
                return torch.cat(parts)

            def features(views: Views) -> npt.NDArray[np.float32]:
                if not len(views):
                    return np.empty((0, 0), dtype=np.float32)
                return distributed.map_sharded(len(views), partial(of, views)).numpy()

            train = [features(task.views) for task, _ in seen]
            test = [features(truth.test_views) for _, truth in seen]
        truths = [truth for _, truth in seen]
        classes, means = true_means(np.concatenate(train), np.concatenate([t.train_classes for t in truths]))
        self._match(method, truths[-1], train[-1], classes, means)
        predictions = [_predict(method, z) for z in test]
        self._score(method, truths, test, predictions, classes, means)
        mean_of = dict(zip(classes.tolist(), means))
        return TaskMeasurement(
            rows={name: rows[-1] for name, rows in self.rows.items()},
            stored=self._by_stored_centroids(method, truths, test),
            drift=self._drift(method, classes, means),
            summary={name: summarise(rows) for name, rows in self.rows.items()},
            confusion=_confusion(method, truths, predictions),
            map=feature_map(method, truths, test, self.class_of_category, mean_of),
            predictions=predictions,
        )

    def _match(
        self, method: Method, truth: TaskTruth, train: Vectors, classes: Classes, means: Vectors
    ) -> None:
        """Match new categories with classes: known ones by label, discovered ones by Hungarian matching."""
        first = len(self.class_of_category)
        new = method.categories[first:]
        found = [first + i for i, category in enumerate(new) if category.label is None]
        self.class_of_category += [
            NO_CLASS if category.label is None else truth.class_of_label[category.label] for category in new
        ]
        if method.centroids is not None:
            centroids = method.centroids[found].cpu().numpy()
        else:  # a method without centroids: the mean of the images assigned to the category, if any
            assigned = method.assigned().numpy()
            found = [i for i in found if (assigned == i).any()]
            centroids = np.array([train[assigned == i].mean(0) for i in found])
        novel = np.isin(classes, truth.novel)
        matched = match_discovered(centroids, means[novel], classes[novel])
        for position, class_ in zip(found, matched):
            self.class_of_category[position] = int(class_)

    def _score(
        self,
        method: Method,
        truths: list[TaskTruth],
        test: list[Vectors],
        predictions: list[Classes],
        classes: Classes,
        means: Vectors,
    ) -> None:
        """Append A[t] of every protocol."""
        of_category = np.array(self.class_of_category)
        true, novel = [t.test_classes for t in truths], [t.novel for t in truths]
        agnostic = [of_category[p] for p in predictions]

        aware = []
        home = torch.tensor([category.task for category in method.categories])
        for truth, z in zip(truths, test):
            allowed = (home == truth.index).nonzero()[:, 0]
            answer = of_category[_predict(method, z, allowed)] if len(allowed) else np.full(len(z), NO_CLASS)
            aware.append(answer)

        discovered = np.array([category.label is None for category in method.categories])
        known_only = np.where(discovered, NO_CLASS, of_category)
        rematched = match_on_test(np.concatenate(predictions), np.concatenate(true), known_only)
        scored: dict[Protocol, list[Classes]] = {
            "agnostic": agnostic,
            "aware": aware,
            "test_hungarian": [rematched[p] for p in predictions],
            "task_hungarian": [match_task(p, c, len(of_category))[p] for p, c in zip(predictions, true)],
            "upper_bound": [nearest_mean(z, means, classes) for z in test],
        }
        for name, rows in self.rows.items():
            rows.append(accuracy_row(scored[name], true, novel))

    def _drift(self, method: Method, classes: Classes, means: Vectors) -> DriftMeasurement | None:
        """Distances of earlier centroids to their true means, before and after adaptation."""
        if method.drift is None:
            return None
        earlier = np.array(self.class_of_category[: len(method.drift.stored)])
        kept = np.flatnonzero(earlier != NO_CLASS)
        true = means[np.searchsorted(classes, earlier[kept])]
        novel = np.array([method.categories[i].label is None for i in kept], dtype=bool)
        stored, adapted = method.drift.stored.cpu().numpy(), method.drift.adapted.cpu().numpy()
        return centroid_drift(stored[kept], adapted[kept], true, novel)

    def _by_stored_centroids(
        self, method: Method, truths: list[TaskTruth], test: list[Vectors]
    ) -> AccuracyRow | None:
        """A[t] with the centroids of earlier tasks as stored; None where none was adapted."""
        if method.drift is None or method.centroids is None:
            return None
        now, stored = method.centroids, method.drift.stored
        if torch.equal(now[: len(stored)], stored.to(now)):
            return None
        before = torch.cat([stored.to(now), now[len(stored) :]])
        of_category = np.array(self.class_of_category)
        answers = [of_category[_predict(method, z, centroids=before)] for z in test]
        return accuracy_row(answers, [t.test_classes for t in truths], [t.novel for t in truths])


def _confusion(method: Method, truths: list[TaskTruth], predictions: list[Classes]) -> TaskConfusion:
    """To the categories of which task the test images of each task are assigned."""
    home = np.array([category.task for category in method.categories])
    true = np.concatenate([np.full(len(p), t.index) for t, p in zip(truths, predictions)])
    novel = np.concatenate([np.isin(t.test_classes, t.novel) for t in truths])
    return split_confusion(true, home[np.concatenate(predictions)], novel, len(truths))


def _predict(
    method: Method, features: Vectors, allowed: Tensor | None = None, centroids: Tensor | None = None
) -> Classes:
    """Predicted categories (m,) of features (m, D); m may be 0."""
    if not len(features):
        return np.empty(0, dtype=np.int64)
    predicted: Classes = method.predict(torch.from_numpy(features), allowed, centroids).numpy()
    return predicted
