"""Estimate of the number of novel categories."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from small_batches import classes

from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.discovery.base import KnownCategories
from camp.discovery.class_scatter import WithinClassScatter
from camp.discovery.novel_number import (
    NovelImages,
    estimate_novel_images,
    estimate_number,
    log_likelihood_of_agreement,
    log_likelihood_of_images,
)
from camp.discovery.simulated_novelty import FoldNumbers, ParameterGrid, SimulatedNovelty

QUIET = Progress(quiet=True)
SINGLE = ParameterGrid(shrinkage=(0.3,), n_components=(16,), power=(0.5,))
"""One value of each parameter."""


def simulation(u, labels, seed=0, returning=False):
    draw = torch.Generator().manual_seed(seed)
    scatter, known = WithinClassScatter.empty(u.shape[1]), KnownCategories.empty(u.shape[1])
    return SimulatedNovelty(u, labels, known, scatter, SINGLE, draw, returning)


def test_the_number_of_novel_classes_has_an_error():
    for novel, seed in ((2, 0), (5, 1)):
        u, labels, _ = classes(12, novel, 24, nuisance=1.0, seed=seed)
        estimate = estimate_number(simulation(u, labels), 8, QUIET)
        assert abs(estimate.n_novel - novel) <= 1
        assert estimate.standard_error is not None
        assert estimate.standard_error < 1.5
        assert [k for k, _ in estimate.curve] == list(range(12, 21))


def test_where_classes_return_the_number_is_the_mean_of_the_folds_and_higher_where_missing_one_costs_more(
    monkeypatch,
):
    of_agreement = [dict.fromkeys(range(8), 0.0) | {best: 1.0} for best in (1, 2, 2, 3, 3, 3, 4, 6)]
    of_agreement[1] |= {0: 1.0}  # as good in this fold, and worse in the others
    u, labels, _ = classes(8, 2, 20, nuisance=1.0)
    none = dict.fromkeys(range(8), 0.0)
    of_folds = [FoldNumbers(0, agreement, none, none, none) for agreement in of_agreement]
    same = simulation(u, labels, returning=True)
    monkeypatch.setattr(same, "score_numbers", lambda *_: of_folds)
    estimate = estimate_number(same, 7, QUIET)
    assert estimate.n_novel == 3
    assert estimate.standard_error == pytest.approx(math.sqrt(2))
    # By hand: 3 costs 4 + 1 + 1 below and c (1 + 9) above, 4 costs 9 + 4 + 4 + 1 + 1 + 1 below and c 4 above.
    assert estimate_number(same, 7, QUIET, missed_cost=2.3).n_novel == 3
    assert estimate_number(same, 7, QUIET, missed_cost=2.4).n_novel == 4


@pytest.mark.parametrize(("novel", "seed"), [(0, 0), (1, 1), (2, 2), (3, 3), (2, 3), (3, 1)])
def test_well_separated_classes_are_counted_exactly(novel, seed):
    # In the last two cases one cluster fewer has the same score: two novel classes share one at no cost.
    draw = torch.Generator().manual_seed(seed)
    truth = torch.arange(6 + novel).repeat_interleave(20)
    x = 3 * torch.randn(6 + novel, 48, generator=draw)[truth] + torch.randn(len(truth), 48, generator=draw)
    labels = truth.where((truth < 6) & (torch.arange(len(truth)) % 2 == 0), UNLABELLED)
    estimate = estimate_number(simulation(F.normalize(x, dim=1), labels), 10, QUIET)
    assert estimate.n_novel == novel


def test_the_same_generator_gives_the_same_result():
    u, labels, _ = classes(8, 3, 16, nuisance=1.0)
    one, two = (estimate_number(simulation(u, labels, seed=4), 8, QUIET) for _ in range(2))
    assert one == two


@pytest.mark.parametrize(("novel", "seed"), [(2, 3), (6, 4)])
def test_classes_of_a_long_tail_are_counted_within_the_error(novel, seed):
    u, labels, truth = classes(16, novel, 48, nuisance=1.0, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    sizes = (48 * 10 ** -torch.linspace(0, 1, 16 + novel))[torch.randperm(16 + novel, generator=draw)]
    kept = torch.arange(len(truth)) % 48 < sizes[truth]
    estimate = estimate_number(simulation(u[kept], labels[kept]), 16, QUIET)
    assert abs(estimate.n_novel - novel) <= 1.645 * estimate.standard_error


def fold(number_found, mistaken, flagged, n_hidden=10):
    return FoldNumbers(n_hidden, *({1: value} for value in (1.0, number_found, mistaken, flagged)))


def test_the_images_of_novel_classes_by_hand():
    labels = torch.tensor([0, 1, 2, 3, 4] * 8 + [UNLABELLED] * 60)
    same = [dataclasses.replace(fold(0.8, 0.1, 0.45)) for _ in range(4)]
    for each in same:
        each.agreement[0] = 1.0
    images = estimate_novel_images(same, labels)
    # Half of the 60 images are of novel or hidden classes. A quarter of the labelled ones are hidden: C + (60 - C) / 4 = 30.
    assert images.count == pytest.approx(20)
    assert images.variance == pytest.approx(0, abs=1e-9)


def test_the_jackknife_variance_by_hand():
    labels = torch.tensor([0, 1] * 20 + [UNLABELLED] * 100)
    flagged = (0.2, 0.3, 0.4, 0.5)
    folds = [FoldNumbers(4, {1: 1.0}, {1: 1.0}, {1: 0.0}, {1: share}) for share in flagged]
    images = estimate_novel_images([*folds], labels)
    # A tenth of the labelled images are hidden: C + (100 - C) / 10 = 35.
    assert images.count == pytest.approx(25 / 0.9)
    # Of a mean, the jackknife gives the variance of single values over their number.
    assert images.variance == pytest.approx(
        (100 / 0.9) ** 2 * float(torch.tensor(flagged).var()) / 4, rel=1e-4
    )


def test_images_of_equal_classes_tell_the_number_and_those_of_a_long_tail_little():
    equal = torch.arange(10).repeat_interleave(15)
    unlabelled = torch.full((250,), UNLABELLED)  # 150 of known and 100 of novel classes
    images = NovelImages(100.0, 4.0)
    of_equal = log_likelihood_of_images(images, torch.cat([equal, unlabelled]), 12).softmax(dim=0)
    assert int(of_equal.argmax()) == 3  # 100 / 30 = 3.3
    assert float(of_equal[3]) > 0.6
    tail = torch.arange(10).repeat_interleave(torch.tensor([60, 30, 20, 12, 8, 6, 5, 4, 3, 2]))
    of_tail = log_likelihood_of_images(images, torch.cat([tail, unlabelled]), 12).softmax(dim=0)
    assert float(of_tail.max()) < 0.3


def test_the_likelihood_of_agreement_by_hand():
    got = log_likelihood_of_agreement([2, 4, 4, 6], 8)
    variance = (1 / 4 + 1 / 3) * (8 / 3) + 1 / 12
    torch.testing.assert_close(
        got, torch.tensor([-((n - 4) ** 2) / (2 * variance) for n in range(9)]).double()
    )
