"""Features of the old tip: remembered, computed anew, and never changed."""

from typing import Any

import pytest
import torch
from trainer_parts import DIM, QUIET, digit_views, generator, make_trainer, tip

from camp.data.bank.views import BankViews, FreshViews
from camp.methods import distillation as distillation_module
from camp.methods.distillation import OldFeatures
from camp.methods.gccd.settings import CampSettings
from camp.methods.gccd.simgcd import SimgcdObjective
from camp.methods.trainer import frozen_copy
from camp.nn.distillers import make_distiller


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return digit_views(tmp_path_factory.mktemp("bank"))


def test_remembered_old_features_are_those_of_the_old_tip(digits: Any) -> None:
    views, old_tip = digits(BankViews), frozen_copy(tip(5).float())
    old = OldFeatures(old_tip, views, DIM, QUIET)
    assert old.table is not None
    rows = torch.tensor([7, 0, 10, 3])
    ids = torch.tensor([[0, 2, 1, 1], [2, 0, 0, 2]])
    batch = views.augmented(rows, ids)
    remembered = old(rows, ids, batch)
    with torch.no_grad():
        torch.testing.assert_close(remembered, old_tip(batch).view(2, 4, DIM))
    old.table = None
    torch.testing.assert_close(old(rows, ids, batch), remembered)


def test_fresh_views_have_no_table(digits: Any) -> None:
    views, old_tip = digits(FreshViews), frozen_copy(tip(5).float())
    old = OldFeatures(old_tip, views, DIM, QUIET)
    assert old.table is None
    rows = torch.arange(4)
    ids = views.draw(rows, 2, generator())
    batch = views.augmented(rows, ids)
    assert old(rows, ids, batch).shape == (2, 4, DIM)


def test_the_old_tip_stays_as_it_was(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation_module, "_TABLE_BYTES", 0)
    views, student = digits(BankViews), tip(1)
    old_tip = frozen_copy(student)
    training = make_trainer(
        views,
        SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()),
        network=student,
        distiller=make_distiller("mlp", DIM, generator(1)).double(),
        old=OldFeatures(old_tip, views, DIM, QUIET),
    )
    training.epoch(3)
    for now, then, new in zip(old_tip.parameters(), tip(1).parameters(), student.parameters()):
        assert torch.equal(now, then)
        assert not torch.equal(new, then)
