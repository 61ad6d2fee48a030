"""Prototypes of old classes, compared with numpy."""

import numpy as np
import pytest
import torch
from small_streams import backbone, small_settings
from torch import Tensor

from camp.core.errors import CampError
from camp.core.seeds import generator
from camp.methods.cil.base import check_pixels
from camp.methods.cil.prototypes import ClassPrototypes, measured


def some(labels: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features of length 3 with these labels."""
    y = torch.tensor(labels)
    return torch.randn(len(y), 3, generator=generator(seed)) * (1 + y[:, None]) + 4 * y[:, None], y


def test_means_covariances_and_radius_are_numpys() -> None:
    features, labels = some([0] * 7 + [1] * 4 + [2] * 9)
    found = measured(features, labels, covariances=True)
    assert len(found) == 3
    assert found.covariances is not None
    groups = [features[labels == y].double().numpy() for y in range(3)]
    covariances = [np.cov(group.T) for group in groups]
    np.testing.assert_allclose(found.means, [group.mean(axis=0) for group in groups], rtol=1e-5)
    np.testing.assert_allclose(found.covariances, covariances, rtol=1e-4, atol=1e-5)
    radius = np.sqrt(np.mean([np.trace(covariance) / 3 for covariance in covariances]))
    assert found.radius.item() == pytest.approx(radius, rel=1e-5)


def test_covariances_are_kept_only_on_request() -> None:
    assert measured(*some([0, 0, 1, 1]), covariances=False).covariances is None


def test_a_class_of_one_image_has_no_variance_and_is_left_out_of_the_radius() -> None:
    features, labels = some([0, 1, 1, 1, 1])
    found = measured(features, labels, covariances=True)
    assert found.covariances is not None
    assert found.covariances[0].eq(0).all()
    assert found.radius == measured(features[1:], labels[1:], covariances=False).radius > 0
    alone = measured(features[:1], labels[:1], covariances=True)
    assert alone.radius == 0
    assert torch.equal(alone.means, features[:1])


def test_a_task_adds_its_classes_and_keeps_the_radius_of_the_first() -> None:
    first = measured(*some([0, 0, 0, 1, 1]), covariances=True)
    second = measured(*some([2, 2, 3, 3, 3], seed=1), covariances=True)
    both = first.concat(second)
    assert first.covariances is not None
    assert second.covariances is not None
    assert both.covariances is not None
    assert torch.equal(both.means, torch.cat([first.means, second.means]))
    assert torch.equal(both.covariances, torch.cat([first.covariances, second.covariances]))
    assert both.radius == first.radius != second.radius


def test_noisy_prototypes_lie_a_radius_around_their_means() -> None:
    old = ClassPrototypes(means=torch.tensor([[0.0, 5.0], [-3.0, 1.0]]), radius=torch.tensor(0.5))
    given = old.noisy(torch.tensor([1, 0]), torch.tensor([[2.0, -2.0], [0.0, 1.0]]))
    assert given.tolist() == [[-2.0, 0.0], [0.0, 5.5]]
    draw = generator(0)
    classes = old.draw_classes(20000, draw)
    noisy = old.noisy(classes, torch.randn(20000, 2, generator=draw))
    for y in (0, 1):
        own = noisy[classes == y]
        assert len(own) == pytest.approx(10000, abs=300)  # uniform over classes: four standard deviations
        torch.testing.assert_close(own.mean(dim=0), old.means[y], atol=0.03, rtol=0)
        torch.testing.assert_close(own.std(dim=0), torch.full((2,), 0.5), atol=0.02, rtol=0)


def test_state_and_type_lose_nothing() -> None:
    for covariances in (False, True):
        old = measured(*some([0, 0, 0, 1, 1]), covariances)
        assert ("covariances" in old.state()) == covariances
        for same in (ClassPrototypes(**old.state()), old.like(torch.empty(0).double()).like(torch.empty(0))):
            assert same.state().keys() == old.state().keys()
            assert all(torch.equal(same.state()[key], value) for key, value in old.state().items())


@pytest.mark.parametrize("kind", ["vectors", "tokens"])
def test_what_is_not_pixels_is_refused(kind: str) -> None:
    check_pixels(backbone("images", 0), "PASS")
    with pytest.raises(CampError, match=r"PASS works on images .* use --backbone resnet18"):
        check_pixels(backbone(kind, 0), "PASS")


@pytest.mark.parametrize("option", ["temperature", "feature_weight", "prototype_weight"])
def test_negative_settings_are_refused(option: str) -> None:
    with pytest.raises(CampError, match=option):
        small_settings("pass", **{option: -1.0})
