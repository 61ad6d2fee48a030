"""Clusters under a size constraint."""

import torch

from camp.core.types import UNLABELLED
from camp.discovery.semi_supervised_kmeans import KMeans, semi_supervised_kmeans
from camp.discovery.size_constraints import SizeConstraint, constrain_sizes, expected_sizes


def start_of(points: torch.Tensor, labels: torch.Tensor, n_novel: int) -> KMeans:
    return semi_supervised_kmeans(
        points, labels, n_novel, n_init=20, generator=torch.Generator().manual_seed(0)
    )


def test_sizes_of_equal_half_labelled_classes_are_exact():
    labels = torch.tensor([0] * 10 + [3] * 10 + [UNLABELLED] * (10 + 10 + 3 * 20))
    torch.testing.assert_close(expected_sizes(labels, 3), torch.tensor([10.0, 10.0, 20.0, 20.0, 20.0]))


def test_sizes_sum_to_the_number_of_unlabelled_images():
    labels = torch.tensor([0, 0, 0, 1, *[UNLABELLED] * 5])
    for n_novel in (1, 2, 5):
        sizes = expected_sizes(labels, n_novel)
        assert len(sizes) == 2 + n_novel
        assert abs(float(sizes.sum()) - 5) < 1e-5
        assert bool((sizes >= 0).all())


def test_sizes_are_equal_without_labels():
    assert expected_sizes(torch.full((12,), UNLABELLED), 3).tolist() == [4.0, 4.0, 4.0]


def absorbed_class() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A novel class near a known one, and a wide known class that k-means splits instead."""
    draw = torch.Generator().manual_seed(0)
    close, novel = 0.1 * torch.randn(60, 2, generator=draw), 0.1 * torch.randn(60, 2, generator=draw)
    novel[:, 0] += 0.5
    wide = torch.randn(60, 2, generator=draw) * torch.tensor([0.1, 0.6])
    wide[:, 0] += 1.5
    truth = torch.arange(3).repeat_interleave(60)
    labels = torch.where((torch.arange(180) % 60 < 30) & (truth != 1), truth, UNLABELLED)
    return torch.cat([close, novel, wide]), labels, truth


def test_a_known_class_does_not_absorb_a_novel_one():
    points, labels, truth = absorbed_class()
    start = start_of(points, labels, 1)
    found = constrain_sizes(points, labels, start, SizeConstraint(inverse_temperature=10.0, size_prior=0.9))

    def right(assignments: torch.Tensor) -> float:
        return float((assignments[truth == 1] == 2).float().mean())

    assert right(start.assignments) == 0.0  # plain k-means fails
    assert right(found) > 0.95
    assert float((found[truth == 2] == 1).float().mean()) > 0.95
    assert float((found[truth == 0] == 0).float().mean()) > 0.95


def test_size_prior_0_is_soft_k_means():
    points, labels, truth = absorbed_class()
    found = constrain_sizes(
        points, labels, start_of(points, labels, 1), SizeConstraint(inverse_temperature=10.0, size_prior=0.0)
    )
    assert float((found[truth == 1] == 2).float().mean()) < 0.05


def test_size_prior_1_gives_the_expected_sizes():
    draw = torch.Generator().manual_seed(1)
    points = torch.rand(300, 2, generator=draw)  # no clusters
    labels = torch.full((300,), UNLABELLED)
    labels[:20], labels[20:60] = 0, 1
    sizes = expected_sizes(labels, 2)
    found = constrain_sizes(
        points, labels, start_of(points, labels, 2), SizeConstraint(inverse_temperature=50.0, size_prior=1.0)
    )
    got = torch.bincount(found[labels == UNLABELLED], minlength=4)
    assert float((got - sizes).abs().max()) < 0.15 * float(sizes.max())


def test_labelled_points_stay_with_their_class():
    points, labels, _ = absorbed_class()
    found = constrain_sizes(points, labels, start_of(points, labels, 1), SizeConstraint(10.0, 1.0))
    assert found[labels == 0].unique().tolist() == [0]
    assert found[labels == 2].unique().tolist() == [1]


def test_nothing_to_assign_is_left_as_it_is():
    points, labels = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1])
    assert constrain_sizes(
        points, labels, start_of(points, labels, 0), SizeConstraint(10.0, 1.0)
    ).tolist() == [0, 0, 1]
