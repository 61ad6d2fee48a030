"""Sufficient statistics of categories, against sums over images."""

import pytest
import torch
import torch.nn.functional as F

from camp.discovery.category_statistics import Assigned, Statistics


@pytest.fixture
def images() -> tuple[torch.Tensor, torch.Tensor, Statistics]:
    """Unit points, their weights in four categories, and the categories with them and with other images."""
    draw = torch.Generator().manual_seed(0)
    x = F.normalize(torch.randn(9, 5, generator=draw), dim=1)
    q = torch.softmax(3 * torch.randn(9, 4, generator=draw), dim=1)
    known = Statistics(torch.tensor([2.0, 7.0]), torch.randn(2, 5, generator=draw))
    return x, q, known


def test_assigned_images_are_added_to_categories_and_make_new_ones(images):
    x, q, known = images
    of_all = known.with_assigned(Assigned.of(x, q))
    counts = [known.counts[k] if k < 2 else 0.0 for k in range(4)]
    sums = [known.sums[k] if k < 2 else torch.zeros(5) for k in range(4)]
    for k in range(4):
        torch.testing.assert_close(of_all.counts[k], counts[k] + q[:, k].sum())
        torch.testing.assert_close(of_all.sums[k], sums[k] + sum(q[i, k] * x[i] for i in range(9)))
    appended = known.with_novel(x[:1])
    assert appended.counts.tolist() == [2.0, 7.0, 1.0]
    assert torch.equal(appended.sums[2], x[0])


def test_points_of_classes_count_as_many_images_as_they_stand_for():
    points = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 5.0]])
    known = Statistics.of_classes(points, torch.tensor([1, 1, 0]), 2, torch.tensor([1.0, 3.0, 1.0]))
    assert (known.counts.tolist(), known.sums.tolist()) == ([1.0, 4.0], [[5.0, 5.0], [10.0, 14.0]])


def test_sums_over_images_follow_from_the_statistics(images):
    x, q, known = images
    assigned = Assigned.of(x, q)
    of_all, centres = known.with_assigned(assigned), torch.randn(4, 5)
    pairs = [(i, k) for i in range(9) for k in range(4)]
    cosines = sum(float(q[i, k] * (x[i] @ (of_all.sums[k] - q[i, k] * x[i]))) for i, k in pairs)
    assert assigned.cosines(of_all.sums) == pytest.approx(cosines, rel=1e-5)
    others = sum(float(q[i, k] * (of_all.counts[k] - q[i, k])) for i, k in pairs)
    assert assigned.pairs(of_all.counts) == pytest.approx(others, rel=1e-5)
    distances = sum(float(q[i, k] * (x[i] - centres[k]).square().sum()) for i, k in pairs)
    assert assigned.squared_distances(centres) == pytest.approx(distances, rel=1e-5)
