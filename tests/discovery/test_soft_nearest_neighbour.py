"""Soft nearest neighbours against a loop over the equation."""

import math

import pytest
import torch

from camp.discovery import soft_nearest_neighbour
from camp.discovery.soft_nearest_neighbour import SoftNearestNeighbour


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


SUPPORT, CATEGORIES = draw(7, 5), torch.tensor([0, 3, 1, 0, 0, 3, 1])  # category 2 is empty


def slow(x: list[float], tau: float) -> list[float]:
    p = [0.0] * 4
    weights = []
    for s in SUPPORT.tolist():
        cosine = sum(a * b for a, b in zip(x, s)) / math.hypot(*x) / math.hypot(*s)
        weights.append(math.exp(cosine / tau))
    for weight, category in zip(weights, CATEGORIES.tolist()):
        p[category] += weight / sum(weights)
    return p


@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_probabilities_are_their_equation(tau: float) -> None:
    z = draw(2, 6, 5, seed=1)
    p = SoftNearestNeighbour(SUPPORT, CATEGORIES, 4, tau).probabilities(z)
    assert p.shape == (2, 6, 4)
    for found, x in zip(p.flatten(0, 1).tolist(), z.flatten(0, 1).tolist()):
        assert found == pytest.approx(slow(x, tau), rel=1e-9)
        assert sum(found) == pytest.approx(1)


def test_the_most_probable_of_the_allowed_categories_is_predicted() -> None:
    classifier, z = SoftNearestNeighbour(SUPPORT, CATEGORIES, 4), draw(40, 5, seed=2)
    allowed = [3, 2, 1]
    everywhere, some = classifier.predict(z), classifier.predict(z, torch.tensor(allowed))
    for x, any_, one in zip(z.tolist(), everywhere.tolist(), some.tolist()):
        p = slow(x, 0.1)
        assert any_ == max(range(4), key=lambda k: p[k])
        assert one == max(allowed, key=lambda k: p[k])
    assert len(set(everywhere.tolist())) > 1


def test_a_category_without_images_is_chosen_only_when_there_is_no_other() -> None:
    classifier, z = SoftNearestNeighbour(SUPPORT, CATEGORIES, 4), draw(20, 5, seed=2)
    assert (classifier.predict(z) != 2).all()
    assert (classifier.predict(z, torch.tensor([2])) == 2).all()


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, z = SoftNearestNeighbour(SUPPORT, CATEGORIES, 4), draw(50, 5, seed=2)
    whole = classifier.predict(z)
    monkeypatch.setattr(soft_nearest_neighbour, "_CHUNK", 7)
    assert torch.equal(classifier.predict(z), whole)


def test_many_votes_win_over_a_slightly_nearer_one() -> None:
    """The difference from the nearest neighbour."""
    support = torch.tensor([[1.0, 0.0], [0.98, 0.199], [0.98, -0.199]])
    classifier = SoftNearestNeighbour(support, torch.tensor([0, 1, 1]), 2)
    assert classifier.predict(torch.tensor([[1.0, 0.0]])).tolist() == [1]


def test_no_features_and_no_support() -> None:
    assert SoftNearestNeighbour(SUPPORT, CATEGORIES, 4).predict(draw(0, 5)).shape == (0,)
    with pytest.raises(ValueError, match="neighbour"):
        SoftNearestNeighbour(draw(0, 5), CATEGORIES[:0], 4).predict(draw(2, 5))


def test_gradients_reach_the_features() -> None:
    classifier = SoftNearestNeighbour(SUPPORT, CATEGORIES, 4)
    assert torch.autograd.gradcheck(classifier.probabilities, draw(3, 5, seed=4).requires_grad_())
