"""The soft neighbourhood loss against loops over images, views and pairs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camp.nn.losses import simclr, soft_neighbourhood, supcon


def projections(images: int, dim: int = 4, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, images, dim, generator=generator, dtype=torch.float64)


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()))


def slow(h: torch.Tensor, threshold: float, temperature: float) -> float:
    """Similarities, neighbours, softmax, scaling and the weighted sum, each as the paper puts it."""
    images, views = range(h.shape[1]), [(v, i) for i in range(h.shape[1]) for v in range(2)]
    losses = []
    for i in images:
        s = {j: max(cosine(h[v, i], h[w, j]) for v in range(2) for w in range(2)) for j in images}
        s[i] = 1.0
        neighbours = [j for j in images if s[j] >= threshold]
        if neighbours == [i]:
            continue
        softmax = {j: math.exp(s[j]) / sum(math.exp(s[n]) for n in neighbours) for j in neighbours}
        w = {j: share / max(softmax.values()) for j, share in softmax.items()}
        for v in range(2):
            others = [b for b in views if b != (v, i)]
            total = sum(math.exp(cosine(h[v, i], h[b]) / temperature) for b in others)
            positives = [b for b in others if b[1] in neighbours]
            terms = [w[b[1]] * (cosine(h[v, i], h[b]) / temperature - math.log(total)) for b in positives]
            losses.append(-sum(terms) / len(terms))
    return sum(losses) / len(losses) if losses else 0.0


@given(st.integers(1, 7), st.floats(-0.5, 0.99), st.floats(0.05, 2.0), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_it_is_its_equation(images: int, threshold: float, temperature: float, seed: int) -> None:
    h = projections(images, seed=seed)
    expected = slow(h, threshold, temperature)
    assert soft_neighbourhood(h, threshold, temperature).item() == pytest.approx(
        expected, rel=1e-9, abs=1e-12
    )


def test_identical_pairs_are_a_class() -> None:
    """With positiveness 1 for all neighbours it is SupCon."""
    h = projections(3).repeat_interleave(2, dim=1)
    labels = torch.arange(3).repeat_interleave(2)
    assert soft_neighbourhood(h, 0.9999).item() == pytest.approx(supcon(h, labels).item())


def test_positiveness_grows_with_similarity() -> None:
    """Two neighbours, both of equal weight in SupCon; the nearer one pulls harder."""
    angles = torch.tensor([0.0, 0.1, -0.5], dtype=torch.float64)
    h = torch.stack([angles.cos(), angles.sin()], dim=-1).expand(2, -1, -1).clone().requires_grad_()
    weighted = soft_neighbourhood(h, 0.8, 1.0).item()
    assert weighted < supcon(h, torch.zeros(3, dtype=torch.long), 1.0).item()
    assert weighted == pytest.approx(slow(h.detach(), 0.8, 1.0))


def test_neighbours_and_positiveness_are_targets() -> None:
    """The gradient is that of the log-probabilities at fixed weights; gradcheck would see others."""
    h = projections(5, seed=2).requires_grad_()
    (gradient,) = torch.autograd.grad(soft_neighbourhood(h, 0.3, 0.5), h)
    unit = torch.nn.functional.normalize(h.detach(), dim=-1)
    s = torch.einsum("vid,wjd->vwij", unit, unit).amax(dim=(0, 1)).fill_diagonal_(1.0)
    fixed = torch.where(s >= 0.3, (s - 1).exp(), 0.0).repeat(2, 2)

    def at_fixed_weights(h: torch.Tensor) -> torch.Tensor:
        views = torch.nn.functional.normalize(h.flatten(0, 1), dim=1)
        total, anchors = torch.zeros((), dtype=torch.float64), 0
        for a in range(10):
            others = [b for b in range(10) if b != a]
            positives = [b for b in others if fixed[a, b] > 0]
            if len(positives) == 1:
                continue
            share = dict(zip(others, (views[others] @ views[a] / 0.5).log_softmax(dim=0)))
            total = total - sum(fixed[a, b] * share[b] for b in positives) / len(positives)
            anchors += 1
        return total / anchors

    expected = torch.autograd.grad(at_fixed_weights(h), h)[0]
    torch.testing.assert_close(gradient, expected)


def test_the_loss_is_zero_without_neighbours() -> None:
    for images in (0, 1, 4):
        h = projections(images).requires_grad_()
        loss = soft_neighbourhood(h, 1.0)
        loss.backward()
        assert loss.item() == 0.0
        assert h.grad is not None
        assert not h.grad.any()


def test_all_images_are_neighbours_at_threshold_minus_one() -> None:
    h = torch.ones(2, 8, 4, requires_grad=True)
    loss = soft_neighbourhood(h, 0.85, 1e-3)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(15), rel=1e-5)
    assert h.grad is not None
    assert h.grad.isfinite().all()


def test_two_images_at_a_low_threshold_are_more_than_simclr() -> None:
    h = projections(2)
    assert soft_neighbourhood(h, -1.0, 0.5).item() != pytest.approx(simclr(h, 0.5).item())


@pytest.mark.parametrize("threshold", [-1.5, 1.5, math.nan])
def test_thresholds_are_checked(threshold: float) -> None:
    with pytest.raises(ValueError, match="cosine"):
        soft_neighbourhood(projections(2), threshold)


def test_shapes_and_temperatures_are_checked() -> None:
    with pytest.raises(ValueError, match="two views"):
        soft_neighbourhood(torch.zeros(3, 4, 5))
    with pytest.raises(ValueError, match="positive"):
        soft_neighbourhood(projections(2), temperature=0.0)
