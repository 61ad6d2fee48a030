"""The trainer: its terms, its batches, fetching ahead, and its state."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from trainer_parts import (
    BATCH,
    DIM,
    LABELS,
    OWN,
    QUIET,
    Parameters,
    Recording,
    digit_views,
    generator,
    make_trainer,
    parameters_of,
    tip,
)

from camp.data.bank.views import BankViews
from camp.data.views import Batch
from camp.methods import distillation, trainer
from camp.methods.distillation import OldFeatures
from camp.methods.gccd.settings import CampSettings
from camp.methods.gccd.simgcd import SimgcdObjective
from camp.methods.settings import Training
from camp.methods.trainer import Trainer, frozen_copy
from camp.nn.distillers import make_distiller


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return digit_views(tmp_path_factory.mktemp("bank"))


@pytest.mark.parametrize(
    ("switches", "gone"),
    [
        ({"supervised": False}, {"supcon", "ce"}),
        ({"self_supervised": False}, {"simclr", "pseudo", "entropy"}),
    ],
)
def test_an_ablation_removes_exactly_its_terms(switches: dict[str, bool], gone: set[str]) -> None:
    settings = CampSettings(projector_width=8)
    z = torch.randn(2, 7, DIM, generator=generator(4))
    labels = torch.tensor([0, 2, 2])
    terms = SimgcdObjective(settings, DIM, 5, generator())(z, 4, labels, 0)
    left = SimgcdObjective(settings, DIM, 5, generator(), **switches)(z, 4, labels, 0)
    assert terms.keys() - left.keys() == gone
    for name in left.keys() - {"loss"}:
        assert torch.equal(left[name], terms[name])
    l_ssl = terms["simclr"] + terms["pseudo"] + 2 * terms["entropy"]
    l_sl = terms["supcon"] + terms["ce"]
    kept = 0.65 * l_ssl if "ce" in gone else 0.35 * l_sl
    torch.testing.assert_close(left["loss"], kept)
    torch.testing.assert_close(terms["loss"], 0.65 * l_ssl + 0.35 * l_sl)


def test_without_a_distiller_nothing_is_distilled(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "_TABLE_BYTES", 0)
    views, results = digits(BankViews), {}
    for distiller in (None, make_distiller("mlp", DIM, generator(1)).double()):
        training = make_trainer(
            views,
            SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()),
            distiller=distiller,
            old=OldFeatures(frozen_copy(tip(5)), views, DIM, QUIET),
            settings=Training(epochs=10, batch_size=OWN),
        )
        results[distiller is not None] = training.epoch(0)
    with_kd, without = results[True], results[False]
    assert with_kd.keys() - without.keys() == {"kd"}
    # One step from the same start: the other terms are alike, and the loss is their mixture.
    for name in without.keys() - {"loss"}:
        assert with_kd[name] == pytest.approx(without[name])
    assert with_kd["loss"] == pytest.approx(0.5 * without["loss"] + 0.5 * with_kd["kd"])


def test_labelled_images_are_drawn_in_cycles(digits: Any) -> None:
    """Each step takes a labelled batch; none comes again before all have come, exemplars among them."""
    views = digits(Recording)
    training = make_trainer(views, SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()))
    training.epoch(0)
    labelled = (LABELS >= 0).nonzero()[:, 0].tolist()
    own, beside = [], []
    for step, (rows, _) in enumerate(views.asked):
        count = min(BATCH, OWN - step * BATCH)
        own += rows[:count].tolist()
        beside.append(rows[count:].tolist())
    assert sorted(own) == list(range(OWN))
    assert own != list(range(OWN))
    assert [len(batch) for batch in beside] == [4, 3, 4]  # 7 labelled images, then anew
    assert sorted(beside[0] + beside[1]) == labelled
    assert set(beside[2]) <= set(labelled)


def test_two_different_views_of_each_image(digits: Any) -> None:
    views = digits(Recording)
    training = make_trainer(views, SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()))
    training.epoch(0)
    first = [ids.clone() for _, ids in views.asked]
    assert all((ids[0] != ids[1]).all() for ids in first)
    views.asked.clear()
    training.epoch(1)
    assert any(not torch.equal(a, b) for a, (_, b) in zip(first, views.asked))


def test_prefetching_changes_nothing(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> tuple[list[Any], Parameters, dict[str, float]]:
        views = digits(Recording)
        training = make_trainer(views, SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()))
        terms = training.epoch(0)
        return [(a.tolist(), b.tolist()) for a, b in views.asked], parameters_of(training), terms

    def at_once(items: Iterator) -> Iterator:
        yield from items

    ahead = trained()
    monkeypatch.setattr(trainer, "_prefetched", at_once)
    plain = trained()
    assert ahead[0] == plain[0]
    assert ahead[2] == plain[2]
    assert all(torch.equal(ahead[1][name], plain[1][name]) for name in plain[1])


def test_an_error_while_fetching_ahead_is_raised(digits: Any) -> None:
    class Failing(BankViews):
        def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
            raise OSError("the disk is gone")

    training = make_trainer(
        digits(Failing), SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator())
    )
    with pytest.raises(OSError, match="the disk is gone"):
        training.epoch(0)


def test_state_restores_heads_and_moments(digits: Any) -> None:
    """Two epochs in a row, and two with everything but the tip handed to a new `Trainer` between them."""

    def fresh(network: nn.Module) -> Trainer:
        return make_trainer(
            digits(BankViews),
            SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()),
            network=network,
        )

    whole = fresh(tip(1))
    whole.epoch(0)
    terms = whole.epoch(1)
    first = fresh(tip(1))
    first.epoch(0)
    second = fresh(first.tip)
    second.load_state({name: value.clone() for name, value in first.state().items()})
    assert second.epoch(1) == terms
    expected = parameters_of(whole)
    assert all(torch.equal(value, expected[name]) for name, value in parameters_of(second).items())
