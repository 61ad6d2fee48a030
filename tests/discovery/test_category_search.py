"""The coarse-to-fine search against an exhaustive one, and the groups of hidden classes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camp.core.progress import Progress
from camp.discovery.category_search import argmax, coarse_to_fine, curve, random_groups

QUIET = Progress(quiet=True)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 12), st.sampled_from(["smallest", "greatest"]))
def test_the_peak_of_a_unimodal_score_is_found(maximum, peak, n_steps, prefer):
    best, scores = coarse_to_fine(lambda n: -abs(n - peak), maximum, n_steps, prefer=prefer, progress=QUIET)
    assert best == min(peak, maximum)
    assert all(0 <= number <= maximum for number in scores)


def test_every_number_is_evaluated_once():
    calls = []
    coarse_to_fine(lambda n: calls.append(n) or -abs(n - 13), 40, 6, prefer="smallest", progress=QUIET)
    assert len(calls) == len(set(calls)) < 20


@pytest.mark.parametrize(("prefer", "expected"), [("smallest", 0), ("greatest", 12)])
def test_ties(prefer, expected):
    assert coarse_to_fine(lambda n: 1.0, 12, 4, prefer=prefer, progress=QUIET)[0] == expected


@given(st.dictionaries(st.integers(0, 9), st.sampled_from([0.1, 0.2, 0.3]), min_size=1))
def test_argmax_is_its_definition(scores):
    good = sorted(n for n in scores if all(scores[n] >= other for other in scores.values()))
    assert argmax(scores, "smallest") == good[0]
    assert argmax(scores, "greatest") == good[-1]


def test_groups_partition_the_classes_in_every_repeat():
    classes = torch.tensor([3, 5, 8, 9, 11])
    groups = random_groups(classes, 2, torch.Generator().manual_seed(0), n_repeats=3)
    assert [len(group) for group in groups] == [3, 2] * 3
    for start in (0, 2, 4):
        assert torch.cat(groups[start : start + 2]).sort().values.tolist() == classes.tolist()


def test_the_curve_counts_known_categories():
    assert curve({4: 0.5, 0: 0.25}, 3) == ((3, 0.25), (7, 0.5))
