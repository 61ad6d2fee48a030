"""The class metric against its equations, written out with full matrices."""

import numpy as np
import pytest
import torch

from camp.discovery import class_metric
from camp.discovery.class_metric import SHRINKAGE, ClassMetric
from camp.discovery.class_scatter import WithinClassScatter
from camp.discovery.principal_components import fit_components
from camp.discovery.semi_supervised_kmeans import semi_supervised_kmeans


def classes(count: int, per_class: int, dim: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes whose means differ in six directions, with variation in four others that all share."""
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


@pytest.mark.parametrize("per_class", [4, 30])  # fewer and more labelled images than dimensions
def test_points_are_those_of_the_equations(per_class):
    features, labels = classes(6, per_class, dim=48)
    labels = labels.masked_fill(torch.arange(len(labels)) % 3 == 0, -1)
    points = ClassMetric.fit(features, labels, 5).transform(features)
    expected = slow_points(features, labels, 5, SHRINKAGE)
    # The sign of a component is arbitrary; distances do not depend on it.
    assert torch.allclose(
        torch.cdist(points.double(), points.double()), torch.cdist(expected, expected), atol=2e-3
    )


def test_the_metric_of_known_classes_separates_novel_ones():
    features, truth = classes(12, 25, dim=64, seed=3)
    labels = truth.masked_fill(truth >= 8, -1)

    def right(points: torch.Tensor) -> float:
        found = semi_supervised_kmeans(
            points, labels, 4, n_init=10, generator=torch.Generator().manual_seed(0)
        ).assignments
        novel = truth >= 8
        pairs = (found[novel][:, None] == found[novel]) == (truth[novel][:, None] == truth[novel])
        return float(pairs.float().mean())

    points = ClassMetric.fit(features, labels, 32, shrinkage=0.2).transform(features)
    assert right(points) > 0.9 > right(features) + 0.1


def test_without_labels_points_are_principal_components():
    features, _ = classes(5, 10, dim=40)
    metric = ClassMetric.fit(features, torch.full((50,), -1), 3)
    u = torch.nn.functional.normalize(features - features.mean(dim=0), dim=1)
    centred = u - u.mean(dim=0)
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    expected = torch.nn.functional.normalize(centred @ axes[:3].T, dim=1)
    points = metric.transform(features)
    assert torch.allclose(points @ points.T, expected @ expected.T, atol=1e-3)


def test_features_of_few_dimensions_keep_their_length():
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [10.0, 0.0], [11.0, 0.0]])
    points = ClassMetric.fit(x, torch.tensor([0, 0, 1, 1]), 32).transform(x)
    d = torch.cdist(points, points)
    assert d[0, 1] < d[1, 2]
    assert d[0, 2] > d[1, 2]
    assert points.norm(dim=1).mean().item() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [-1, -1, -1]])
def test_equal_features_give_finite_points(labels):
    points = ClassMetric.fit(torch.ones(3, 40), torch.tensor(labels), 4).transform(torch.ones(3, 40))
    assert bool(points.isfinite().all())


def test_centroids_and_leave_one_out_distances():
    features, labels = classes(3, 5, dim=40)
    labels[-1] = 3  # the only image of its class
    metric = ClassMetric.fit(features, labels, 4)
    points = metric.transform(features)
    means = torch.from_numpy(metric.centroids(points.numpy(), labels.numpy(), 4))
    left = metric.leave_one_out_distances(points.numpy(), labels.numpy(), 4)
    for i in range(len(points)):
        others = points[(labels == labels[i]) & (torch.arange(len(points)) != i)]
        if len(others):
            centroid = others.mean(dim=0) / others.mean(dim=0).norm()
            assert left[i].item() == pytest.approx((points[i] - centroid).norm().item(), abs=1e-5)
    assert np.isnan(left[-1])
    own = points[labels == 1].mean(dim=0)
    assert torch.allclose(means[1], own / own.norm(), atol=1e-6)


def test_the_first_components_are_the_metric_of_fewer_components():
    features, labels = classes(8, 12, dim=60)
    many, few = (ClassMetric.fit(features, labels, count) for count in (40, 6))
    np.testing.assert_allclose(many.projection[:, :6], few.projection, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(many.offset[:6], few.offset, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("per_class", [12, 6])
def test_transform_gives_the_scores_of_the_fitted_features(per_class):
    features, labels = classes(8, per_class, dim=60)
    scatter = WithinClassScatter.empty(60).add(features, labels)
    components = fit_components(features, scatter, 10, 0.5)
    scores = features @ components.projection - components.offset
    torch.testing.assert_close(scores, components.scores, rtol=1e-3, atol=1e-3)


def test_many_features_are_transformed_in_chunks(monkeypatch):
    features, labels = classes(5, 10, dim=40)
    metric = ClassMetric.fit(features, labels, 4)
    whole, x, index = metric.transform(features), features.numpy(), labels.numpy()
    distances = metric.leave_one_out_distances(x, index, 5)
    monkeypatch.setattr(class_metric, "_CHUNK", 7)
    torch.testing.assert_close(metric.transform(features), whole)
    np.testing.assert_allclose(metric.leave_one_out_distances(x, index, 5), distances)
    assert metric.transform(features[:0]).shape == (0, 4)


def test_state_restores_the_metric():
    features, labels = classes(3, 5, dim=40)
    metric = ClassMetric.fit(features, labels, 4)
    again = ClassMetric.from_state(metric.state())
    assert torch.equal(again.transform(features), metric.transform(features))
    assert again.unit == metric.unit
