"""Matching against all permutations."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camp.discovery.hungarian import cluster_accuracy, match


@given(st.integers(1, 5), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_match_is_the_permutation_of_minimum_cost(size: int, seed: int) -> None:
    cost = np.random.default_rng(seed).random((size, size))
    minimum = min(sum(cost[i, p[i]] for i in range(size)) for p in itertools.permutations(range(size)))
    pairs = match(torch.from_numpy(cost))
    assert sum(cost[pair] for pair in pairs) == pytest.approx(minimum)
    assert [row for row, _ in pairs] == list(range(size))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=15))
@settings(max_examples=50, deadline=None)
def test_accuracy_is_the_best_over_all_matchings(points: list[tuple[int, int]]) -> None:
    names = [*range(3), None]  # four clusters, three classes: one cluster is not matched
    best = max(sum(p[c] == y for c, y in points) for p in itertools.permutations(names))
    predicted, true = torch.tensor(points).unbind(1)
    assert cluster_accuracy(predicted, true) == pytest.approx(best / len(points))


def test_edges() -> None:
    empty = torch.zeros(0, dtype=torch.long)
    assert cluster_accuracy(empty, empty) == 0.0
    assert cluster_accuracy(torch.tensor([-1, 10**9]), torch.tensor([3, 4])) == 1.0
    with pytest.raises(ValueError, match="equal length"):
        cluster_accuracy(torch.tensor([1]), torch.tensor([1, 2]))
