"""Projected distillation and the total loss."""

import math

import pytest
import torch

from camp.nn.losses import balanced, distilled, projected_distillation


def pair(rows: int = 4, dim: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    both = torch.randn(2, rows, dim, generator=generator, dtype=torch.float64)
    return both[0], both[1]


def test_mse_is_the_papers_sum_over_batch_and_dims() -> None:
    predicted, target = pair()
    paper = sum(float(((p - t) ** 2).sum()) for p, t in zip(predicted, target))
    assert projected_distillation(predicted, target).item() == pytest.approx(paper / predicted.numel())


def test_cosine() -> None:
    predicted, target = pair()
    expected = 0.0
    for p, t in zip(predicted.tolist(), target.tolist()):
        dot = sum(a * b for a, b in zip(p, t))
        expected += 1 - dot / math.hypot(*p) / math.hypot(*t)
    value = projected_distillation(predicted, target, kind="cosine").item()
    assert value == pytest.approx(expected / 4)
    reference = torch.nn.CosineEmbeddingLoss()(predicted, target, torch.ones(4))
    assert value == pytest.approx(reference.item())


@pytest.mark.parametrize("kind", ["mse", "cosine"])
def test_gradients_reach_the_prediction_alone(kind: str) -> None:
    predicted, target = (value.requires_grad_() for value in pair())
    assert torch.autograd.gradcheck(lambda p: projected_distillation(p, target.detach(), kind), predicted)
    projected_distillation(predicted, target, kind).backward()
    assert target.grad is None


def test_distillation_refuses() -> None:
    predicted, target = pair()
    with pytest.raises(ValueError, match="shape"):
        projected_distillation(predicted, target[:2])
    with pytest.raises(ValueError, match="mae"):
        projected_distillation(predicted, target, kind="mae")  # type: ignore[arg-type]


def test_total() -> None:
    ssl, sl, kd = torch.tensor(2.0), torch.tensor(3.0), torch.tensor(5.0)
    total = distilled(balanced(ssl, sl, beta=0.35), kd, alpha=0.2)
    assert total.item() == pytest.approx((1 - 0.2) * ((1 - 0.35) * 2 + 0.35 * 3) + 0.2 * 5)


@pytest.mark.parametrize(("alpha", "beta"), [(-0.1, 0.5), (1.1, 0.5), (0.5, -0.1), (0.5, math.nan)])
def test_weights_are_shares(alpha: float, beta: float) -> None:
    one = torch.tensor(1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        distilled(balanced(one, one, beta), one, alpha)
