"""The PLDA model of categories, against formulas written out and a library's Gaussian densities."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from camp.discovery.plda import Plda

MODEL = Plda(torch.tensor([1.0, -1.0, 0.0]), torch.tensor([4.0, 1.0, 0.5]), 2.0)


def points(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))


def joint_density(x: torch.Tensor) -> torch.Tensor:
    """Log-density of all of x (n, 3) as the images of one category, its mean integrated out."""
    n = len(x)
    covariance = torch.kron(torch.ones(n, n), MODEL.between.diag()) + 2.0 * torch.eye(3 * n)
    return MultivariateNormal(MODEL.mean.repeat(n), covariance).log_prob(x.flatten())


@pytest.mark.parametrize("n", [0, 1, 4])
def test_the_predictive_density_is_a_ratio_of_joint_densities(n):
    """p(x | x_1 .. x_n) = p(x_1 .. x_n, x) / p(x_1 .. x_n), up to the constant that is left out."""
    seen, new = points(n), points(5, seed=1)
    posterior = MODEL.posterior(torch.tensor([float(n)]), seen.sum(dim=0, keepdim=True))
    got = MODEL.log_predictive(new, posterior)[:, 0]
    before = joint_density(seen) if n else 0.0
    expected = torch.stack([joint_density(torch.cat([seen, x[None]])) - before for x in new])
    constant = -1.5 * torch.log(torch.tensor(2 * torch.pi))
    torch.testing.assert_close(got + constant, expected, rtol=1e-4, atol=1e-4)
    if not n:
        torch.testing.assert_close(MODEL.log_unseen(new), got)


def test_many_images_determine_the_mean():
    x = points(2000) + 5.0
    posterior = MODEL.posterior(torch.tensor([2000.0]), x.sum(dim=0, keepdim=True))
    torch.testing.assert_close(posterior.mean[0], x.mean(dim=0), rtol=0.01, atol=0.01)
    assert float(posterior.variance.max()) < 0.01


def test_the_parameters_are_recovered_from_labelled_images():
    draw = torch.Generator().manual_seed(0)
    means = torch.tensor([3.0, 0.0]) + torch.randn(400, 2, generator=draw) * torch.tensor([3.0, 1.0])
    index = torch.arange(400).repeat_interleave(8)
    x = means[index] + 0.5 * torch.randn(3200, 2, generator=draw)
    model = Plda.fit(x, index, 400)
    assert model.within == pytest.approx(0.25, rel=0.05)
    torch.testing.assert_close(model.between, torch.tensor([9.0, 1.0]), rtol=0.2, atol=0.0)
    torch.testing.assert_close(model.mean, torch.tensor([3.0, 0.0]), rtol=0.0, atol=0.4)


@pytest.mark.parametrize(("count", "n_classes"), [(1, 1), (3, 3), (6, 1)])
def test_few_or_equal_images_give_a_model(count, n_classes):
    model = Plda.fit(torch.ones(count, 2), torch.arange(count) % n_classes, n_classes)
    assert model.within > 0
    assert bool((model.between > 0).all())


def test_means_of_images_with_their_spread_give_the_model_of_the_images():
    draw = torch.Generator().manual_seed(0)
    index = torch.arange(4).repeat_interleave(6)
    points = torch.randn(4, 3, generator=draw)[index] + 0.3 * torch.randn(24, 3, generator=draw)
    pairs = points.unflatten(0, (12, 2))
    spread = float((pairs - pairs.mean(dim=1, keepdim=True)).square().sum())
    whole = Plda.fit(points, index, 4)
    of_pairs = Plda.fit(pairs.mean(dim=1), index[::2], 4, torch.full((12,), 2.0), spread)
    torch.testing.assert_close(of_pairs.mean, whole.mean)
    torch.testing.assert_close(of_pairs.between, whole.between)
    assert abs(of_pairs.within - whole.within) < 1e-6
