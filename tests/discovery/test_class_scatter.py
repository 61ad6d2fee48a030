"""The within-class scatter against its definition."""

import pytest
import torch

from camp.discovery.class_scatter import WithinClassScatter


def features(classes: int, per_class: int, dim: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(per_class)
    mix = torch.randn(dim, dim, generator=draw)
    spread = torch.randn(len(labels), dim, generator=draw) @ mix
    return 3 * torch.randn(classes, dim, generator=draw)[labels] + spread, labels


def slow_total(u: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(u.shape[1], u.shape[1], dtype=torch.float64)
    for label in labels.unique():
        own = u[labels == label].double()
        for one in own - own.mean(dim=0):
            total += torch.outer(one, one)
    return total


def test_scatters_of_tasks_add_up():
    u, labels = features(6, 7, 5)
    first = labels < 2
    scatter = WithinClassScatter.empty(5).add(u[first], labels[first]).add(u[~first], labels[~first] - 2)
    torch.testing.assert_close(scatter.total, slow_total(u, labels), rtol=1e-4, atol=1e-3)
    assert scatter.degrees_of_freedom == 42 - 6


def test_whitening_is_a_root_of_the_inverse_scatter():
    u, labels = features(4, 20, 6)
    scatter = WithinClassScatter.empty(6).add(u, labels)
    p = scatter.whitening(0.3).double()
    within = slow_total(u, labels) / (80 - 4)
    shrunk = 0.7 * within + 0.3 * within.trace() / 6 * torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(p @ p.T, torch.linalg.inv(shrunk), rtol=1e-3, atol=1e-4)


def test_shrinkage_1_gives_euclidean_distances():
    scatter = WithinClassScatter.empty(4).add(*features(3, 5, 4))
    p = scatter.whitening(1.0)
    torch.testing.assert_close(p, p[0, 0] * torch.eye(4))


@pytest.mark.parametrize("per_class", [1, 0])
def test_classes_of_one_image_give_the_identity(per_class):
    u, labels = features(3, per_class, 4)
    assert torch.equal(WithinClassScatter.empty(4).add(u, labels).whitening(0.5), torch.eye(4))


def test_an_exact_map_carries_the_scatter_exactly():
    u, labels = features(4, 10, 5)
    weight = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
    there = u @ weight.T + 7
    carried = WithinClassScatter.empty(5).add(u, labels).carry(weight, torch.zeros(5, 5))
    torch.testing.assert_close(carried.total, slow_total(there, labels), rtol=1e-4, atol=1e-2)


def test_the_error_of_the_map_adds_to_the_scatter():
    u, labels = features(5, 4000, 3)
    draw = torch.Generator().manual_seed(2)
    error = torch.diag(torch.tensor([0.5, 2.0, 4.0]))
    there = u @ torch.eye(3) * 2 + torch.randn(len(u), 3, generator=draw) @ error.sqrt()
    carried = WithinClassScatter.empty(3).add(u, labels).carry(2 * torch.eye(3), error)
    truly = slow_total_fast(there, labels)
    assert (carried.total - truly).norm() < 0.02 * truly.norm()
    without = WithinClassScatter.empty(3).add(u, labels).carry(2 * torch.eye(3), torch.zeros(3, 3))
    assert (without.total - truly).norm() > 3 * (carried.total - truly).norm()


def slow_total_fast(u: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The same as `slow_total`, a class at a time."""
    parts = [u[labels == label].double() for label in labels.unique()]
    return sum(((x - x.mean(dim=0)).T @ (x - x.mean(dim=0)) for x in parts), torch.zeros(3, 3))
