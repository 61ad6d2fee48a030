"""A map of the feature space in two dimensions: a sample of test images, and the centroids."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Strict

from camp.bench.evaluation.class_groups import Record
from camp.bench.evaluation.matching import NO_CLASS
from camp.bench.evaluation.projection import Vectors, fit_plane
from camp.data.tasks import TaskTruth
from camp.methods.base import Method

Kind = Literal["known", "novel"]

Position = Annotated[tuple[float, float], Strict(False)]
"""(x, y) on the map."""
MapPoint = Annotated[tuple[float, float, int, int, int], Strict(False)]
"""(x, y, task, 1 for a known and 0 for a novel class, class) of a test image."""

_MAX_POINTS = 1500


class MapCentroid(Record):
    """A centroid before the last task, after it, and the true mean of its class now."""

    id: int
    task: int
    kind: Kind
    name: str
    stored: Position | None
    adapted: Position
    true: Position | None


class FeatureMap(Record):
    """The feature space after the last task, projected to its first two principal directions."""

    points: list[MapPoint]
    centroids: list[MapCentroid]


def feature_map(
    method: Method,
    truths: Sequence[TaskTruth],
    test: Sequence[Vectors],
    class_of_category: Sequence[int],
    means: dict[int, Vectors],
) -> FeatureMap | None:
    """The map of `test` features, one array (m_i, D) per task; None for a method without centroids.

    `means` holds the true mean (D,) of each class. Categories that match no class are left out.
    """
    if method.centroids is None:
        return None
    features = np.concatenate([z for z in test if len(z)])
    about = [(t.index, int(c not in t.novel), int(c)) for t in truths for c in t.test_classes]
    plane = fit_plane(features)
    sample = np.linspace(0, len(features) - 1, min(len(features), _MAX_POINTS)).astype(int)
    points = [(*_rounded(xy), *about[i]) for i, xy in zip(sample, plane.project(features[sample]))]
    now = method.centroids.cpu().numpy()
    before = now.copy()
    if method.drift is not None:
        before[: len(method.drift.stored)] = method.drift.stored.cpu().numpy()
    stored, adapted = plane.project(before), plane.project(now)
    centroids = [
        MapCentroid(
            id=category.id,
            task=category.task,
            kind="novel" if category.label is None else "known",
            name=truths[0].class_names[class_],
            stored=_rounded(stored[i]),
            adapted=_rounded(adapted[i]),
            true=_rounded(plane.project(means[class_][None])[0]),
        )
        for i, (category, class_) in enumerate(zip(method.categories, class_of_category))
        if class_ != NO_CLASS
    ]
    return FeatureMap(points=points, centroids=centroids)


def _rounded(xy: Vectors) -> tuple[float, float]:
    return round(float(xy[0]), 4), round(float(xy[1]), 4)
