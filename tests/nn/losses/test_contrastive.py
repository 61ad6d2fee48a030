"""SimCLR and SupCon against loops over explicit pairs and against pytorch-metric-learning."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.losses import NTXentLoss, SupConLoss

from camp.nn.losses import simclr, supcon


def projections(images: int, dim: int = 5, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, images, dim, generator=generator, dtype=torch.float64)


def unit(vector: torch.Tensor) -> list[float]:
    length = math.sqrt(sum(float(v) ** 2 for v in vector))
    return [float(v) / length for v in vector]


def slow(h: torch.Tensor, temperature: float, positives) -> float:
    """-1/2B sum_i 1/|N_i| sum_q log( exp(h_i.h_q/tau) / sum_{n != i} exp(h_i.h_n/tau) ), pair by pair."""
    views = [(v, i, unit(h[v, i])) for v in range(2) for i in range(h.shape[1])]
    total = 0.0
    for a in range(len(views)):
        weight = {
            b: math.exp(sum(p * q for p, q in zip(views[a][2], views[b][2])) / temperature)
            for b in range(len(views))
            if b != a
        }
        chosen = [b for b in weight if positives(views[a], views[b])]
        total -= sum(math.log(weight[b] / sum(weight.values())) for b in chosen) / len(chosen)
    return total / len(views)


@given(st.integers(1, 6), st.floats(0.05, 2.0), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_simclr_is_its_equation(images: int, temperature: float, seed: int) -> None:
    h = projections(images, seed=seed)
    expected = slow(h, temperature, lambda a, b: a[1] == b[1])
    assert simclr(h, temperature).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.floats(0.05, 2.0), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_supcon_is_its_equation(labels: list[int], temperature: float, seed: int) -> None:
    h = projections(len(labels), seed=seed)
    expected = slow(h, temperature, lambda a, b: labels[a[1]] == labels[b[1]])
    assert supcon(h, torch.tensor(labels), temperature).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_pytorch_metric_learning_agrees() -> None:
    h = projections(12, 16)
    labels = torch.arange(12) % 5
    flat = h.flatten(0, 1)
    assert simclr(h, 0.5).item() == pytest.approx(NTXentLoss(0.5)(flat, torch.arange(12).repeat(2)).item())
    assert supcon(h, labels, 0.07).item() == pytest.approx(SupConLoss(0.07)(flat, labels.repeat(2)).item())


def test_temperatures_of_the_reference_are_the_defaults() -> None:
    h, labels = projections(6), torch.tensor([0, 0, 1, 1, 2, 2])
    assert simclr(h) == simclr(h, 1.0)
    assert supcon(h, labels) == supcon(h, labels, 0.07)


def test_supcon_with_a_class_an_image_is_simclr() -> None:
    h = projections(7)
    assert supcon(h, torch.arange(7), 0.3).item() == pytest.approx(simclr(h, 0.3).item())


def test_length_of_projections_does_not_matter() -> None:
    h = projections(4)
    scale = torch.tensor([0.1, 3.0, 7.0, 100.0], dtype=torch.float64)[None, :, None]
    assert simclr(h * scale).item() == pytest.approx(simclr(h).item())


def test_gradients() -> None:
    h = projections(4).requires_grad_()
    labels = torch.tensor([0, 1, 0, 2])
    assert torch.autograd.gradcheck(lambda h: simclr(h, 0.5), h)
    assert torch.autograd.gradcheck(lambda h: supcon(h, labels, 0.5), h)


def test_extreme_similarities_stay_finite_in_float32() -> None:
    h = torch.ones(2, 8, 4)
    h[:, 4:] *= -1
    h.requires_grad_()
    loss = simclr(h, 1e-3) + supcon(h, torch.arange(8) // 4, 1e-3)
    loss.backward()
    assert loss.isfinite()
    assert h.grad is not None
    assert h.grad.isfinite().all()


def test_an_empty_batch_has_zero_loss_and_a_gradient() -> None:
    h = torch.zeros(2, 0, 4, requires_grad=True)
    loss = simclr(h) + supcon(h, torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0.0


@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 5), (2, 4)])
def test_shapes_are_checked(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="two views"):
        simclr(torch.zeros(shape))


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_temperatures_are_checked(temperature: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        simclr(projections(2), temperature)
    with pytest.raises(ValueError, match="positive"):
        supcon(projections(2), torch.tensor([0, 1]), temperature)


def test_labels_are_one_for_both_views() -> None:
    with pytest.raises(ValueError, match="one for both views"):
        supcon(projections(2), torch.tensor([0, 1, 0, 1]))
