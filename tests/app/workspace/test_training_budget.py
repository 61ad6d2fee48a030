"""How a batch is learned when nobody says how, and what cannot be asked for."""

import dataclasses

import pytest
import torch

from camp.app.workspace.training_budget import TrainingBudget, expected_seconds, training_budget
from camp.core.errors import CampError
from camp.nn.backbones import make_backbone
from camp.nn.backbones.settings import BackboneSettings


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((999, 500, None, None), TrainingBudget(views=0, epochs=0)),
        ((1000, 99, None, None), TrainingBudget(views=0, epochs=0)),
        ((1000, 100, None, None), TrainingBudget(views=8, epochs=10)),
        ((200, 0, 0, None), TrainingBudget(views=0, epochs=0)),
        ((1000, 0, 5, None), TrainingBudget(views=8, epochs=5)),
        ((1001, 0, 5, None), TrainingBudget(views=4, epochs=5)),
        ((5000, 0, 5, None), TrainingBudget(views=4, epochs=5)),
        ((5001, 0, 5, None), TrainingBudget(views=2, epochs=5)),
        ((1, 0, 1, 3), TrainingBudget(views=3, epochs=1)),
    ],
)
def test_by_the_size_of_the_batch(
    asked: tuple[int, int, int | None, int | None], expected: TrainingBudget
) -> None:
    assert training_budget(*asked) == expected


@pytest.mark.parametrize(
    ("epochs", "views", "said"),
    [
        (-1, None, "The number of epochs cannot be negative, and -1 is."),
        (3, 1, "so at least 2 are needed, not 1."),
        (3, -4, "so at least 2 are needed, not -4."),
        (None, 4, "Views are for training, and this batch is not trained on: give the epochs too."),
        (0, 4, "Views are for training, and this batch is not trained on: give the epochs too."),
    ],
)
def test_what_can_not_be_asked_for(epochs: int | None, views: int | None, said: str) -> None:
    with pytest.raises(CampError) as refused:
        training_budget(100, 50, epochs, views)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [
        BackboneSettings(backbone="conv-tiny"),
        BackboneSettings(backbone="vit-s16", weights="random", depth=2, resolution=32),
    ],
)
def test_the_expected_time_grows_with_the_batch(settings: BackboneSettings) -> None:
    backbone = make_backbone(settings, torch.Generator().manual_seed(0))
    before = {name: tensor.clone() for name, tensor in backbone.tip.state_dict().items()}
    few, many = (expected_seconds(backbone, count, TrainingBudget(8, 50)) for count in (1, 10_000))
    assert 0 < few < many
    # Looking at the machine changes nothing.
    assert all(torch.equal(before[name], tensor) for name, tensor in backbone.tip.state_dict().items())


def test_training_takes_longer() -> None:
    settings = BackboneSettings(backbone="vit-s16", weights="random", depth=2, resolution=32)
    backbone = make_backbone(settings, torch.Generator().manual_seed(0))
    as_they_are = TrainingBudget(0, 0)
    trained = dataclasses.replace(as_they_are, views=8, epochs=1000)
    assert expected_seconds(backbone, 1000, trained) > 2 * expected_seconds(backbone, 1000, as_they_are)
