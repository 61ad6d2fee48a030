"""Calibration on held-out images."""

import math

import numpy as np
import pytest
import torch

from camp.core.errors import CampError
from camp.core.types import FALSE_ALARMS
from camp.discovery.calibration import Calibration, CategoryRegions, check_false_alarms, fit_regions
from camp.discovery.class_metric import ClassMetric
from camp.discovery.held_out_calibration import COVERAGE, MIN_CATEGORIES, Members, calibrate
from camp.discovery.open_set import OpenSet

ALL = torch.ones(400, dtype=torch.bool)


def gaussians(
    count: int, per: int, dim: int, seed: int, between: float = 0.15
) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    means = between * torch.randn(count, dim, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(count).repeat_interleave(per)
    return means[labels] + torch.randn(len(labels), dim, generator=draw), labels


def regions(
    points: torch.Tensor,
    own: torch.Tensor,
    fitted: torch.Tensor,
    metric: ClassMetric,
    calibration: Calibration,
    count: int,
    rate: float = FALSE_ALARMS,
) -> CategoryRegions:
    return fit_regions(points.numpy(), own.numpy(), fitted.numpy(), metric, calibration, count, rate)


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
            OpenSet.of(regions(points, own, ALL[:300], metric, calibration, 20))
            .answer(metric.transform(coming))
            .unknown.float()
            .mean()
        )

    assert refused(calibration) < 0.1 < 0.5 < refused(Calibration(1.0, calibration.temperature))
    classifier = OpenSet.of(regions(points, own, ALL[:300], metric, calibration, 20))
    answers = classifier.answer(metric.transform(coming))
    right = float((answers.nearest == truth).float().mean())
    assert float(answers.confidence.mean()) == pytest.approx(right, abs=0.1)


def test_the_number_of_threads_changes_nothing():
    features, own = gaussians(20, 15, 400, seed=2)
    metric, found = ClassMetric.fit(features, own, 64), []
    before = torch.get_num_threads()
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(calibrate(Members(features, own, ALL[:300], ALL[:300]), metric, 20))
    torch.set_num_threads(before)
    assert found[0] == found[1]
    assert found[0].hidden_scores


def test_labelled_and_unlabelled_images_have_their_own_ratios():
    """The metric overfits the images whose label it was fitted with, not the others."""
    features, index = gaussians(20, 16, 400, seed=2)
    new, _ = gaussians(20, 100, 400, seed=3)
    fitted = torch.arange(320) % 2 == 0
    metric = ClassMetric.fit(features, index.masked_fill(~fitted, -1), 64)
    calibration = calibrate(Members(features, index, fitted, fitted), metric, 20)
    assert calibration.unlabelled is not None
    assert calibration.unseen > 1.3 > calibration.unlabelled > 0.7
    ratios = calibration.ratios(np.array([True, False])).tolist()
    assert ratios == pytest.approx([calibration.unseen, calibration.unlabelled])
    classifier = OpenSet.of(regions(metric.transform(features), index, fitted, metric, calibration, 20))
    assert float(classifier.answer(metric.transform(new)).unknown.float().mean()) < 0.12


def test_without_a_second_ratio_all_images_have_the_first():
    assert Calibration(2.0, 1.0).ratios(np.array([True, False])).tolist() == [2.0, 2.0]


def test_the_radius_grows_with_the_spread_of_a_category():
    draw = torch.Generator().manual_seed(0)
    narrow, wide = torch.randn(200, 3, generator=draw), 5 * torch.randn(200, 3, generator=draw) + 40
    points = torch.cat([narrow, wide])
    own = torch.arange(2).repeat_interleave(200)
    identity = ClassMetric(
        np.zeros(3, np.float32), np.eye(3, dtype=np.float32), np.zeros(3, np.float32), unit=False
    )
    found = regions(points, own, ALL, identity, Calibration(), 2)
    assert found.radii[1] > 3 * found.radii[0]
    inside = np.linalg.norm(points.numpy() - found.centroids[own], axis=1) < found.radii[own]
    assert inside.mean() == pytest.approx(COVERAGE, abs=0.02)


def test_the_radius_of_a_category_of_one_image_is_that_of_the_others():
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [9.0, 9.0]])
    own = torch.tensor([0, 0, 0, 1])
    identity = ClassMetric(
        np.zeros(2, np.float32), np.eye(2, dtype=np.float32), np.zeros(2, np.float32), unit=False
    )
    radii = regions(points, own, ALL[:4], identity, Calibration(), 2).radii
    assert 0 < radii[1] < 5
    alone = regions(points[3:], torch.tensor([0]), ALL[:1], identity, Calibration(), 1)
    assert np.isinf(alone.radii).all()


def test_one_image_and_equal_images():
    metric = ClassMetric(
        np.zeros(2, np.float32), np.eye(2, dtype=np.float32), np.zeros(2, np.float32), unit=False
    )
    one = Members(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), ~ALL[:1], ALL[:1])
    assert calibrate(one, metric, 1) == Calibration()
    same = Members(torch.zeros(6, 2), torch.tensor([0, 0, 0, 1, 1, 1]), ~ALL[:6], ~ALL[:6])
    assert math.isfinite(calibrate(same, metric, 2).temperature)


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.2])
def test_the_rate_of_false_alarms_is_that_asked_for_and_the_detection_rate_as_expected(rate: float) -> None:
    """On images and categories that the calibration has not seen."""
    features, own = gaussians(64, 20, 200, seed=2, between=0.35)
    known = own < 40
    metric = ClassMetric.fit(features[known], own[known], 64)
    trusted = torch.ones(int(known.sum()), dtype=torch.bool)
    calibration = calibrate(Members(features[known], own[known], trusted, trusted), metric, 40)
    points = metric.transform(features[known])
    classifier = OpenSet.of(regions(points, own[known], trusted, metric, calibration, 40, rate))
    new, of = gaussians(64, 50, 200, seed=3, between=0.35)
    unknown_of = classifier.answer(metric.transform(new)).unknown
    assert float(unknown_of[of < 40].float().mean()) == pytest.approx(rate, abs=0.4 * rate + 0.01)
    expected = calibration.detection_rate(rate)
    assert expected is not None
    detected = float(unknown_of[of >= 40].float().mean())
    assert detected > 1.5 * rate
    assert detected == pytest.approx(expected, abs=0.12)


def test_tables_against_a_slow_oracle() -> None:
    """Scores of held-out images and of images of hidden categories, one image and one category at a time."""
    n_categories, per, n_folds = 8, 8, 4
    features, own = gaussians(n_categories, per, 4, seed=5)
    features = 4 * features
    all_fitted = torch.ones(len(own), dtype=torch.bool)
    metric = ClassMetric.fit(features, own, 4)
    calibration = calibrate(Members(features, own, all_fitted, all_fitted), metric, n_categories)

    inside, points = [], metric.transform(features)
    for i in range(len(own)):
        others = [j for j in range(len(own)) if own[j] == own[i] and j != i]
        inside.append(calibration.unseen * math.dist(points[i], points[others].mean(dim=0)))
    mean_of_all = sum(inside) / len(inside)
    mean = [
        (sum(inside[per * k : per * k + per]) + 10 * mean_of_all) / (per + 10) for k in range(n_categories)
    ]
    squares = [(d - mean[int(k)]) ** 2 for d, k in zip(inside, own)]
    all_squares = sum(squares) / len(squares)
    deviation = [
        math.sqrt((sum(squares[per * k : per * k + per]) + 10 * all_squares) / (per + 10))
        for k in range(n_categories)
    ]
    known, hidden = [], []
    for fold in range(n_folds):
        fit = [i for i in range(len(own)) if i % n_folds != fold and own[i] != fold]
        refitted = ClassMetric.fit(features[fit], own[fit], 4)
        moved = refitted.transform(features)
        centroids = {
            k: moved[[i for i in fit if own[i] == k]].mean(dim=0) for k in range(n_categories) if k != fold
        }
        for i in range(len(own)):
            score = min((math.dist(moved[i], c) - mean[k]) / deviation[k] for k, c in centroids.items())
            if own[i] == fold:
                hidden.append(score)
            elif i % n_folds == fold:
                known.append(score)
    steps = torch.linspace(0, 1, 201, dtype=torch.float64)
    for found, scores in ((calibration.known_scores, known), (calibration.hidden_scores, hidden)):
        quantiles = torch.quantile(torch.tensor(scores, dtype=torch.float64), steps).tolist()
        assert found == pytest.approx(quantiles, abs=1e-3)
    q = calibration.threshold(0.1)
    assert q == pytest.approx(float(torch.quantile(torch.tensor(known), 0.9)), abs=0.02)
    assert calibration.detection_rate(0.1) == pytest.approx(
        sum(s > q for s in hidden) / len(hidden), abs=0.05
    )


def test_few_categories_have_a_threshold_and_no_detection_rate() -> None:
    features, own = gaussians(MIN_CATEGORIES - 1, 20, 40, seed=2)
    metric = ClassMetric.fit(features, own, 16)
    members = Members(features, own, ALL[: len(own)], ALL[: len(own)])
    calibration = calibrate(members, metric, MIN_CATEGORIES - 1)
    assert calibration.detection_rate(0.05) is None
    assert calibration.threshold(0.05) is not None
    assert calibration.threshold(0.01) > calibration.threshold(0.2)  # type: ignore[operator]
    assert Calibration().threshold(0.05) is None


@pytest.mark.parametrize("rate", [0.0, -0.1, 0.6, math.nan])
def test_a_rate_that_cannot_be_set_is_a_sentence(rate: float) -> None:
    with pytest.raises(CampError, match="rate of false alarms is a share above 0"):
        check_false_alarms(rate)
