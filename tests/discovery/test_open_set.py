"""The open-set classifier against its equations."""

import math

import pytest
import torch

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
    assert answers.unknown.tolist() == [False, True]  # the distance sqrt(2) is within 2, but not within 1
    assert torch.allclose(classifier.log_probabilities(z).exp().sum(dim=1), torch.ones(2))


def test_one_category_has_no_runner_up():
    answers = OpenSet(CENTROIDS[:1], torch.tensor([1.0]), 1.0).answer(torch.tensor([[0.5, 0.0]]))
    assert (answers.runner_up.item(), answers.runner_up_confidence.item()) == (-1, 0.0)
    assert answers.confidence.item() == 1.0


def test_an_image_within_the_radius_of_a_farther_category_is_known() -> None:
    classifier = OpenSet(CENTROIDS[:2], torch.tensor([1.0, 3.0]), temperature=1.0)
    answers = classifier.answer(torch.tensor([[1.8, 0.0], [-1.2, 0.0]]))
    assert answers.nearest.tolist() == [0, 0]
    assert answers.distance.tolist() == pytest.approx([2.2 / 3, 1.2])
    assert answers.unknown.tolist() == [False, True]
