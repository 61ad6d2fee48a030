"""The loss of IL2A in closed form against loops and against samples."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses import semantic_augmentation


@pytest.fixture
def case() -> dict[str, Any]:
    """Three old classes of five, features of length 4."""
    draw = torch.Generator().manual_seed(0)
    roots = torch.randn(3, 4, 4, generator=draw, dtype=torch.float64)
    return {
        "means": torch.randn(3, 4, generator=draw, dtype=torch.float64),
        "covariances": roots @ roots.transpose(1, 2),
        "labels": torch.tensor([2, 0, 4]),
        "weight": torch.randn(5, 4, generator=draw, dtype=torch.float64) / 2,
        "bias": torch.randn(5, generator=draw, dtype=torch.float64),
    }


def by_loops(case: dict[str, Any], strength: float, temperature: float) -> float:
    total = 0.0
    for mean, covariance, y in zip(case["means"], case["covariances"], case["labels"].tolist()):
        logits = []
        for k in range(len(case["weight"])):
            difference = case["weight"][k] - case["weight"][y]
            logit = float(case["weight"][k] @ mean + case["bias"][k])
            logits.append((logit + strength / 2 * float(difference @ covariance @ difference)) / temperature)
        total += math.log(sum(math.exp(a - logits[y]) for a in logits))
    return total / len(case["means"])


@pytest.mark.parametrize(("strength", "temperature"), [(2.5, 0.1), (0.3, 1.0), (0.0, 0.5)])
def test_it_is_the_equation(case: dict[str, Any], strength: float, temperature: float) -> None:
    loss = semantic_augmentation(**case, strength=strength, temperature=temperature)
    assert loss.item() == pytest.approx(by_loops(case, strength, temperature), rel=1e-12)


def test_without_spread_it_is_the_cross_entropy_of_the_means(case: dict[str, Any]) -> None:
    expected = F.cross_entropy(F.linear(case["means"], case["weight"], case["bias"]) / 0.1, case["labels"])
    flat = case | {"covariances": torch.zeros(3, 4, 4, dtype=torch.float64)}
    torch.testing.assert_close(semantic_augmentation(**flat), expected)


@pytest.mark.parametrize(("strength", "temperature"), [(2.5, 0.1), (0.3, 1.0)])
def test_it_bounds_the_loss_of_samples(case: dict[str, Any], strength: float, temperature: float) -> None:
    """And is near it where the spread is small."""
    draw = torch.Generator().manual_seed(1)
    noise = torch.randn(20000, 3, 4, generator=draw, dtype=torch.float64)
    for scale in (1.0, 1e-4):
        covariances = case["covariances"] * scale
        roots = torch.linalg.cholesky(strength * temperature * covariances)
        samples = case["means"] + (roots @ noise[..., None])[..., 0]
        logits = F.linear(samples, case["weight"], case["bias"]) / temperature
        sampled = F.cross_entropy(logits.flatten(0, 1), case["labels"].repeat(len(noise)))
        bound = semantic_augmentation(
            **case | {"covariances": covariances}, strength=strength, temperature=temperature
        )
        assert bound >= sampled - 1e-3
        if scale < 1:
            torch.testing.assert_close(bound, sampled, rtol=5e-3, atol=1e-3)
        else:
            assert bound > 1.02 * sampled


def test_the_classifier_learns_from_the_spread(case: dict[str, Any]) -> None:
    """The quadratic term has a gradient of its own: it is not a constant."""

    def gradient(strength: float) -> Tensor:
        weight = case["weight"].clone().requires_grad_()
        semantic_augmentation(**case | {"weight": weight}, strength=strength, temperature=1.0).backward()
        assert weight.grad is not None
        return weight.grad

    assert not torch.allclose(gradient(0.0), gradient(0.5))
    weight = case["weight"].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda w: semantic_augmentation(**case | {"weight": w}), weight)


def test_a_temperature_of_zero_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="temperature"):
        semantic_augmentation(**case, temperature=0.0)
