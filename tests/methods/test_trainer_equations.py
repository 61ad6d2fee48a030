"""The steps of training against a slow version from the equations."""

from typing import Any

import pytest
import torch
from slow_trainer import slow_epoch, slow_gcd, slow_mlp_distiller, slow_sl, slow_ssl, slow_tip
from torch import Tensor
from trainer_parts import (
    DIM,
    QUIET,
    Parameters,
    Recording,
    digit_views,
    generator,
    make_trainer,
    parameters_of,
    tip,
)

from camp.methods import distillation as distillation_module
from camp.methods.distillation import Distillation, OldFeatures
from camp.methods.gccd.gcd import GcdObjective
from camp.methods.gccd.settings import CampSettings, GcdSettings
from camp.methods.gccd.simgcd import SimgcdObjective
from camp.methods.trainer import Trainer, frozen_copy
from camp.nn.distillers import make_distiller


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return digit_views(tmp_path_factory.mktemp("bank"))


def assert_same(training: Trainer, expected: Parameters, before: Parameters) -> None:
    actual = parameters_of(training)
    assert actual.keys() == expected.keys()
    for name in actual:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-7, atol=1e-9, msg=name)
        assert not torch.equal(actual[name], before[name]), f"{name} did not move"


@pytest.mark.parametrize("epoch", [0, 1])
def test_camp_in_the_first_task_is_its_equations(digits: Any, epoch: int) -> None:
    settings = CampSettings(projector_width=8, simclr_temperature=0.7, entropy_weight=1.5, beta=0.3)
    views = digits(Recording)
    training = make_trainer(views, SimgcdObjective(settings, DIM, 5, generator()))
    before = parameters_of(training)
    training.epoch(epoch)
    tau_t = {0: 0.07, 1: 0.055}[epoch]

    def loss(p: Parameters, z: Tensor, x: Tensor, own: int, labels: Tensor) -> Tensor:
        l_ssl, l_sl = slow_ssl(p, z, tau_t, settings), slow_sl(p, z[:, own:], labels, settings)
        return (1 - settings.beta) * l_ssl + settings.beta * l_sl

    expected, optimizer = slow_epoch(before, views, views.asked, epoch, loss)
    assert len(views.asked) == 3
    assert optimizer.clipped
    assert_same(training, expected, before)


def test_camp_in_a_later_task_distils_all_views(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        distillation_module, "_TABLE_BYTES", 0
    )  # old features in double precision, in each step
    settings, alpha = CampSettings(projector_width=8), 0.4
    views, old_tip = digits(Recording), frozen_copy(tip(5))
    training = make_trainer(
        views,
        SimgcdObjective(settings, DIM, 5, generator()),
        distiller=make_distiller("mlp", DIM, generator(1)).double(),
        distillation=Distillation(alpha, "mse", "all", "mean"),
        old=OldFeatures(old_tip, views, DIM, QUIET),
    )
    before = parameters_of(training)
    training.epoch(2)
    old = {f"tip.{name}": value for name, value in old_tip.named_parameters()}

    def loss(p: Parameters, z: Tensor, x: Tensor, own: int, labels: Tensor) -> Tensor:
        l_ssl, l_sl = slow_ssl(p, z, 0.04, settings), slow_sl(p, z[:, own:], labels, settings)
        new = (1 - settings.beta) * l_ssl + settings.beta * l_sl
        distance = slow_mlp_distiller(p, z.flatten(0, 1)) - slow_tip(old, x)
        l_kd = sum((d**2).sum() for d in distance) / distance.numel()
        return (1 - alpha) * new + alpha * l_kd

    expected, _ = slow_epoch(before, views, views.asked, 2, loss)
    assert_same(training, expected, before)


def test_gcd_with_feature_distillation_on_the_task_alone(
    digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference's GCD+FD: a sum over the two views, without the labelled batch."""
    monkeypatch.setattr(distillation_module, "_TABLE_BYTES", 0)
    settings, alpha = GcdSettings(projector_width=8, simclr_temperature=0.6), 0.5
    views, old_tip = digits(Recording), frozen_copy(tip(5))
    training = make_trainer(
        views,
        GcdObjective(settings, DIM, generator()),
        distiller=make_distiller("fd", DIM, generator(1)),
        distillation=Distillation(alpha, "mse", "task", "sum"),
        old=OldFeatures(old_tip, views, DIM, QUIET),
    )
    before = parameters_of(training)
    training.epoch(1)
    old = {f"tip.{name}": value for name, value in old_tip.named_parameters()}

    def loss(p: Parameters, z: Tensor, x: Tensor, own: int, labels: Tensor) -> Tensor:
        z_old = slow_tip(old, x).view(2, -1, DIM)
        l_kd = sum(((z[v, :own] - z_old[v, :own]) ** 2).mean() for v in range(2))
        return (1 - alpha) * slow_gcd(p, z, own, labels, settings) + alpha * l_kd

    expected, _ = slow_epoch(before, views, views.asked, 1, loss)
    assert_same(training, expected, before)
