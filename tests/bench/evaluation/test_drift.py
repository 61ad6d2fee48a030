import numpy as np
import pytest

from camp.bench.evaluation.drift import CentroidDistance, centroid_drift


def test_distances_are_means_over_categories() -> None:
    rng = np.random.default_rng(0)
    stored, adapted, true = rng.normal(size=(3, 6, 5))
    novel = np.array([0, 0, 1, 0, 1, 1], dtype=bool)
    drift = centroid_drift(stored, adapted, true, novel)
    for group, members in (("known", [0, 1, 3]), ("novel", [2, 4, 5]), ("all", range(6))):
        for name, centroids in (("stored", stored), ("adapted", adapted)):
            each = [sum((centroids[k, d] - true[k, d]) ** 2 for d in range(5)) ** 0.5 for k in members]
            assert getattr(drift[group], name) == pytest.approx(sum(each) / len(each))


def test_group_without_categories_is_none() -> None:
    one = np.ones((1, 2))
    assert centroid_drift(one, one, one, np.array([True])).known is None
    none = np.empty((0, 2))
    assert centroid_drift(none, none, none, np.array([], dtype=bool)).all is None


def test_relative_reduction_signs() -> None:
    assert CentroidDistance(stored=2.0, adapted=3.0).relative_reduction == -0.5
    assert CentroidDistance(stored=0.0, adapted=0.0).relative_reduction is None
