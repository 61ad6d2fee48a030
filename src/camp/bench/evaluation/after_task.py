"""What is measured after each task: the one place where true labels and a method's answers meet."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from camp.bench.evaluation.accuracy import SplitRow, accuracy_row
from camp.bench.evaluation.confusion import split_confusion
from camp.bench.evaluation.drift import centroid_drift
from camp.bench.evaluation.matching import NO_CLASS, match_discovered, match_on_test, match_task
from camp.bench.evaluation.projection import fit_plane
from camp.bench.evaluation.summary import summarise
from camp.bench.evaluation.upper_bound import nearest_mean, true_means
from camp.core import distributed
from camp.core.progress import Progress
from camp.data.tasks import Task, TaskTruth
from camp.data.views import Views
from camp.methods.base import Method

_BATCH = 256
_MAP_POINTS = 1500
PROTOCOLS = ("agnostic", "aware", "test_hungarian", "task_hungarian", "upper_bound")


@dataclass
class Evaluator:
    """Accuracies so far, and which class each category stands for."""

    class_of_category: list[int] = field(default_factory=list)
    """By position in the method's categories; NO_CLASS for a discovered category that matches nothing."""
    rows: dict[str, list[SplitRow]] = field(default_factory=lambda: {name: [] for name in PROTOCOLS})
    """A[t] of each protocol; a run that was begun before there was one goes on without it."""

    def after_task(
        self, method: Method, seen: list[tuple[Task, TaskTruth]], progress: Progress
    ) -> dict[str, Any]:
        """Evaluate on the test pictures of all tasks `seen`; the record of the last one for results.json."""
        total = sum(len(task.views) + len(truth.test_views) for task, truth in seen)
        with progress.track("Evaluation", total) as bar:

            def of(views: Views, rows: Tensor) -> Tensor:
                parts = []
                for part in rows.split(_BATCH):
                    parts.append(method.features(views.clean(part)))
                    bar.advance(len(part) * distributed.world_size())
                return torch.cat(parts)

            def features(views: Views) -> np.ndarray:
                if not len(views):
                    return np.empty((0, 0), dtype=np.float32)
                return distributed.map_sharded(len(views), partial(of, views)).numpy()

            train = [features(task.views) for task, _ in seen]
            test = [features(truth.test_views) for _, truth in seen]
        truths = [truth for _, truth in seen]
        classes, means = true_means(np.concatenate(train), np.concatenate([t.train_classes for t in truths]))
        self._match(method, truths[-1], train[-1], classes, means)
        predictions = [method.predict(torch.from_numpy(z)).numpy() if len(z) else _NOBODY for z in test]
        self._score(method, truths, test, predictions, classes, means)
        stored = self._by_stored_centroids(method, truths, test)
        return {
            **{name: rows[-1] for name, rows in self.rows.items()},
            **({"stored": stored} if stored is not None else {}),
            "drift": self._drift(method, classes, means),
            "summary": {name: summarise(rows) for name, rows in self.rows.items()},
            "confusion": self._confusion(method, truths, predictions),
            "map": self._map(method, truths, test, classes, means),
            "predictions": predictions,
        }

    def _match(
        self, method: Method, truth: TaskTruth, train: np.ndarray, classes: np.ndarray, means: np.ndarray
    ) -> None:
        """Give new categories their class: known ones by label, discovered ones by Hungarian matching."""
        first = len(self.class_of_category)
        new = method.categories[first:]
        found = [first + i for i, category in enumerate(new) if category.label is None]
        self.class_of_category += [
            NO_CLASS if category.label is None else truth.class_of_label[category.label] for category in new
        ]
        if method.centroids is not None:
            centroids = method.centroids[found].cpu().numpy()
        else:  # methods without centroids: the mean of what they put into the category, if that is anything
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
        test: list[np.ndarray],
        predictions: list[np.ndarray],
        classes: np.ndarray,
        means: np.ndarray,
    ) -> None:
        """Append A[t] of every protocol."""
        of_category = np.array(self.class_of_category)
        true, novel = [t.test_classes for t in truths], [t.novel for t in truths]
        agnostic = [of_category[p] for p in predictions]

        aware = []
        home = torch.tensor([category.task for category in method.categories])
        for truth, z in zip(truths, test):
            allowed = (home == truth.index).nonzero()[:, 0]
            usable = len(z) and len(allowed)
            answer = method.predict(torch.from_numpy(z), allowed).numpy() if usable else None
            aware.append(of_category[answer] if answer is not None else np.full(len(z), NO_CLASS))

        known_only = np.array(
            [
                c if category.label is not None else NO_CLASS
                for c, category in zip(of_category, method.categories)
            ]
        )
        rematched = match_on_test(np.concatenate(predictions), np.concatenate(true), known_only)
        scored = {
            "agnostic": agnostic,
            "aware": aware,
            "test_hungarian": [rematched[p] for p in predictions],
            "task_hungarian": [match_task(p, c, len(of_category))[p] for p, c in zip(predictions, true)],
            "upper_bound": [nearest_mean(z, means, classes) for z in test],
        }
        for name, rows in self.rows.items():
            rows.append(accuracy_row(scored[name], true, novel))

    def _drift(self, method: Method, classes: np.ndarray, means: np.ndarray) -> Any:
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
        self, method: Method, truths: list[TaskTruth], test: list[np.ndarray]
    ) -> SplitRow | None:
        """A[t] if the centroids of earlier tasks had stayed as they were stored; None where they did."""
        if method.drift is None or method.centroids is None:
            return None
        now, stored = method.centroids, method.drift.stored
        if torch.equal(now[: len(stored)], stored.to(now)):
            return None
        before = torch.cat([stored.to(now), now[len(stored) :]])
        answers = [
            method.predict(torch.from_numpy(z), centroids=before).numpy() if len(z) else _NOBODY for z in test
        ]
        of_category = np.array(self.class_of_category)
        return accuracy_row(
            [of_category[answer] for answer in answers],
            [t.test_classes for t in truths],
            [t.novel for t in truths],
        )

    def _confusion(self, method: Method, truths: list[TaskTruth], predictions: list[np.ndarray]) -> Any:
        """Which task's categories the test pictures of each task are sent to."""
        home = np.array([category.task for category in method.categories])
        true = np.concatenate([np.full(len(p), t.index) for t, p in zip(truths, predictions)])
        novel = np.concatenate([np.isin(t.test_classes, t.novel) for t in truths])
        return split_confusion(true, home[np.concatenate(predictions)], novel, len(truths))

    def _map(
        self,
        method: Method,
        truths: list[TaskTruth],
        test: list[np.ndarray],
        classes: np.ndarray,
        means: np.ndarray,
    ) -> Any:
        """The feature space in two dimensions: a sample of test pictures, and where centroids were and are."""
        if method.centroids is None:
            return None
        features = np.concatenate([z for z in test if len(z)])
        about = [(t.index, int(c not in t.novel), int(c)) for t in truths for c in t.test_classes]
        plane = fit_plane(features)
        sample = np.linspace(0, len(features) - 1, min(len(features), _MAP_POINTS)).astype(int)
        points = [
            [round(float(x), 4), round(float(y), 4), *about[i]]
            for i, (x, y) in zip(sample, plane.project(features[sample]))
        ]
        now = method.centroids.cpu().numpy()
        before = now.copy()
        if method.drift is not None:
            before[: len(method.drift.stored)] = method.drift.stored.cpu().numpy()
        places = {"stored": plane.project(before), "adapted": plane.project(now)}
        centroids = []
        for i, (category, class_) in enumerate(zip(method.categories, self.class_of_category)):
            if class_ == NO_CLASS:
                continue
            places_of = {name: [round(float(v), 4) for v in xy[i]] for name, xy in places.items()}
            places_of["true"] = [
                round(float(v), 4) for v in plane.project(means[[np.searchsorted(classes, class_)]])[0]
            ]
            kind = "novel" if category.label is None else "known"
            name = truths[0].class_names[class_]
            centroids.append(
                {"id": category.id, "task": category.task, "kind": kind, "name": name, **places_of}
            )
        return {"points": points, "centroids": centroids}

    def state(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {"class_of_category": self.class_of_category, "rows": self.rows}

    @classmethod
    def restored(cls, values: dict[str, Any]) -> "Evaluator":
        """From the checkpoint."""
        return cls(values["class_of_category"], values["rows"])


_NOBODY = np.empty(0, dtype=np.int64)
