import numpy as np
import pytest

from camp.bench.evaluation.accuracy import AccuracySplit, accuracy_row, matrix, split_accuracy


def test_split_accuracy_is_the_share_counted_by_hand() -> None:
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 6, 500), rng.integers(-1, 6, 500)
    novel = [4, 5]
    right = {"all": 0, "known": 0, "novel": 0}
    seen = dict(right)
    for guess, truth in zip(predicted.tolist(), true.tolist()):
        for group in ("all", "novel" if truth in novel else "known"):
            seen[group] += 1
            right[group] += guess == truth
    measured = split_accuracy(predicted, true, novel)
    assert measured.model_dump() == {group: right[group] / seen[group] for group in seen}


def test_group_without_images_is_none() -> None:
    nothing = np.empty(0, dtype=int)
    assert split_accuracy(nothing, nothing, [1]) == AccuracySplit(all=None, known=None, novel=None)
    assert split_accuracy(np.array([0]), np.array([0]), []).novel is None
    assert split_accuracy(np.array([0]), np.array([0]), [0]).known is None


def test_category_without_a_class_is_never_correct() -> None:
    assert split_accuracy(np.array([-1]), np.array([-1]), []).all == 0.0


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="agree"):
        split_accuracy(np.zeros(3), np.zeros(1), [])
    with pytest.raises(ValueError, match="each task"):
        accuracy_row([np.zeros(1)], [np.zeros(1)], [])


def test_rows_become_a_triangle() -> None:
    true = [np.array([0, 1]), np.array([2, 3])]
    novel = [[1], [3]]
    rows = [
        accuracy_row(true[:1], true[:1], novel[:1]),
        accuracy_row([np.array([0, 0]), np.array([0, 3])], true, novel),
    ]
    assert matrix(rows, "all") == [[1.0], [0.5, 0.5]]
    assert matrix(rows, "known") == [[1.0], [1.0, 0.0]]
    assert matrix(rows, "novel") == [[1.0], [0.0, 1.0]]
    with pytest.raises(ValueError, match="row 0"):
        matrix(rows[1:], "all")
