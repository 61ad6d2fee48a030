"""Densities around directions."""

import math

import pytest
import torch
import torch.nn.functional as F

from camp.discovery.category_statistics import Assigned, Statistics
from camp.discovery.directional import Directions


def around(centres: torch.Tensor, per_class: int, similarity: float, seed: int) -> torch.Tensor:
    """Unit points with the expected cosine `similarity` to others of their class."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(centres) * per_class, centres.shape[1], generator=draw) / centres.shape[1] ** 0.5
    mean = similarity**0.5 * centres.repeat_interleave(per_class, dim=0)
    return F.normalize(mean + (1 - similarity) ** 0.5 * noise, dim=1)


def test_log_densities_are_gaussian_relative_to_unseen_categories():
    draw = torch.Generator().manual_seed(0)
    x, sums = F.normalize(torch.randn(5, 8, generator=draw), dim=1), 3 * torch.randn(2, 8, generator=draw)
    model = Directions(8, 0.49)
    got = model.log_density(x, torch.tensor([2.0, 30.0]), sums)
    unseen = torch.distributions.MultivariateNormal(torch.zeros(8), torch.eye(8) / 8)
    for k in range(2):
        mean = 0.7 * sums[k] / sums[k].norm()
        known = torch.distributions.MultivariateNormal(mean, torch.eye(8) * 0.51 / 8)
        torch.testing.assert_close(got[:, k], known.log_prob(x) - unseen.log_prob(x))
    assert model.log_unseen(x).tolist() == [0.0] * 5
    second = model.log_second(x, x[:1])[1, 0]
    noise = 1 - 0.49**2
    expected = 0.49 * 8 / noise * (float(x[0] @ x[1]) - 0.49) - 4 * math.log(noise)
    assert float(second) == pytest.approx(expected, rel=1e-5)


def test_the_similarity_is_that_of_different_images():
    """Small categories, whose images are near to their own sum."""
    draw = torch.Generator().manual_seed(1)
    centres = F.normalize(torch.randn(300, 64, generator=draw), dim=1)
    x = around(centres, 2, 0.4, seed=2)
    weights = F.one_hot(torch.arange(600) // 2, 300).float()
    assigned = Assigned.of(x, weights)
    fitted = Directions(64, 0.9).refit(assigned, Statistics(assigned.counts, assigned.sums))
    assert fitted.similarity == pytest.approx(0.4, abs=0.02)


def test_without_pairs_of_images_the_similarity_stays():
    x = torch.eye(3)
    assert (
        Directions(3, 0.5).refit(Assigned.of(x, torch.eye(3)), Statistics(torch.ones(3), x)).similarity == 0.5
    )
    assert Directions.start(x[:0], x).similarity <= 0.95


def test_a_far_image_is_not_drawn_to_the_category_with_the_fewest_images():
    """The densities of categories of one and of many images have the same width."""
    x = F.normalize(torch.tensor([[1.0, 1.0, 3.0]]), dim=1)
    sums = torch.tensor([[1.0, 0.0, 0.0], [0.0, 20.0, 0.0]])
    one, many = Directions(3, 0.5).log_density(x, torch.tensor([1.0, 20.0]), sums)[0]
    assert float(one) == pytest.approx(float(many))
