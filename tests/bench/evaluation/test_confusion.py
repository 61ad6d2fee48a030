import numpy as np

from camp.bench.evaluation.confusion import normalised_rows, split_confusion, task_confusion


def test_counts_and_groups() -> None:
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 3, 200), rng.integers(0, 4, 200)
    novel = rng.random(200) < 0.3
    counts = task_confusion(true, predicted, 4)
    pairs = list(zip(true.tolist(), predicted.tolist()))
    assert counts.tolist() == [[pairs.count((i, j)) for j in range(4)] for i in range(4)]
    split = split_confusion(true, predicted, novel, 4)
    assert split.all == counts.tolist()
    assert (np.array(split.known) + np.array(split.novel)).tolist() == counts.tolist()
    assert sum(map(sum, split.novel)) == novel.sum()


def test_rows_sum_to_one_or_are_missing() -> None:
    shares = normalised_rows(np.array([[2, 2, 4], [0, 0, 0], [0, 3, 0]]))
    np.testing.assert_allclose(shares[[0, 2]].sum(axis=1), 1)
    assert np.isnan(shares[1]).all()
