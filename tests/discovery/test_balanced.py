"""Clusters that keep to the sizes the labels foretell."""

import torch

from camp.core.types import UNLABELLED
from camp.discovery.semi_supervised_kmeans import KMeans, semi_supervised_kmeans
from camp.discovery.size_constraints import Balance, balanced, expected_sizes


def start_of(points: torch.Tensor, labels: torch.Tensor, n_novel: int) -> KMeans:
    return semi_supervised_kmeans(
        points, labels, n_novel, n_init=20, generator=torch.Generator().manual_seed(0)
    )


def test_equal_classes_half_labelled_are_foretold_exactly():
    labels = torch.tensor([0] * 10 + [3] * 10 + [UNLABELLED] * (10 + 10 + 3 * 20))
    torch.testing.assert_close(expected_sizes(labels, 3), torch.tensor([10.0, 10.0, 20.0, 20.0, 20.0]))


def test_sizes_always_add_up_to_the_unlabelled_pictures():
    labels = torch.tensor([0, 0, 0, 1, *[UNLABELLED] * 5])
    for n_novel in (1, 2, 5):
        sizes = expected_sizes(labels, n_novel)
        assert len(sizes) == 2 + n_novel
        assert abs(float(sizes.sum()) - 5) < 1e-5
        assert bool((sizes >= 0).all())


def test_where_nothing_is_labelled_all_are_alike():
    assert expected_sizes(torch.full((12,), UNLABELLED), 3).tolist() == [4.0, 4.0, 4.0]


def swallowing() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A novel class close to a known one, and a wide known class that is worth more to k-means if it is cut in two."""
    draw = torch.Generator().manual_seed(0)
    close, novel = 0.1 * torch.randn(60, 2, generator=draw), 0.1 * torch.randn(60, 2, generator=draw)
    novel[:, 0] += 0.5
    wide = torch.randn(60, 2, generator=draw) * torch.tensor([0.1, 0.6])
    wide[:, 0] += 1.5
    truth = torch.arange(3).repeat_interleave(60)
    labels = torch.where((torch.arange(180) % 60 < 30) & (truth != 1), truth, UNLABELLED)
    return torch.cat([close, novel, wide]), labels, truth


def test_a_known_class_no_longer_swallows_a_novel_one():
    points, labels, truth = swallowing()
    start = start_of(points, labels, 1)
    found = balanced(points, labels, start, Balance(sharpness=10.0, hold=0.9))

    def right(assignments: torch.Tensor) -> float:
        return float((assignments[truth == 1] == 2).float().mean())

    assert right(start.assignments) == 0.0  # the trap works
    assert right(found) > 0.95
    assert float((found[truth == 2] == 1).float().mean()) > 0.95
    assert float((found[truth == 0] == 0).float().mean()) > 0.95


def test_without_hold_it_stays_with_soft_k_means():
    points, labels, truth = swallowing()
    found = balanced(points, labels, start_of(points, labels, 1), Balance(sharpness=10.0, hold=0.0))
    assert float((found[truth == 1] == 2).float().mean()) < 0.05


def test_sizes_are_held_exactly_where_they_are_asked_for():
    draw = torch.Generator().manual_seed(1)
    points = torch.rand(300, 2, generator=draw)  # nothing but a ground to be shared out
    labels = torch.full((300,), UNLABELLED)
    labels[:20], labels[20:60] = 0, 1
    sizes = expected_sizes(labels, 2)
    found = balanced(points, labels, start_of(points, labels, 2), Balance(sharpness=50.0, hold=1.0))
    got = torch.bincount(found[labels == UNLABELLED], minlength=4)
    assert float((got - sizes).abs().max()) < 0.15 * float(sizes.max())


def test_labelled_points_stay_with_their_class():
    points, labels, _ = swallowing()
    found = balanced(points, labels, start_of(points, labels, 1), Balance(10.0, 1.0))
    assert found[labels == 0].unique().tolist() == [0]
    assert found[labels == 2].unique().tolist() == [1]


def test_nothing_to_assign_is_left_as_it_is():
    points, labels = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1])
    assert balanced(points, labels, start_of(points, labels, 0), Balance(10.0, 1.0)).tolist() == [0, 0, 1]
