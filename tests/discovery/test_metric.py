"""The metric against its equations, written out with full matrices."""

import pytest
import torch

from camp.discovery.class_metric import SHRINKAGE, Metric, fit_metric
from camp.discovery.semi_supervised_kmeans import semi_supervised_kmeans


def classes(count: int, per_class: int, dim: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes that differ in a few directions and vary in others, which they share."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count).repeat_interleave(per_class)
    means = torch.zeros(count, dim)
    means[:, :6] = torch.randn(count, 6, generator=draw)
    nuisance = torch.randn(len(labels), 4, generator=draw) @ torch.randn(4, dim, generator=draw)
    noise = 0.1 * torch.randn(len(labels), dim, generator=draw)
    return means[labels] + nuisance + noise + 5.0, labels


def slow_points(features: torch.Tensor, labels: torch.Tensor, directions: int, s: float) -> torch.Tensor:
    """Unit features, S = (1 - s) W + s tr(W) / D I, y = S^{-1/2} u, principal components, unit length."""
    x = features.double() - features.double().mean(dim=0)
    u = x / x.norm(dim=1, keepdim=True)
    w = torch.zeros(u.shape[1], u.shape[1], dtype=torch.float64)
    labelled = labels >= 0
    for label in labels[labelled].unique():
        own = u[labels == label]
        w += (own - own.mean(dim=0)).T @ (own - own.mean(dim=0))
    w /= int(labelled.sum()) - len(labels[labelled].unique())
    shrunk = (1 - s) * w + s * w.trace() / len(w) * torch.eye(len(w), dtype=torch.float64)
    values, vectors = torch.linalg.eigh(shrunk)
    y = u @ (vectors * values.rsqrt()) @ vectors.T
    centred = y - y.mean(dim=0)
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    p = centred @ axes[:directions].T
    return p / p.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("per_class", [4, 30])  # fewer and more labelled pictures than dimensions
def test_points_are_those_of_the_equations(per_class):
    features, labels = classes(6, per_class, dim=48)
    labels = labels.masked_fill(torch.arange(len(labels)) % 3 == 0, -1)
    points = fit_metric(features, labels, 5)(features)
    expected = slow_points(features, labels, 5, SHRINKAGE)
    # Principal directions have no sign; distances do not ask for it.
    assert torch.allclose(
        torch.cdist(points.double(), points.double()), torch.cdist(expected, expected), atol=2e-3
    )


def test_new_classes_stand_apart_by_what_the_known_ones_taught():
    features, truth = classes(12, 25, dim=64, seed=3)
    labels = truth.masked_fill(truth >= 8, -1)

    def right(points: torch.Tensor) -> float:
        found = semi_supervised_kmeans(
            points, labels, 4, n_init=10, generator=torch.Generator().manual_seed(0)
        ).assignments
        novel = truth >= 8
        pairs = (found[novel][:, None] == found[novel]) == (truth[novel][:, None] == truth[novel])
        return float(pairs.float().mean())

    assert right(fit_metric(features, labels, 32, shrinkage=0.2)(features)) > 0.9 > right(features) + 0.1


def test_without_labels_it_is_principal_components():
    features, _ = classes(5, 10, dim=40)
    metric = fit_metric(features, torch.full((50,), -1), 3)
    u = torch.nn.functional.normalize(features - features.mean(dim=0), dim=1)
    centred = u - u.mean(dim=0)
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    expected = torch.nn.functional.normalize(centred @ axes[:3].T, dim=1)
    points = metric(features)
    assert torch.allclose(points @ points.T, expected @ expected.T, atol=1e-3)


def test_few_dimensions_keep_their_length():
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [10.0, 0.0], [11.0, 0.0]])
    points = fit_metric(x, torch.tensor([0, 0, 1, 1]), 32)(x)
    d = torch.cdist(points, points)
    assert d[0, 1] < d[1, 2]
    assert d[0, 2] > d[1, 2]


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [-1, -1, -1]])
def test_what_does_not_vary_is_no_trouble(labels):
    points = fit_metric(torch.ones(3, 40), torch.tensor(labels), 4)(torch.ones(3, 40))
    assert bool(points.isfinite().all())


def test_centroids_and_what_is_left_out():
    features, labels = classes(3, 5, dim=40)
    labels[-1] = 3  # alone in its category
    metric = fit_metric(features, labels, 4)
    points = metric(features)
    means = metric.means(points, labels, 4)
    left = metric.left_out(points, labels, 4)
    for i in range(len(points)):
        others = points[(labels == labels[i]) & (torch.arange(len(points)) != i)]
        if len(others):
            centroid = others.mean(dim=0) / others.mean(dim=0).norm()
            assert left[i].item() == pytest.approx((points[i] - centroid).norm().item(), abs=1e-5)
    assert left[-1].isnan()
    own = points[labels == 1].mean(dim=0)
    assert torch.allclose(means[1], own / own.norm(), atol=1e-6)


def test_it_can_be_written_and_read():
    features, labels = classes(3, 5, dim=40)
    metric = fit_metric(features, labels, 4)
    again = Metric.of(metric.tensors())
    assert torch.equal(again(features), metric(features))
    assert again.unit == metric.unit
