"""Choosing by simulated novelty: what is found, and that nothing else is looked at."""

import pytest
import torch
import torch.nn.functional as F

from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.discovery import simulated_novelty
from camp.discovery.class_scatter import Scatter
from camp.discovery.simulated_novelty import Candidates, Simulation, _Fold, choose, points, principal

QUIET = Progress(quiet=True)


def classes(known: int, novel: int, per_class: int, nuisance: float, seed: int = 0):
    """Unit features of classes that differ in ten directions and vary in four others, which they share."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.arange(known + novel).repeat_interleave(per_class)
    x = torch.zeros(len(truth), 40)
    x[:, :10] = torch.randn(known + novel, 10, generator=draw)[truth]
    x[:, 10:14] = nuisance * torch.randn(len(truth), 4, generator=draw)
    x += 0.15 * torch.randn(len(truth), 40, generator=draw)
    labels = truth.where((truth < known) & (torch.rand(len(truth), generator=draw) < 0.5), UNLABELLED)
    return F.normalize(x, dim=1), labels, truth


ONE = Candidates(shrinkages=(0.3,), directions=(16,), sharpnesses=(10.0,), holds=(0.9,))
"""Nothing left to choose but the number."""


def simulation(u, labels, candidates=None, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return Simulation(u, labels, Scatter.none(u.shape[1]), candidates or Candidates(), True, draw)


def test_the_number_of_novel_classes_is_found_with_its_error():
    for novel, seed in ((2, 0), (5, 1)):
        u, labels, _ = classes(12, novel, 24, nuisance=1.0, seed=seed)
        choice = choose(simulation(u, labels, ONE), None, 8, QUIET)
        assert abs(choice.n_novel - novel) <= 1
        assert choice.error is not None
        assert choice.error < 1.5
        assert choice.curve is not None
        assert max(choice.curve, key=lambda point: point[1])[0] == 12 + choice.n_novel


@pytest.mark.parametrize(("novel", "seed"), [(0, 0), (1, 1), (2, 2), (3, 3), (2, 3), (3, 1)])
def test_classes_that_lie_far_apart_are_counted_exactly(novel, seed):
    # Too few clusters put two novel classes into one, which no hidden class need ever notice: in the last two cases one
    # cluster fewer scores the same.
    draw = torch.Generator().manual_seed(seed)
    truth = torch.arange(6 + novel).repeat_interleave(20)
    x = 3 * torch.randn(6 + novel, 48, generator=draw)[truth] + torch.randn(len(truth), 48, generator=draw)
    labels = truth.where((truth < 6) & (torch.arange(len(truth)) % 2 == 0), UNLABELLED)
    choice = choose(simulation(F.normalize(x, dim=1), labels, ONE), None, 10, QUIET)
    assert choice.n_novel == novel


def test_of_many_pictures_some_are_looked_at(monkeypatch):
    monkeypatch.setattr(simulated_novelty, "AT_MOST", 150)
    u, labels, _ = classes(8, 2, 40, nuisance=1.0)
    some = simulation(u, labels, ONE)
    assert some.u.shape == (150, 40)
    assert some.labels.shape == (150,)
    assert [len(fold.shown) for fold in some.folds] == [150] * 8
    assert abs(choose(some, None, 6, QUIET).n_novel - 2) <= 1


def test_a_number_that_is_told_is_kept():
    u, labels, _ = classes(8, 3, 16, nuisance=1.0)
    choice = choose(simulation(u, labels), 5, 12, QUIET)
    assert (choice.n_novel, choice.error, choice.curve) == (5, None, None)


def test_the_metric_is_learned_where_it_is_needed():
    candidates = Candidates(shrinkages=(1.0, 0.1), directions=(8,), sharpnesses=(10.0,), holds=(0.9,))
    u, labels, _ = classes(12, 3, 20, nuisance=3.0)
    choice = choose(simulation(u, labels, candidates), 3, 3, QUIET)
    assert choice.recipe.shrinkage == 0.1
    plain, learned = (
        sum(simulation(u, labels, candidates).scores(recipe, 3))
        for recipe in candidates.spaces(candidates.default())
    )
    assert learned > plain + 0.5


def test_folds_hide_every_class_equally_often_and_few_of_the_others():
    u, labels, _ = classes(10, 2, 40, nuisance=1.0)
    folds = simulation(u, labels).folds
    assert len(folds) == 10  # two classes each, twice
    assert torch.stack([fold.classes for fold in folds]).sum(dim=0).equal(2 * (labels != UNLABELLED).long())
    for fold in folds:
        assert not bool((fold.classes & fold.pictures).any())
        hidden = fold.classes | fold.pictures
        assert torch.equal(fold.shown, labels.masked_fill(hidden, UNLABELLED))
        others = (labels != UNLABELLED) & ~fold.classes
        assert 0 < int(fold.pictures.sum()) < 0.3 * int(others.sum())
        assert fold.names.tolist() == sorted(set(labels[others].tolist()))


def test_the_accuracy_of_a_fold_by_hand():
    labels = torch.tensor([4, 4, 4, 9, 9, 2, 2, UNLABELLED])
    fold = _Fold(
        classes=torch.tensor([1, 1, 1, 1, 1, 0, 0, 0]).bool(),
        pictures=torch.tensor([0, 0, 0, 0, 0, 0, 1, 0]).bool(),
        shown=torch.tensor([-1, -1, -1, -1, -1, 2, -1, -1]),
        names=torch.tensor([2]),
        scatter=Scatter.none(1),
    )
    # Cluster 0 is class 2's; 4 is found in cluster 1 but for one picture, 9 only in part: the other went to class 2.
    found = torch.tensor([1, 1, 2, 2, 0, 0, 0, 1])
    assert fold.accuracy(found, labels) == (3 / 5 + 1.0) / 2


def test_with_too_few_classes_the_defaults_stand():
    u, labels, _ = classes(3, 2, 10, nuisance=1.0)
    choice = choose(simulation(u, labels), 2, 10, QUIET)
    assert choice.recipe == Candidates().default()
    assert choice.score is None


def test_points_are_principal_components_at_unit_length():
    u, labels, _ = classes(6, 2, 20, nuisance=1.0)
    kept = labels != UNLABELLED
    scatter = Scatter.none(40).with_classes(u[kept], labels[kept])
    y = (u @ scatter.whitening(0.4)).double()
    centred = y - y.mean(dim=0)
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    expected = F.normalize(centred @ axes[:6].T, dim=1)
    got = points(principal(u, scatter, 0.4, 8), 6, True).double()
    torch.testing.assert_close(torch.cdist(got, got), torch.cdist(expected, expected), atol=0.02, rtol=0.0)


def test_the_same_draw_gives_the_same_choice():
    u, labels, _ = classes(8, 3, 16, nuisance=1.0)
    one, two = (choose(simulation(u, labels, ONE, seed=4), None, 8, QUIET) for _ in range(2))
    assert one == two
