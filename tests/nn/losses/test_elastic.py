"""Elastic weight consolidation against a loop over single parameters."""

import torch

from camp.nn.losses import elastic


def slow_elastic(now: list[float], then: list[float], fisher: list[float]) -> float:
    return sum(0.5 * f * (a - b) ** 2 for a, b, f in zip(now, then, fisher))


def test_penalty_is_the_sum_over_all_parameters() -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = {"weight": (3, 4), "bias": (3,)}
    now, then, fisher = (
        {k: torch.rand(s, generator=draw, dtype=torch.double) for k, s in shapes.items()} for _ in range(3)
    )

    def flat(x: dict[str, torch.Tensor]) -> list[float]:
        return torch.cat([x[k].flatten() for k in shapes]).tolist()

    expected = slow_elastic(flat(now), flat(then), flat(fisher))
    assert abs(elastic(now, then, fisher).item() - expected) < 1e-12
    assert elastic(then, then, fisher).item() == 0


def test_gradient_pulls_back_in_proportion_to_the_fisher_information() -> None:
    now = torch.tensor([1.0, 2.0], requires_grad=True)
    elastic({"w": now}, {"w": torch.tensor([0.0, 5.0])}, {"w": torch.tensor([3.0, 0.5])}).backward()
    assert now.grad is not None
    torch.testing.assert_close(now.grad, torch.tensor([3.0, -1.5]))


def test_parameters_without_fisher_information_are_free() -> None:
    now = {"w": torch.ones(2), "free": torch.ones(2)}
    then = {"w": torch.ones(2), "free": torch.zeros(2)}
    assert elastic(now, then, {"w": torch.ones(2)}).item() == 0
