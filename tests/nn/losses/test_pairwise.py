"""Pairs of images: neighbours against sorted lists, the loss against a loop over pairs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from camp.nn.losses import mutual_neighbours, pairwise


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow_neighbours(z: Tensor, count: int) -> list[list[bool]]:
    rows = z.tolist()

    def nearest(i: int) -> list[int]:
        def cosine(j: int) -> float:
            return sum(a * b for a, b in zip(rows[i], rows[j])) / math.hypot(*rows[i]) / math.hypot(*rows[j])

        return sorted((j for j in range(len(rows)) if j != i), key=cosine, reverse=True)[:count]

    return [
        [i == j or (j in nearest(i) and i in nearest(j)) for j in range(len(rows))] for i in range(len(rows))
    ]


@given(st.integers(0, 9), st.integers(1, 12), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_neighbours_are_those_of_a_sorted_list(images: int, count: int, seed: int) -> None:
    z = drawn(images, 4, seed=seed)
    assert mutual_neighbours(z, count).tolist() == slow_neighbours(z, count)


def test_neighbours_need_a_count() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        mutual_neighbours(drawn(3, 2), 0)


def softmax(logits: list[float], temperature: float) -> list[float]:
    weights = [math.exp(value / temperature) for value in logits]
    return [weight / sum(weights) for weight in weights]


def slow(logits: Tensor, alike: Tensor, temperature: float) -> float:
    """-1/B^2 sum_ij ( s_ij log p_i.p_j' + (1 - s_ij) log(1 - p_i.p_j') ), pair by pair."""
    images, total = logits.shape[1], 0.0
    for i in range(images):
        for j in range(images):
            p, q = (softmax(logits[v, n].tolist(), temperature) for v, n in ((0, i), (1, j)))
            together = sum(a * b for a, b in zip(p, q))
            total -= math.log(together) if alike[i, j] else math.log(1 - together)
    return total / images**2


@given(st.integers(1, 6), st.floats(0.5, 3.0), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_it_is_its_equation(images: int, temperature: float, seed: int) -> None:
    logits, alike = drawn(2, images, 4, seed=seed), drawn(images, images, seed=seed + 1) > 0
    expected = slow(logits, alike, temperature)
    assert pairwise(logits, alike, temperature).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_the_second_view_is_not_the_first() -> None:
    logits, alike = drawn(2, 3, 4), torch.eye(3, dtype=torch.bool)
    assert pairwise(logits, alike) != pairwise(logits[:1].repeat(2, 1, 1), alike)


def test_gradients() -> None:
    logits, alike = drawn(2, 3, 4).requires_grad_(), torch.eye(3, dtype=torch.bool)
    assert torch.autograd.gradcheck(lambda value: pairwise(value, alike, 1.0), logits)


@pytest.mark.parametrize("alike", [True, False])
def test_confident_mistakes_stay_finite_in_float32(alike: bool) -> None:
    logits = torch.zeros(2, 2, 3)
    logits[..., 0] = 100.0
    if alike:
        logits[1] = logits[1].flip(
            -1
        )  # surely apart, and said to be alike; else surely together, and said not to be
    logits.requires_grad_()
    loss = pairwise(logits, torch.full((2, 2), alike))
    loss.backward()
    assert loss.isfinite()
    assert loss > 10
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_an_empty_batch_has_zero_loss_and_a_gradient() -> None:
    logits = torch.zeros(2, 0, 4, requires_grad=True)
    loss = pairwise(logits, mutual_neighbours(logits[0], 5))
    loss.backward()
    assert loss.item() == 0.0


def test_shapes_and_temperatures_are_checked() -> None:
    with pytest.raises(ValueError, match="two views"):
        pairwise(drawn(3, 4), torch.eye(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="alike"):
        pairwise(drawn(2, 3, 4), torch.eye(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="positive"):
        pairwise(drawn(2, 3, 4), torch.eye(3, dtype=torch.bool), 0.0)
