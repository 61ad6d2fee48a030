"""Cross-validation that hides known classes."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.discovery import simulated_novelty
from camp.discovery.base import KnownCategories
from camp.discovery.class_scatter import WithinClassScatter
from camp.discovery.principal_components import fit_components
from camp.discovery.simulated_novelty import (
    Fold,
    ParameterGrid,
    SimulatedNovelty,
    estimate_number,
    select_parameters,
)

QUIET = Progress(quiet=True)


def classes(known: int, novel: int, per_class: int, nuisance: float, seed: int = 0):
    """Unit features of classes whose means differ in ten directions, with variation in four others that all share."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.arange(known + novel).repeat_interleave(per_class)
    x = torch.zeros(len(truth), 40)
    x[:, :10] = torch.randn(known + novel, 10, generator=draw)[truth]
    x[:, 10:14] = nuisance * torch.randn(len(truth), 4, generator=draw)
    x += 0.15 * torch.randn(len(truth), 40, generator=draw)
    labels = truth.where((truth < known) & (torch.rand(len(truth), generator=draw) < 0.5), UNLABELLED)
    return F.normalize(x, dim=1), labels, truth


SINGLE = ParameterGrid(shrinkage=(0.3,), n_components=(16,), power=(0.5,))
"""One value of each parameter."""


def simulation(u, labels, grid=None, seed=0):
    draw = torch.Generator().manual_seed(seed)
    scatter, known = WithinClassScatter.empty(u.shape[1]), KnownCategories.empty(u.shape[1])
    return SimulatedNovelty(u, labels, known, scatter, grid or ParameterGrid(), draw)


def test_the_number_of_novel_classes_has_an_error():
    for novel, seed in ((2, 0), (5, 1)):
        u, labels, _ = classes(12, novel, 24, nuisance=1.0, seed=seed)
        estimate = estimate_number(simulation(u, labels, SINGLE), 8, QUIET)
        assert abs(estimate.n_novel - novel) <= 1
        assert estimate.standard_error is not None
        assert estimate.standard_error < 1.5
        assert [k for k, _ in estimate.curve] == list(range(12, 21))


def test_the_number_is_the_mean_of_the_folds_and_higher_where_missing_one_costs_more(monkeypatch):
    of_folds = [dict.fromkeys(range(8), 0.0) | {best: 1.0} for best in (1, 2, 2, 3, 3, 3, 4, 6)]
    of_folds[1] |= {0: 1.0}  # as good in this fold, and worse in the others
    u, labels, _ = classes(8, 2, 20, nuisance=1.0)
    same = simulation(u, labels, SINGLE)
    monkeypatch.setattr(same, "score_numbers", lambda _p, _m, folds, _b: of_folds[folds])
    estimate = estimate_number(same, 7, QUIET)
    assert estimate.n_novel == 3
    assert estimate.standard_error == pytest.approx(1.5118579)
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
    estimate = estimate_number(simulation(F.normalize(x, dim=1), labels, SINGLE), 10, QUIET)
    assert estimate.n_novel == novel


def test_a_sample_of_many_images_is_used(monkeypatch):
    monkeypatch.setattr(simulated_novelty, "MAX_SAMPLES", 150)
    u, labels, _ = classes(8, 2, 40, nuisance=1.0)
    sampled = simulation(u, labels, SINGLE)
    assert sampled.features.shape == (150, 40)
    assert sampled.labels.shape == (150,)
    assert [len(fold.shown) for fold in sampled.folds] == [150] * 8
    assert abs(estimate_number(sampled, 6, QUIET).n_novel - 2) <= 1


def test_the_shrinkage_that_separates_classes_is_selected():
    grid = ParameterGrid(shrinkage=(1.0, 0.1), n_components=(8,), power=(0.5,))
    u, labels, _ = classes(12, 3, 20, nuisance=3.0)
    parameters, _ = select_parameters(simulation(u, labels, grid), 3, estimated=False, progress=QUIET)
    assert parameters.shrinkage == 0.1
    plain, learned = (
        sum(simulation(u, labels, grid).scores(parameters, 3))
        for parameters in grid.shrinkages(grid.default())
    )
    assert learned > plain + 0.5


def test_the_better_widths_of_densities_are_selected():
    u, labels, _ = classes(12, 3, 20, nuisance=1.0)
    grid = dataclasses.replace(SINGLE, equal_widths=(False, True))
    same = simulation(u, labels, grid)
    selected, score = select_parameters(same, 3, estimated=False, progress=QUIET)
    scores = [sum(same.scores(each, 3)) / len(same.folds) for each in grid.widths(grid.default())]
    assert score == pytest.approx(max(scores))
    assert selected.mixture.equal_widths == (scores[1] > scores[0])
    assert selected.selected()["equal_widths"] == float(selected.mixture.equal_widths)


def test_folds_hide_every_class_equally_often_and_few_images_of_the_others():
    u, labels, _ = classes(10, 2, 40, nuisance=1.0)
    folds = simulation(u, labels).folds
    assert len(folds) == 10  # two classes each, twice
    assert (
        torch.stack([fold.hidden_classes for fold in folds])
        .sum(dim=0)
        .equal(2 * (labels != UNLABELLED).long())
    )
    for fold in folds:
        assert not bool((fold.hidden_classes & fold.hidden_images).any())
        hidden = fold.hidden_classes | fold.hidden_images
        assert torch.equal(fold.shown, labels.masked_fill(hidden, UNLABELLED))
        others = (labels != UNLABELLED) & ~fold.hidden_classes
        assert 0 < int(fold.hidden_images.sum()) < 0.3 * int(others.sum())
        assert fold.shown_classes.tolist() == sorted(set(labels[others].tolist()))


def test_the_score_of_a_fold_by_hand():
    labels = torch.tensor([4, 4, 4, 9, 9, 2, 2, UNLABELLED])
    fold = Fold(
        hidden_classes=torch.tensor([1, 1, 1, 1, 1, 0, 0, 0]).bool(),
        hidden_images=torch.tensor([0, 0, 0, 0, 0, 0, 1, 0]).bool(),
        shown=torch.tensor([-1, -1, -1, -1, -1, 2, -1, -1]),
        known=KnownCategories.empty(1),
        shown_classes=torch.tensor([2]),
        scatter=WithinClassScatter.empty(1),
    )
    # Cluster 0 belongs to class 2, cluster 1 to two images of class 4, cluster 2 to one of class 9.
    clusters = torch.tensor([1, 1, 2, 2, 0, 0, 0, 1])
    # The recall of class 4 is 2 / 3 and that of class 9 1 / 2; classes count equally.
    assert fold.score(clusters, labels) == pytest.approx(((2 / 3 + 1 / 2) / 2 + 1.0) / 2)


def test_a_category_with_novel_images_agrees_less_by_hand():
    labels = torch.tensor([4, 4, 9, 9, 2, 2, UNLABELLED, UNLABELLED, UNLABELLED])
    fold = Fold(
        hidden_classes=torch.tensor([0, 0, 1, 1, 0, 0, 0, 0, 0]).bool(),
        hidden_images=torch.zeros(9).bool(),
        shown=torch.tensor([4, 4, -1, -1, 2, 2, -1, -1, -1]),
        known=KnownCategories.empty(1),
        shown_classes=torch.tensor([2, 4]),
        scatter=WithinClassScatter.empty(1),
    )
    # With nothing hidden, class 9 also has the first unlabelled image; the other two are novel.
    members = torch.tensor([1, 1, 2, 2, 0, 0, 2, 3, 3])
    apart = torch.tensor([1, 1, 2, 2, 0, 0, 2, 3, 3])
    together = torch.tensor([1, 1, 2, 2, 0, 0, 2, 2, 2])
    classes = torch.tensor([2, 4, 9])
    assert fold.agreement(apart, labels, members, classes) == 1
    assert fold.agreement(together, labels, members, classes) == pytest.approx(2 * 3 / (5 + 3))
    assert fold.score(together, labels) == 1


def test_with_too_few_classes_the_defaults_are_used():
    u, labels, _ = classes(1, 2, 10, nuisance=1.0)
    assert select_parameters(simulation(u, labels), 2, estimated=False, progress=QUIET) == (
        ParameterGrid().default(),
        None,
    )


@pytest.mark.parametrize(("known", "hidden"), [(2, 1), (3, 1), (4, 2), (5, 2)])
def test_folds_hide_two_classes_or_one_where_there_are_few(known, hidden):
    u, labels, _ = classes(known, 2, 40, nuisance=1.0)
    folds = simulation(u, labels).folds
    assert {len(labels[fold.hidden_classes].unique()) for fold in folds} <= {hidden, hidden + known % hidden}
    assert all(len(fold.shown_classes) >= 1 for fold in folds)


def test_points_are_principal_components_at_unit_length():
    u, labels, _ = classes(6, 2, 20, nuisance=1.0)
    kept = labels != UNLABELLED
    scatter = WithinClassScatter.empty(40).add(u[kept], labels[kept])
    y = (u @ scatter.whitening(0.4)).double()
    centred = y - y.mean(dim=0)
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    expected = F.normalize(centred @ axes[:6].T, dim=1)
    got = fit_components(u, scatter, 8, 0.4).points(6, unit=True).double()
    torch.testing.assert_close(torch.cdist(got, got), torch.cdist(expected, expected), atol=0.02, rtol=0.0)


def test_the_same_generator_gives_the_same_result():
    u, labels, _ = classes(8, 3, 16, nuisance=1.0)
    one, two = (estimate_number(simulation(u, labels, SINGLE, seed=4), 8, QUIET) for _ in range(2))
    assert one == two


@pytest.mark.parametrize("unit", [True, False])
def test_points_of_means_are_the_means_of_points(unit):
    draw = torch.Generator().manual_seed(0)
    means, index = 2 * torch.randn(6, 40, generator=draw), torch.arange(6).repeat_interleave(400)
    features = means[index] + torch.randn(2400, 40, generator=draw)
    scatter = WithinClassScatter.empty(40).add(features, index)
    components = fit_components(features, scatter, 30, 0.4)
    points = components.points(30, unit)
    of_classes = torch.stack([points[index == k].mean(dim=0) for k in range(6)])
    spread = float((points - of_classes[index]).square().sum())
    centroids = torch.stack([features[index == k].mean(dim=0) for k in range(6)])
    got, of_means = components.expected_points(centroids, torch.full((6,), 400.0), scatter, 30, unit)
    torch.testing.assert_close(got, of_classes, atol=0.02, rtol=0.0)
    assert of_means == pytest.approx(spread, rel=0.1)
    single, none = components.expected_points(features[:9], torch.ones(9), scatter, 30, unit)
    torch.testing.assert_close(single, points[:9], atol=1e-4, rtol=1e-4)
    assert none == 0


def test_a_fold_forgets_the_remembered_statistics_of_the_classes_it_hides():
    u, labels, _ = classes(8, 2, 20, nuisance=1.0)
    known = KnownCategories(u[:3], torch.tensor([0, 1, 50]), torch.full((3,), 9.0))
    folds = SimulatedNovelty(
        u, labels, known, WithinClassScatter.empty(40), ParameterGrid(), torch.Generator().manual_seed(0)
    ).folds
    for fold in folds:
        hidden = set(labels[fold.hidden_classes].tolist())
        assert set(fold.known.labels.tolist()) == {0, 1, 50} - hidden
        assert 50 in fold.shown_classes
    assert any(len(fold.known) < 3 for fold in folds)
