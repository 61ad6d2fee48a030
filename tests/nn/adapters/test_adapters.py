"""Adapters: exact solution, SGD, known drifts, and SDC against loops."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from camp.core.errors import CampError
from camp.nn.adapters import solvers
from camp.nn.adapters.registry import ADAPTERS, fit_adapter
from camp.nn.adapters.settings import AdapterSettings


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def affine_pairs(n: int = 400, dim: int = 6, noise: float = 0.0):
    g = draw(3)
    old = torch.randn(n, dim, generator=g)
    weight = torch.eye(dim) + 0.3 * torch.randn(dim, dim, generator=g)
    bias = torch.randn(dim, generator=g)
    return old, old @ weight.T + bias + noise * torch.randn(n, dim, generator=g), weight, bias


def test_exact_is_ridge_by_the_normal_equations() -> None:
    old, new, _, _ = affine_pairs(n=50, noise=0.5)
    ridge = 0.1
    x, y = old.double().numpy(), new.double().numpy()
    n, dim = x.shape
    centred = x - x.mean(0)
    lam = ridge * np.trace(centred.T @ centred / n) / dim
    # Stack sqrt(n lam) I as further rows: |[X 1] A - Y|^2 + n lam |W - I|^2, the bias unpenalised.
    rows = np.block([[x, np.ones((n, 1))], [math.sqrt(n * lam) * np.eye(dim), np.zeros((dim, 1))]])
    targets = np.vstack([y, math.sqrt(n * lam) * np.eye(dim)])
    solution = np.linalg.lstsq(rows, targets, rcond=None)[0]
    centroids = torch.randn(4, dim, generator=draw(9))
    psi = fit_adapter("linear", old, new, AdapterSettings(ridge=ridge), draw())
    expected = centroids.double().numpy() @ solution[:dim] + solution[dim]
    np.testing.assert_allclose(psi(centroids).numpy(), expected, atol=1e-5)


def test_exact_recovers_an_affine_drift() -> None:
    old, new, weight, bias = affine_pairs()
    centroids = 3 * torch.randn(5, 6, generator=draw(9))
    psi = fit_adapter("linear", old, new, AdapterSettings(ridge=0.0), draw())
    assert torch.allclose(psi(centroids), centroids @ weight.T + bias, atol=1e-4)


def test_fewer_pairs_than_dimensions_leave_the_unseen_directions_alone() -> None:
    old = torch.zeros(5, 8)
    old[:, :2] = torch.randn(5, 2, generator=draw())
    new = old.clone()
    new[:, 0] *= 2
    centroids = torch.eye(8)
    moved = fit_adapter("linear", old, new, AdapterSettings(), draw())(centroids)
    assert torch.allclose(moved[2:, 2:], torch.eye(6), atol=1e-6)
    assert moved[0, 0].item() == pytest.approx(2.0, abs=0.02)


def test_sgd_approaches_the_exact_solution() -> None:
    old, new, _, _ = affine_pairs(n=500, noise=0.2)
    centroids = torch.randn(5, 6, generator=draw(9))
    exact = fit_adapter("linear", old, new, AdapterSettings(ridge=0.0), draw())(centroids)
    sgd = fit_adapter("linear", old, new, AdapterSettings(solver="sgd"), draw())(centroids)
    assert (sgd - exact).norm() < 0.02 * exact.norm()
    assert (sgd - exact).norm() < 0.05 * (centroids - exact).norm()


def test_mlp_learns_a_nonlinear_drift() -> None:
    old = torch.randn(800, 6, generator=draw(1))
    new = old.abs()
    fresh = torch.randn(300, 6, generator=draw(2))

    def error(name: str) -> float:
        settings = AdapterSettings(adapter_epochs=40)
        return float((fit_adapter(name, old, new, settings, draw())(fresh) - fresh.abs()).square().mean())

    assert error("mlp") < 0.7 * error("linear")


def test_the_trex_adapter_fits_unnormalised_features() -> None:
    old = torch.randn(600, 6, generator=draw(1))
    new = 20 * old / old.norm(dim=1, keepdim=True) + 5
    psi = fit_adapter("trex", old, new, AdapterSettings(), draw())
    fresh = torch.randn(300, 6, generator=draw(2))
    hit = 20 * fresh / fresh.norm(dim=1, keepdim=True) + 5
    assert (psi(fresh) - hit).norm(dim=1).mean() < 0.2 * hit.norm(dim=1).mean()


def test_an_epoch_takes_one_view_per_image(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = F.mse_loss

    def counted(guess: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        seen.extend(target[:, 0].long().tolist())
        return real(guess, target)

    monkeypatch.setattr(solvers.F, "mse_loss", counted)
    pairs = torch.arange(40.0)[:, None].expand(40, 6)
    settings = AdapterSettings(
        solver="sgd", adapter_epochs=8, adapter_batch_size=10, adapter_learning_rate=1e-9
    )
    fit_adapter("linear", pairs, pairs, settings, draw(), views=4)
    assert len(seen) == 8 * 10
    assert sorted(seen[:40]) == sorted(seen[40:]) == list(range(40))
    assert seen[:40] != seen[40:]


def slow_sdc(old, new, centroids, sigma: float, floor: float) -> list[list[float]]:
    moved = []
    for c in centroids.tolist():
        weights = []
        for row in old.tolist():
            squared = sum((a - b) ** 2 for a, b in zip(row, c))
            weights.append(math.exp(-squared / (2 * sigma**2)) + floor)
        total = sum(weights)
        drift = [
            sum(w * (n[d] - o[d]) for w, n, o in zip(weights, new.tolist(), old.tolist())) / total
            for d in range(len(c))
        ]
        moved.append([a + b for a, b in zip(c, drift)])
    return moved


@pytest.mark.parametrize("floor", [0.0, 1e-5])
def test_sdc_is_its_equation(floor: float) -> None:
    old = 0.3 * torch.randn(40, 3, generator=draw(1), dtype=torch.float64)
    new = old + 0.1 * torch.randn(40, 3, generator=draw(2), dtype=torch.float64)
    centroids = 0.3 * torch.randn(4, 3, generator=draw(3), dtype=torch.float64)
    psi = fit_adapter("sdc", old, new, AdapterSettings(sdc_floor=floor), draw())
    expected = torch.tensor(slow_sdc(old, new, centroids, 0.3, floor), dtype=torch.float64)
    assert torch.allclose(psi(centroids), expected, atol=1e-9)


def test_sdc_of_far_features_is_the_mean_drift_with_the_references_floor_and_the_nearest_without() -> None:
    old = 20 * torch.randn(30, 16, generator=draw(1))
    new = old + torch.randn(30, 16, generator=draw(2))
    centroids = torch.zeros(1, 16)
    reference = fit_adapter("sdc", old, new, AdapterSettings(), draw())(centroids)
    assert torch.allclose(reference[0], (new - old).mean(0), atol=1e-4)
    nearest = int(old.norm(dim=1).argmin())
    alone = fit_adapter("sdc", old, new, AdapterSettings(sdc_floor=0.0), draw())(centroids)
    assert torch.allclose(alone[0], (new - old)[nearest], atol=1e-4)


def test_sdc_weights_survive_float32_at_the_size_of_vit_features() -> None:
    # Features of norm 50 and centroids amid many points: |x|^2 - 2 x.c + |c|^2 would lose the small distances.
    old = 50 + 0.1 * torch.randn(200, 16, generator=draw(1))
    new = old + torch.randn(200, 16, generator=draw(2))
    centroids = old[:40].clone()
    settings = AdapterSettings(sdc_floor=0.0)
    single = fit_adapter("sdc", old, new, settings, draw())(centroids)
    double = fit_adapter("sdc", old.double(), new.double(), settings, draw())(centroids.double())
    assert torch.allclose(single.double(), double, atol=2e-3)


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_repeats_itself_and_keeps_the_shape(name: str) -> None:
    old, new, _, _ = affine_pairs(n=129)  # the last batch has one row
    centroids = torch.randn(3, 6, generator=draw(9))
    settings = AdapterSettings(solver="sgd", adapter_epochs=3)
    first, second = (fit_adapter(name, old, new, settings, draw(4))(centroids) for _ in range(2))
    assert first.shape == centroids.shape
    assert first.dtype == centroids.dtype
    assert not first.requires_grad
    assert torch.equal(first, second)


def test_none_leaves_centroids() -> None:
    centroids = torch.randn(3, 6)
    old = torch.randn(4, 6)
    assert torch.equal(fit_adapter("none", old, old, AdapterSettings(), draw())(centroids), centroids)


def test_refusals() -> None:
    old = torch.randn(4, 6)
    with pytest.raises(CampError, match="none, linear, mlp, trex, sdc"):
        fit_adapter("affine", old, old, AdapterSettings(), draw())
    with pytest.raises(ValueError, match=r"\(n, D\)"):
        fit_adapter("linear", old, old[:2], AdapterSettings(), draw())
    with pytest.raises(CampError, match="negative"):
        AdapterSettings(ridge=-1.0)
    with pytest.raises(CampError, match="positive"):
        AdapterSettings(sdc_sigma=0.0)
