import numpy as np
import pytest

from camp.bench.evaluation.drift import centroid_drift, relative_reduction


def test_distances_are_means_over_categories() -> None:
    rng = np.random.default_rng(0)
    stored, adapted, true = rng.normal(size=(3, 6, 5))
    novel = np.array([0, 0, 1, 0, 1, 1], dtype=bool)
    drift = centroid_drift(stored, adapted, true, novel)
    for group, members in (("known", [0, 1, 3]), ("novel", [2, 4, 5]), ("all", range(6))):
        for name, centroids in (("stored", stored), ("adapted", adapted)):
            each = [sum((centroids[k, d] - true[k, d]) ** 2 for d in range(5)) ** 0.5 for k in members]
            assert drift[group][name] == pytest.approx(sum(each) / len(each))


def test_group_without_categories_is_none() -> None:
    one = np.ones((1, 2))
    assert centroid_drift(one, one, one, np.array([True]))["known"] is None
    none = np.empty((0, 2))
    assert centroid_drift(none, none, none, np.array([]))["all"] is None


def test_relative_reduction_signs() -> None:
    assert relative_reduction({"stored": 2.0, "adapted": 3.0}) == -0.5
    assert relative_reduction({"stored": 0.0, "adapted": 0.0}) is None
