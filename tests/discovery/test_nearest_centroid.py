"""The nearest centroid against scikit-learn and loops."""

import math

import pytest
import sklearn.neighbors
import torch

from camp.discovery import nearest_centroid
from camp.discovery.nearest_centroid import NearestCentroid


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_scikit_learn_agrees() -> None:
    z, labels = draw(300, 8), torch.arange(300) % 7
    oracle = sklearn.neighbors.NearestCentroid().fit(z.numpy(), labels.numpy())
    centroids = torch.stack([z[labels == c].mean(0) for c in range(7)])
    new = draw(200, 8, seed=1)
    assert NearestCentroid(centroids).predict(new).tolist() == oracle.predict(new.numpy()).tolist()


def test_distances_are_their_definitions() -> None:
    z, centroids = draw(4, 3), draw(5, 3, seed=1)
    l2, cosine = NearestCentroid(centroids).distances(z), NearestCentroid(centroids, "cosine").distances(z)
    for i, a in enumerate(z.tolist()):
        for j, b in enumerate(centroids.tolist()):
            assert l2[i, j].item() == pytest.approx(math.dist(a, b), rel=1e-5)
            dot = sum(p * q for p, q in zip(a, b))
            assert cosine[i, j].item() == pytest.approx(1 - dot / math.hypot(*a) / math.hypot(*b), abs=1e-5)


def test_cosine_ignores_length() -> None:
    centroids = torch.tensor([[1.0, 0.0], [0.0, 100.0]])
    z = torch.tensor([[9.0, 10.0]])
    assert NearestCentroid(centroids, "cosine").predict(z).tolist() == [1]
    assert NearestCentroid(centroids, "l2").predict(z).tolist() == [0]


def test_only_allowed_centroids_are_predicted() -> None:
    z, centroids = draw(50, 4), draw(6, 4, seed=1)
    allowed = torch.tensor([5, 1, 3])
    classifier = NearestCentroid(centroids)
    expected = [min((5, 1, 3), key=lambda j: row[j]) for row in classifier.distances(z).tolist()]
    assert classifier.predict(z, allowed).tolist() == expected


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    z, centroids = draw(101, 4), draw(6, 4, seed=1)
    whole = NearestCentroid(centroids).predict(z)
    monkeypatch.setattr(nearest_centroid, "_CHUNK", 7)
    assert torch.equal(NearestCentroid(centroids).predict(z), whole)


def test_close_centroids_far_from_the_origin_are_distinguished() -> None:
    centroids = torch.tensor([[1000.0, 1000.0], [1000.1, 1000.0]]).repeat(20, 1)
    z = torch.tensor([[1000.04, 1000.0], [1000.06, 1000.0]]).repeat(30, 1)
    assert NearestCentroid(centroids).predict(z).tolist() == [0, 1] * 30


def test_no_features_and_no_centroids() -> None:
    assert NearestCentroid(draw(3, 4)).predict(torch.zeros(0, 4)).shape == (0,)
    with pytest.raises(ValueError, match="centroid"):
        NearestCentroid(draw(3, 4)).predict(draw(2, 4), torch.zeros(0, dtype=torch.long))
