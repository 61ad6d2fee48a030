import numpy as np
import pytest

from camp.bench.evaluation.accuracy import AccuracyRow, Matrix
from camp.bench.evaluation.summary import final, forgetting, incremental, plasticity, summarise


def triangle(n: int, seed: int) -> Matrix:
    rng = np.random.default_rng(seed)
    return [rng.random(t + 1).tolist() for t in range(n)]


@pytest.mark.parametrize("n", [2, 3, 7])
def test_figures_follow_their_definitions(n: int) -> None:
    """With tasks counted from 1 as in the papers: a[k, j] is the accuracy on task j after task k."""
    accuracies = triangle(n, seed=n)
    a = {(k, j): accuracies[k - 1][j - 1] for k in range(1, n + 1) for j in range(1, k + 1)}
    lost = [max(a[k, j] for k in range(j, n)) - a[n, j] for j in range(1, n)]
    assert forgetting(accuracies) == pytest.approx(sum(lost) / (n - 1))
    assert plasticity(accuracies) == pytest.approx(sum(a[k, k] for k in range(2, n + 1)) / (n - 1))
    assert final(accuracies) == pytest.approx(sum(a[n, j] for j in range(1, n + 1)) / n)
    so_far = [sum(a[k, j] for j in range(1, k + 1)) / k for k in range(1, n + 1)]
    assert incremental(accuracies) == pytest.approx(sum(so_far) / n)


def test_one_task_has_nothing_to_forget() -> None:
    assert forgetting([[0.5]]) is None
    assert plasticity([[0.5]]) is None
    assert final([[0.5]]) == incremental([[0.5]]) == 0.5


def test_missing_entries_are_left_out() -> None:
    accuracies: Matrix = [[None], [None, 0.6], [None, 0.5, None], [None, 0.2, None, 0.8]]
    assert final(accuracies) == pytest.approx(0.5)
    assert forgetting(accuracies) == pytest.approx(0.4)
    assert plasticity(accuracies) == pytest.approx(0.7)
    assert incremental(accuracies) == pytest.approx((0.6 + 0.5 + 0.5) / 3)


def test_getting_better_is_negative_forgetting() -> None:
    assert forgetting([[0.5], [0.75, 0.9]]) == -0.25


def test_summarise_keeps_groups_apart() -> None:
    rows = [
        AccuracyRow(all=[0.9], known=[1.0], novel=[None]),
        AccuracyRow(all=[0.5, 0.7], known=[0.5, 0.75], novel=[None, None]),
    ]
    assert summarise(rows).model_dump() == {
        "final": {"all": 0.6, "known": 0.625, "novel": None},
        "forgetting": {"all": 0.4, "known": 0.5, "novel": None},
        "plasticity": {"all": 0.7, "known": 0.75, "novel": None},
        "incremental": {"all": 0.75, "known": 0.8125, "novel": None},
    }
