"""Recognition with a right to say unknown, and what it learns from pictures left out."""

import math

import pytest
import torch

from camp.discovery.calibration import ACCEPTED, Members, Sureness, calibrated, sureness
from camp.discovery.class_metric import Metric, fit_metric
from camp.discovery.open_set import OpenSet

CENTROIDS = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 10.0]])


def test_probabilities_are_those_of_the_equation():
    z = torch.tensor([[1.0, 1.0], [3.0, -1.0]])
    classifier = OpenSet(CENTROIDS, torch.tensor([2.0, 1.0, 1.0]), temperature=3.0)
    answers = classifier.answer(z)
    for i, point in enumerate(z.tolist()):
        weights = [math.exp(-(math.dist(point, c) ** 2) / 3.0) for c in CENTROIDS.tolist()]
        order = sorted(range(3), key=lambda k: -weights[k])
        assert answers.nearest[i] == order[0]
        assert answers.runner_up[i] == order[1]
        assert answers.confidence[i].item() == pytest.approx(weights[order[0]] / sum(weights), rel=1e-5)
        assert answers.runner_up_confidence[i].item() == pytest.approx(
            weights[order[1]] / sum(weights), rel=1e-4
        )
    assert answers.unknown.tolist() == [
        False,
        True,
    ]  # sqrt(2) is within 2 of the first, and not within 1 of the second
    assert torch.allclose(classifier.log_probabilities(z).exp().sum(dim=1), torch.ones(2))


def test_one_category_has_no_runner_up():
    answers = OpenSet(CENTROIDS[:1], torch.tensor([1.0]), 1.0).answer(torch.tensor([[0.5, 0.0]]))
    assert (answers.runner_up.item(), answers.runner_up_confidence.item()) == (-1, 0.0)
    assert answers.confidence.item() == 1.0


def gaussians(count: int, per: int, dim: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    means = 0.15 * torch.randn(count, dim, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(count).repeat_interleave(per)
    return means[labels] + torch.randn(len(labels), dim, generator=draw), labels


def test_radii_and_confidence_hold_for_pictures_to_come():
    """Fewer pictures than dimensions: distances of pictures that shaped the metric say too little."""
    features, own = gaussians(20, 15, 400, seed=2)
    coming, truth = gaussians(20, 100, 400, seed=3)
    metric = fit_metric(features, own, 64)
    members = Members(features, own, torch.ones(len(own), dtype=torch.bool))
    sure = sureness(members, metric, 20)
    points = metric(features)

    def refused(sure: Sureness) -> float:
        return float(calibrated(points, own, metric, sure, 20).answer(metric(coming)).unknown.float().mean())

    assert refused(sure) < 0.1 < 0.5 < refused(Sureness(1.0, sure.temperature))
    answers = calibrated(points, own, metric, sure, 20).answer(metric(coming))
    right = float((answers.nearest == truth).float().mean())
    assert float(answers.confidence.mean()) == pytest.approx(right, abs=0.1)


def test_a_wide_category_gets_a_wide_radius():
    draw = torch.Generator().manual_seed(0)
    narrow, wide = torch.randn(200, 3, generator=draw), 5 * torch.randn(200, 3, generator=draw) + 40
    points = torch.cat([narrow, wide])
    own = torch.arange(2).repeat_interleave(200)
    as_it_is = Metric(torch.zeros(3), torch.eye(3), torch.zeros(3), unit=False)
    radii = calibrated(points, own, as_it_is, Sureness(), 2).radii
    assert radii[1] > 3 * radii[0]
    inside = (points - calibrated(points, own, as_it_is, Sureness(), 2).centroids[own]).norm(dim=1) < radii[
        own
    ]
    assert float(inside.float().mean()) == pytest.approx(ACCEPTED, abs=0.02)


def test_a_category_of_one_picture_borrows_from_the_others():
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [9.0, 9.0]])
    own = torch.tensor([0, 0, 0, 1])
    as_it_is = Metric(torch.zeros(2), torch.eye(2), torch.zeros(2), unit=False)
    radii = calibrated(points, own, as_it_is, Sureness(), 2).radii
    assert 0 < radii[1] < 5
    alone = calibrated(points[3:], torch.tensor([0]), as_it_is, Sureness(), 1)
    assert alone.radii.isinf().all()


def test_nothing_to_be_learned_from_is_no_trouble():
    metric = Metric(torch.zeros(2), torch.eye(2), torch.zeros(2), unit=False)
    one = Members(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.bool))
    assert sureness(one, metric, 1) == Sureness()
    same = Members(torch.zeros(6, 2), torch.tensor([0, 0, 0, 1, 1, 1]), torch.zeros(6, dtype=torch.bool))
    assert math.isfinite(sureness(same, metric, 2).temperature)
