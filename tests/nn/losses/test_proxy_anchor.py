"""The proxy-anchor loss against a loop over its sums and against pytorch-metric-learning."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.losses import ProxyAnchorLoss
from torch import Tensor

from camp.nn.losses import proxy_anchor

CLASSES, DIM = 4, 5


def drawn(images: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Embeddings of two views and the proxies."""
    draw = torch.Generator().manual_seed(seed)
    z = torch.randn(2, images, DIM, generator=draw, dtype=torch.float64)
    return z, torch.randn(CLASSES, DIM, generator=draw, dtype=torch.float64)


def cosine(a: list[float], b: list[float]) -> float:
    return sum(p * q for p, q in zip(a, b)) / math.hypot(*a) / math.hypot(*b)


def slow(z: Tensor, labels: list[int], proxies: Tensor, mu: float, delta: float) -> float:
    """The two sums of the supplement, one proxy and one embedding at a time."""
    embeddings = [(z[v, i].tolist(), labels[i]) for v in range(2) for i in range(len(labels))]
    pull, push = [], []
    for c, p in enumerate(proxies.tolist()):
        positive = [cosine(e, p) for e, label in embeddings if label == c]
        negative = [cosine(e, p) for e, label in embeddings if label != c]
        if positive:
            pull.append(math.log(1 + sum(math.exp(-mu * (s - delta)) for s in positive)))
        push.append(math.log(1 + sum(math.exp(mu * (s + delta)) for s in negative)))
    return sum(pull) / len(pull) + sum(push) / len(push)


@given(
    st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=6),
    st.floats(0.5, 40.0),
    st.floats(0.0, 0.5),
    st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_it_is_its_equation(labels: list[int], scale: float, margin: float, seed: int) -> None:
    z, proxies = drawn(len(labels), seed)
    expected = slow(z, labels, proxies, scale, margin)
    value = proxy_anchor(z, torch.tensor(labels), proxies, scale, margin).item()
    assert value == pytest.approx(expected, rel=1e-9)


def test_pytorch_metric_learning_agrees() -> None:
    z, proxies = drawn(6)
    labels = torch.tensor([0, 0, 3, 1, 3, 0])  # class 2 has a proxy and no image
    reference = ProxyAnchorLoss(CLASSES, DIM, margin=0.1, alpha=32).double()
    with torch.no_grad():
        reference.proxies.copy_(proxies)
    expected = reference(z.flatten(0, 1), labels.repeat(2)).item()
    assert proxy_anchor(z, labels, proxies).item() == pytest.approx(expected)


def test_gradients_of_embeddings_and_proxies() -> None:
    z, proxies = (value.requires_grad_() for value in drawn(3))
    labels = torch.tensor([0, 1, 0])
    assert torch.autograd.gradcheck(lambda z, p: proxy_anchor(z, labels, p, 4.0), (z, proxies))


def test_extreme_scales_stay_finite_in_float32() -> None:
    z, proxies = (value.float().requires_grad_() for value in drawn(4))
    loss = proxy_anchor(z, torch.tensor([0, 1, 1, 2]), proxies, scale=1e4)
    loss.backward()
    assert loss.isfinite()
    for value in (z, proxies):
        assert value.grad is not None
        assert value.grad.isfinite().all()


def test_one_class_alone_has_nothing_to_push() -> None:
    z, proxies = drawn(2)
    loss = proxy_anchor(z, torch.tensor([0, 0]), proxies[:1])
    assert loss.item() == pytest.approx(slow(z, [0, 0], proxies[:1], 32, 0.1))
    assert slow(z, [0, 0], proxies[:1], 32, 0.1) > 0


@pytest.mark.parametrize("classes", [0, 3])
def test_an_empty_batch_has_zero_loss_and_a_gradient(classes: int) -> None:
    z = torch.zeros(2, 0, DIM, requires_grad=True)
    loss = proxy_anchor(z, torch.zeros(0, dtype=torch.long), torch.ones(classes, DIM))
    loss.backward()
    assert loss.item() == 0.0


def test_shapes_are_checked() -> None:
    z, proxies = drawn(2)
    with pytest.raises(ValueError, match="views, B, dims"):
        proxy_anchor(z[0], torch.tensor([0, 1]), proxies)
    with pytest.raises(ValueError, match="one for both views"):
        proxy_anchor(z, torch.tensor([0, 1, 0, 1]), proxies)


def test_views_are_embeddings_of_their_own() -> None:
    """Two views of three images are one view of six."""
    z, proxies = drawn(3)
    labels = torch.tensor([0, 2, 2])
    one = proxy_anchor(z.flatten(0, 1)[None], labels.repeat(2), proxies)
    torch.testing.assert_close(one, proxy_anchor(z, labels, proxies))
