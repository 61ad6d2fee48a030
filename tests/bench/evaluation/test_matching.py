from itertools import permutations

import numpy as np
import pytest

from camp.bench.evaluation.class_groups import NO_CLASS
from camp.bench.evaluation.matching import match_discovered, match_on_test, match_task


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


@pytest.mark.parametrize("seed", range(5))
def test_a_task_alone_gets_the_best_of_all_one_to_one_namings(seed: int) -> None:
    """SimGCD's accuracy: the most pictures that any injection of this test set's classes into categories gets right."""
    rng = np.random.default_rng(seed)
    predicted, true = rng.integers(0, 5, 60), rng.choice([4, 8, 9], 60)
    matched = match_task(predicted, true, 5)
    best = 0
    for taken in permutations(range(5), 3):  # the categories that stand for the classes 4, 8, 9
        class_of = dict(zip(taken, [4, 8, 9]))
        best = max(best, sum(class_of.get(p) == t for p, t in zip(predicted.tolist(), true.tolist())))
    assert int((matched[predicted] == true).sum()) == best
    named = matched[matched != NO_CLASS]
    assert len(set(named.tolist())) == len(named)


def test_a_task_alone_does_not_care_what_a_category_stands_for_elsewhere() -> None:
    """Categories 0 and 1 swapped are right all the same; the third is predicted for nothing."""
    assert match_task(np.array([1, 1, 0]), np.array([0, 0, 1]), 3).tolist() == [1, 0, NO_CLASS]
    assert match_task(np.empty(0, dtype=int), np.empty(0, dtype=int), 2).tolist() == [NO_CLASS, NO_CLASS]
