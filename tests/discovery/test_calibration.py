"""Calibration on held-out images."""

import math

import pytest
import torch

from camp.discovery.calibration import COVERAGE, Calibration, Members, calibrate, fit_open_set
from camp.discovery.class_metric import ClassMetric

ALL = torch.ones(400, dtype=torch.bool)


def gaussians(count: int, per: int, dim: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    means = 0.15 * torch.randn(count, dim, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(count).repeat_interleave(per)
    return means[labels] + torch.randn(len(labels), dim, generator=draw), labels


def test_radii_and_confidence_are_right_for_new_images():
    """With fewer images than dimensions the metric overfits, and distances of its own images are too small."""
    features, own = gaussians(20, 15, 400, seed=2)
    coming, truth = gaussians(20, 100, 400, seed=3)
    metric = ClassMetric.fit(features, own, 64)
    members = Members(features, own, ALL[:300], ALL[:300])
    calibration = calibrate(members, metric, 20)
    points = metric.transform(features)

    def refused(calibration: Calibration) -> float:
        return float(
            fit_open_set(points, own, ALL[:300], metric, calibration, 20)
            .answer(metric.transform(coming))
            .unknown.float()
            .mean()
        )

    assert refused(calibration) < 0.1 < 0.5 < refused(Calibration(1.0, calibration.temperature))
    answers = fit_open_set(points, own, ALL[:300], metric, calibration, 20).answer(metric.transform(coming))
    right = float((answers.nearest == truth).float().mean())
    assert float(answers.confidence.mean()) == pytest.approx(right, abs=0.1)


def test_labelled_and_unlabelled_images_have_their_own_ratios():
    """The metric overfits the images whose label it was fitted with, not the others."""
    features, index = gaussians(20, 16, 400, seed=2)
    new, _ = gaussians(20, 100, 400, seed=3)
    fitted = torch.arange(320) % 2 == 0
    metric = ClassMetric.fit(features, index.masked_fill(~fitted, -1), 64)
    calibration = calibrate(Members(features, index, fitted, fitted), metric, 20)
    assert calibration.unlabelled is not None
    assert calibration.unseen > 1.3 > calibration.unlabelled > 0.7
    ratios = calibration.ratios(torch.tensor([True, False])).tolist()
    assert ratios == pytest.approx([calibration.unseen, calibration.unlabelled])
    classifier = fit_open_set(metric.transform(features), index, fitted, metric, calibration, 20)
    assert float(classifier.answer(metric.transform(new)).unknown.float().mean()) < 0.12


def test_without_a_second_ratio_all_images_have_the_first():
    assert Calibration(2.0, 1.0).ratios(torch.tensor([True, False])).tolist() == [2.0, 2.0]


def test_the_radius_grows_with_the_spread_of_a_category():
    draw = torch.Generator().manual_seed(0)
    narrow, wide = torch.randn(200, 3, generator=draw), 5 * torch.randn(200, 3, generator=draw) + 40
    points = torch.cat([narrow, wide])
    own = torch.arange(2).repeat_interleave(200)
    identity = ClassMetric(torch.zeros(3), torch.eye(3), torch.zeros(3), unit=False)
    radii = fit_open_set(points, own, ALL, identity, Calibration(), 2).radii
    assert radii[1] > 3 * radii[0]
    inside = (points - identity.centroids(points, own, 2)[own]).norm(dim=1) < radii[own]
    assert float(inside.float().mean()) == pytest.approx(COVERAGE, abs=0.02)


def test_the_radius_of_a_category_of_one_image_is_that_of_the_others():
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [9.0, 9.0]])
    own = torch.tensor([0, 0, 0, 1])
    identity = ClassMetric(torch.zeros(2), torch.eye(2), torch.zeros(2), unit=False)
    radii = fit_open_set(points, own, ALL[:4], identity, Calibration(), 2).radii
    assert 0 < radii[1] < 5
    alone = fit_open_set(points[3:], torch.tensor([0]), ALL[:1], identity, Calibration(), 1)
    assert alone.radii.isinf().all()


def test_one_image_and_equal_images():
    metric = ClassMetric(torch.zeros(2), torch.eye(2), torch.zeros(2), unit=False)
    one = Members(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), ~ALL[:1], ALL[:1])
    assert calibrate(one, metric, 1) == Calibration()
    same = Members(torch.zeros(6, 2), torch.tensor([0, 0, 0, 1, 1, 1]), ~ALL[:6], ~ALL[:6])
    assert math.isfinite(calibrate(same, metric, 2).temperature)
