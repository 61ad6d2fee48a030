"""Estimates on mixtures with a known number of classes, and on scikit-learn's digits."""

import pytest
import torch
from sklearn.datasets import load_digits

from camp.core.errors import CampError
from camp.discovery.number_of_categories import estimate_n_novel, estimate_without_labels


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def hide(classes: torch.Tensor, known: int, seed: int = 0) -> torch.Tensor:
    """Labels of half of the images of the first `known` classes."""
    labelled = (classes < known) & (torch.rand(len(classes), generator=draw(seed)) < 0.5)
    return torch.where(labelled, classes, -1)


def mixture(classes: int, noise: float, seed: int = 0, n: int = 400, dim: int = 16):
    g = draw(seed)
    y = torch.arange(n) % classes
    means = torch.randn(classes, dim, generator=g)
    return means[y] + noise * torch.randn(n, dim, generator=g), y


@pytest.mark.parametrize(("known", "novel"), [(6, 4), (8, 0), (6, 1)])
def test_separate_classes_are_counted(known: int, novel: int) -> None:
    x, classes = mixture(known + novel, noise=0.15, seed=1)
    found = estimate_n_novel(x, hide(classes, known), 10, draw())
    assert abs(found.n_novel - novel) <= 1
    assert (known + found.n_novel) in [k for k, _ in found.curve]


def test_digits() -> None:
    digits = load_digits()
    x, classes = torch.tensor(digits.data, dtype=torch.float32), torch.tensor(digits.target)
    found = estimate_n_novel(x[:800], hide(classes[:800], 7), 10, draw(), n_init=5)
    assert abs(7 + found.n_novel - 10) <= 2


def test_the_curve_has_its_peak_at_the_estimate_and_covers_the_range() -> None:
    x, classes = mixture(9, noise=0.3)
    found = estimate_n_novel(x, hide(classes, 6), 20, draw(), n_init=5)
    ks = [k for k, _ in found.curve]
    scores, best = dict(found.curve), 6 + found.n_novel
    assert ks == sorted(set(ks))
    assert ks[0] == 6
    assert ks[-1] == 26
    assert scores[best] == max(scores.values())
    assert best == min(k for k, score in found.curve if score == scores[best])
    assert {best - 1, best + 1} <= set(ks) | {5, 27}
    assert len(ks) < 21  # not all numbers are evaluated
    assert all(0 <= score <= 1 for score in scores.values())


def test_same_generator_same_curve() -> None:
    x, classes = mixture(6, noise=0.5, n=200)
    labels = hide(classes, 4)
    assert estimate_n_novel(x, labels, 5, draw(), n_init=3) == estimate_n_novel(
        x, labels, 5, draw(), n_init=3
    )


def test_few_labels() -> None:
    x, classes = mixture(4, noise=0.1, n=80)
    one_class = torch.where(classes == 0, 0, -1)
    assert 0 <= estimate_n_novel(x, one_class, 6, draw(), n_init=3).n_novel <= 6
    one_image = torch.full((80,), -1)
    one_image[:3] = torch.tensor([0, 1, 2])
    assert 0 <= estimate_n_novel(x, one_image, 6, draw(), n_init=3).n_novel <= 6


def test_no_more_than_there_are_unlabelled_images() -> None:
    x, classes = mixture(3, noise=0.1, n=30)
    labels = classes.clone()
    labels[:2] = -1
    assert estimate_n_novel(x, labels, 10, draw(), n_init=2).n_novel <= 2
    assert estimate_n_novel(x, classes, 10, draw(), n_init=2).n_novel == 0


def test_refusals() -> None:
    x = torch.zeros(4, 2)
    with pytest.raises(CampError, match="labelled images"):
        estimate_n_novel(x, torch.full((4,), -1), 3, draw())
    with pytest.raises(CampError, match="max_novel"):
        estimate_n_novel(x, torch.tensor([0, 0, 1, -1]), -1, draw())


def test_separate_classes_are_counted_without_labels() -> None:
    x, _ = mixture(7, noise=0.15, seed=1)
    found = estimate_without_labels(x, 15, draw())
    assert found.n_novel == 7
    assert [k for k, _ in found.curve] == list(range(2, 16))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_images_without_labels(count: int) -> None:
    assert 1 <= estimate_without_labels(torch.randn(count, 4, generator=draw()), 10, draw()).n_novel <= count
