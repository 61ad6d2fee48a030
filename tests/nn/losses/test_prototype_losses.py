"""Pseudo-labels, mean entropy and cross-entropy against loops over the equations."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camp.nn.losses import cross_entropy, mean_entropy, pseudo_label, teacher_temperature


def random_logits(images: int, prototypes: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(2, images, prototypes, generator=generator, dtype=torch.float64) * 2 - 1


def slow_softmax(row: torch.Tensor, temperature: float) -> list[float]:
    weights = [math.exp(float(v) / temperature) for v in row]
    return [w / sum(weights) for w in weights]


cases = given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 1000))


@cases
@settings(max_examples=25, deadline=None)
def test_pseudo_label_is_its_equation(images: int, prototypes: int, seed: int) -> None:
    logits = random_logits(images, prototypes, seed)
    total = 0.0
    for i in range(images):
        for teacher, student in ((0, 1), (1, 0)):
            q = slow_softmax(logits[teacher, i], 0.04)
            p = slow_softmax(logits[student, i], 0.1)
            total -= sum(a * math.log(b) for a, b in zip(q, p))
    assert pseudo_label(logits, 0.04).item() == pytest.approx(total / (2 * images), rel=1e-9)


@cases
@settings(max_examples=25, deadline=None)
def test_mean_entropy_is_its_equation(images: int, prototypes: int, seed: int) -> None:
    logits = random_logits(images, prototypes, seed)
    rows = [slow_softmax(logits[v, i], 0.1) for v in range(2) for i in range(images)]
    mean = [sum(row[k] for row in rows) / len(rows) for k in range(prototypes)]
    expected = math.log(prototypes) + sum(p * math.log(p) for p in mean)
    value = mean_entropy(logits).item()
    assert value == pytest.approx(expected, abs=1e-9)
    assert -1e-9 <= value <= math.log(prototypes) + 1e-9


@cases
@settings(max_examples=25, deadline=None)
def test_cross_entropy_is_its_equation(images: int, prototypes: int, seed: int) -> None:
    logits = random_logits(images, prototypes, seed)
    labels = [(seed + i) % prototypes for i in range(images)]
    total = sum(
        -math.log(slow_softmax(logits[v, i], 0.1)[labels[i]]) for v in range(2) for i in range(images)
    )
    assert cross_entropy(logits, torch.tensor(labels)).item() == pytest.approx(total / (2 * images), rel=1e-9)


def test_the_teacher_gets_no_gradient() -> None:
    logits = random_logits(3, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(pseudo_label(logits, 0.04), logits)
    q = (logits.detach() / 0.04).softmax(-1)
    p = (logits.detach() / 0.1).softmax(-1)
    # Of a cross-entropy with a fixed target: (p - q') / tau, here over two views of three images.
    assert torch.allclose(gradient, (p - q.flip(0)) / 0.1 / 6)


def test_gradients() -> None:
    logits = random_logits(3, 4).requires_grad_()
    assert torch.autograd.gradcheck(mean_entropy, logits)
    assert torch.autograd.gradcheck(lambda value: cross_entropy(value, torch.tensor([0, 3, 1])), logits)


def test_an_unused_prototype_gives_finite_gradients() -> None:
    logits = torch.tensor([0.0, 0.0, -1e4]).repeat(2, 5, 1).requires_grad_()
    mean_entropy(logits).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert mean_entropy(logits).item() == pytest.approx(math.log(3) - math.log(2), rel=1e-5)


def test_mean_entropy_extremes() -> None:
    assert mean_entropy(torch.zeros(2, 4, 7)).item() == pytest.approx(0.0, abs=1e-6)
    one = torch.zeros(2, 4, 7)
    one[..., 2] = 100.0
    assert mean_entropy(one).item() == pytest.approx(math.log(7), rel=1e-6)


def test_schedule_of_the_teacher() -> None:
    assert [round(teacher_temperature(e), 12) for e in range(5)] == [0.07, 0.055, 0.04, 0.04, 0.04]
    assert teacher_temperature(0, warmup=0) == 0.04
    assert teacher_temperature(0, warmup=1) == 0.07
    with pytest.raises(ValueError, match="negative"):
        teacher_temperature(-1)


def test_an_empty_batch_has_zero_loss() -> None:
    logits = torch.zeros(2, 0, 4, requires_grad=True)
    none = torch.zeros(0, dtype=torch.long)
    total = pseudo_label(logits, 0.04) + mean_entropy(logits) + cross_entropy(logits, none)
    total.backward()
    assert total.item() == 0.0


@pytest.mark.parametrize("temperature", [0.0, -0.1])
def test_illegal_values(temperature: float) -> None:
    logits = random_logits(2, 3)
    for call in (
        lambda: pseudo_label(logits, temperature),
        lambda: pseudo_label(logits, 0.1, temperature),
        lambda: mean_entropy(logits, temperature),
        lambda: cross_entropy(logits, torch.tensor([0, 1]), temperature),
    ):
        with pytest.raises(ValueError, match="positive"):
            call()
    with pytest.raises(ValueError, match="one for both views"):
        cross_entropy(logits, torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="two views"):
        mean_entropy(logits[0])
