from itertools import permutations

import numpy as np
import pytest

from camp.evaluation.matching import NO_CLASS, match_discovered, match_on_test


@pytest.mark.parametrize("seed", range(5))
def test_discovered_has_the_least_total_distance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    centroids, means, classes = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), np.array([9, 4, 7, 5])
    matched = match_discovered(centroids, means, classes)

    def total(order: tuple[int, ...]) -> float:
        return sum(float(np.sqrt(((centroids[i] - means[j]) ** 2).sum())) for i, j in enumerate(order))

    best = min(permutations(range(4)), key=total)
    assert matched.tolist() == classes[list(best)].tolist()


def test_surplus_categories_get_no_class() -> None:
    means = np.array([[0.0], [10.0]])
    assert match_discovered(np.array([[0.4], [0.1], [10.0]]), means, np.array([3, 4])).tolist() == [-1, 3, 4]


def test_too_few_categories_leave_classes_over() -> None:
    assert match_discovered(np.array([[9.0]]), np.array([[0.0], [10.0]]), np.array([3, 4])).tolist() == [4]


def test_nothing_discovered_or_nothing_novel() -> None:
    assert match_discovered(np.empty((0, 2)), np.zeros((2, 2)), np.array([1, 2])).size == 0
    assert match_discovered(np.zeros((2, 2)), np.empty((0, 2)), np.array([])).tolist() == [-1, -1]


@pytest.mark.parametrize("seed", range(5))
def test_on_test_makes_most_predictions_right(seed: int) -> None:
    """Categories 0, 1 are known (classes 0, 1); 2, 3, 4 were discovered among the classes 5, 6, 7."""
    rng = np.random.default_rng(seed)
    predicted = rng.integers(0, 5, 300)
    true = rng.choice([0, 1, 5, 6, 7], 300)
    kept = np.array([0, 1, NO_CLASS, NO_CLASS, NO_CLASS])
    matched = match_on_test(predicted, true, kept)
    assert matched[:2].tolist() == [0, 1]
    best = max(
        int((np.array([0, 1, *order])[predicted] == true).sum()) for order in permutations([5, 6, 7], 3)
    )
    assert int((matched[predicted] == true).sum()) == best


def test_on_test_cannot_take_a_known_class_or_one_class_twice() -> None:
    predicted, true = np.array([1, 1, 1, 2, 2, 2, 2]), np.array([0, 0, 5, 5, 5, 5, 0])
    matched = match_on_test(predicted, true, np.array([0, NO_CLASS, NO_CLASS]))
    assert matched.tolist() == [0, NO_CLASS, 5]


def test_on_test_without_novel_classes_changes_nothing() -> None:
    kept = np.array([3, 4])
    assert match_on_test(np.array([0, 1, 0]), np.array([3, 4, 4]), kept).tolist() == [3, 4]
    assert kept.tolist() == [3, 4]
