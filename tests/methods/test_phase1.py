"""Phase 1: its steps against a slow version from the equations, its schedule against torch's, its batches."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.backbones.base import Backbone, Field, fingerprint_of
from camp.backbones.residual_mlp import ResidualMlp
from camp.distillers import make_distiller
from camp.methods import phase1
from camp.methods.camp import CampSettings
from camp.methods.gcd import GcdObjective, GcdSettings
from camp.methods.phase1 import Distillation, OldFeatures, Phase1, frozen_copy
from camp.methods.schedule import learning_rate
from camp.methods.settings import Training
from camp.methods.simgcd_objective import SimgcdObjective
from camp.progress import Progress
from camp.streams.datasets import load_dataset
from camp.views.bank import Bank, BankSpec, BankViews
from camp.views.base import Batch
from camp.views.filling import fill
from camp.views.fresh import FreshViews, Lens
from camp.views.settings import Augmentation, ViewSettings

QUIET = Progress(quiet=True)
CPU = torch.device("cpu")
DIM = 12
OWN, EXEMPLARS, BATCH = 9, 2, 4
LABELS = torch.tensor([0, 1, 0, -1, -1, 2, -1, 1, -1, 3, 3])
"""Of nine pictures of the task and two exemplars."""
TRAINING = Training(epochs=10, batch_size=BATCH, learning_rate=0.01, clip=0.3, weight_decay=0.02)


class Recording(BankViews):
    """Views that remember which were asked for."""

    asked: list[tuple[Tensor, Tensor]]

    def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
        self.asked.append((rows.clone(), ids.clone()))
        return super().augmented(rows, ids)


def backbone() -> Backbone:
    """A trunk that projects the pixels of a digit at random, and a residual MLP in double precision."""
    projection = torch.randn(3 * 8 * 8, DIM, generator=torch.Generator().manual_seed(3)) / 8
    return Backbone(
        name="projection",
        dim=DIM,
        resolution=8,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        fields=(Field("vector", (DIM,), "exact"),),
        trunk=lambda x: {"vector": x.flatten(1) @ projection},
        tip=tip(0),
        fingerprint=fingerprint_of("projection of digits"),
        note="",
    )


def tip(seed: int) -> nn.Module:
    """A tip that has been trained a little, so that it is not the identity."""
    draw = torch.Generator().manual_seed(seed)
    network = ResidualMlp(DIM, DIM, draw)
    nn.init.normal_(network.fc2.weight, std=0.2, generator=draw)
    return network.double()


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Callable[[type[BankViews]], Any]:
    """Views of a few digits out of a real bank (three augmentations each), or made fresh."""
    data, network = load_dataset("digits"), backbone()
    keys = [key for key, test in zip(data.keys, data.is_test) if not test][: OWN + EXEMPLARS]
    look = Augmentation(crop_scale=0.5, flip=0.0)
    folder = tmp_path_factory.mktemp("bank")

    def views(kind: type[BankViews]) -> Any:
        settings = ViewSettings(views="fresh") if kind is FreshViews else ViewSettings(augmentations=3)
        spec = BankSpec.of(network, settings, look)
        bank = Bank(folder / spec.fingerprint(), spec)
        found = fill(bank, network, data, keys, set(keys), QUIET).digests
        digests = [found[key] for key in keys]
        if kind is FreshViews:
            return FreshViews(bank, digests, CPU, Lens(network, look, network.mean, network.std))
        opened = kind(bank, digests, CPU)
        if isinstance(opened, Recording):
            opened.asked = []
        return opened

    return views


def make_phase1(views: Any, objective: nn.Module, **changes: Any) -> Phase1:
    options: dict[str, Any] = {
        "tip": tip(1),
        "objective": objective.double(),
        "distiller": None,
        "distillation": Distillation(0.5, "mse", "all", "mean"),
        "settings": TRAINING,
        "views": views,
        "labels": LABELS,
        "own": OWN,
        "old": None,
        "device": CPU,
        "draws": (0, 1),
    }
    return Phase1(**{**options, **changes})


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# The slow version: one picture, one pair, one parameter at a time, from the equations alone.

Parameters = dict[str, Tensor]


def slow_tip(p: Parameters, x: Tensor) -> Tensor:
    hidden = F.gelu(x @ p["tip.fc1.weight"].T + p["tip.fc1.bias"])
    return x + hidden @ p["tip.fc2.weight"].T + p["tip.fc2.bias"]


def slow_network(p: Parameters, prefix: str, layers: list[int], between: Callable, x: Tensor) -> Tensor:
    for i, layer in enumerate(layers):
        x = p[f"{prefix}.{layer}.weight"] @ x + p[f"{prefix}.{layer}.bias"]
        x = between(x) if i + 1 < len(layers) else x
    return x


def slow_contrast(h: list[tuple[int, Tensor]], positive: Callable[[int, int], bool], tau: float) -> Tensor:
    """-1/n sum_i 1/|P_i| sum_{q in P_i} log(exp(h_i.h_q/tau) / sum_{n != i} exp(h_i.h_n/tau))."""
    unit = [value / value.norm() for _, value in h]
    total = torch.zeros((), dtype=torch.double)
    for i in range(len(h)):
        weight = {n: torch.exp(unit[i] @ unit[n] / tau) for n in range(len(h)) if n != i}
        chosen = [n for n in weight if positive(h[i][0], h[n][0])]
        denominator = sum(weight.values())
        total = total - sum(torch.log(weight[n] / denominator) for n in chosen) / len(chosen)
    return total / len(h)


def slow_ssl(p: Parameters, z: Tensor, tau_t: float, s: CampSettings) -> Tensor:
    """L_SimCLR + L_pseudo + epsilon (log K - H) over both views z (2, B, D) of all pictures of a step."""
    count = z.shape[1]
    h = [
        (b, slow_network(p, "objective.projector", [0, 2, 4], F.gelu, z[v, b]))
        for v in range(2)
        for b in range(count)
    ]
    l_simclr = slow_contrast(h, lambda a, b: a == b, s.simclr_temperature)
    logits = slow_logits(p, z)
    l_pseudo = torch.zeros((), dtype=torch.double)
    for b in range(count):
        for view, other in ((0, 1), (1, 0)):
            q = torch.softmax(logits[other][b].detach() / tau_t, dim=0)
            l_pseudo = l_pseudo - (q * torch.log_softmax(logits[view][b] / 0.1, dim=0)).sum() / (2 * count)
    mean = sum(torch.softmax(logits[v][b] / 0.1, dim=0) for v in range(2) for b in range(count)) / (2 * count)
    entropy = -(mean * mean.log()).sum()
    return l_simclr + l_pseudo + s.entropy_weight * (math.log(len(mean)) - entropy)


def slow_logits(p: Parameters, z: Tensor) -> list[list[Tensor]]:
    prototypes = [w / w.norm() for w in p["objective.prototypes.weight"]]
    return [[torch.stack([x / x.norm() @ w for w in prototypes]) for x in view] for view in z]


def slow_sl(p: Parameters, z: Tensor, labels: Tensor, s: CampSettings) -> Tensor:
    """L_SupCon + L_CE over both views z (2, B, D) of the labelled pictures of a step."""
    count = z.shape[1]
    h = [
        (b, slow_network(p, "objective.projector", [0, 2, 4], F.gelu, z[v, b]))
        for v in range(2)
        for b in range(count)
    ]
    l_supcon = slow_contrast(h, lambda a, b: bool(labels[a] == labels[b]), s.supcon_temperature)
    logits = slow_logits(p, z)
    l_ce = -sum(
        torch.log_softmax(logits[v][b] / 0.1, dim=0)[labels[b]] for v in range(2) for b in range(count)
    )
    return l_supcon + l_ce / (2 * count)


def slow_gcd(p: Parameters, z: Tensor, own: int, labels: Tensor, s: GcdSettings) -> Tensor:
    """(1 - beta) L_SimCLR on the pictures of the task + beta L_SupCon on the labelled ones, a head each."""
    heads = {
        "unsupervised": [(b, z[v, b]) for v in range(2) for b in range(own)],
        "supervised": [(b, z[v, own + b]) for v in range(2) for b in range(z.shape[1] - own)],
    }
    h = {
        head: [(b, slow_network(p, f"objective.{head}", [0, 2], torch.relu, x)) for b, x in members]
        for head, members in heads.items()
    }
    l_simclr = slow_contrast(h["unsupervised"], lambda a, b: a == b, s.simclr_temperature)
    l_supcon = slow_contrast(h["supervised"], lambda a, b: bool(labels[a] == labels[b]), s.supcon_temperature)
    return (1 - s.beta) * l_simclr + s.beta * l_supcon


def slow_mlp_distiller(p: Parameters, z: Tensor) -> Tensor:
    """phi over all views of a step z (n, D): the batch norm has their mean and variance."""
    hidden = torch.stack([p["distiller.0.weight"] @ x + p["distiller.0.bias"] for x in z])
    centred = hidden - hidden.mean(dim=0)
    variance = (centred**2).mean(dim=0)
    normed = centred / torch.sqrt(variance + 1e-5) * p["distiller.1.weight"] + p["distiller.1.bias"]
    return torch.stack([p["distiller.3.weight"] @ torch.relu(x) + p["distiller.3.bias"] for x in normed])


class SlowAdamW:
    """AdamW behind a clip of the global norm, one tensor after the other."""

    def __init__(self) -> None:
        self.m: Parameters = {}
        self.v: Parameters = {}
        self.t = 0
        self.clipped = False

    def step(self, p: Parameters, loss: Tensor, rate: float) -> Parameters:
        gradients = dict(zip(p, torch.autograd.grad(loss, list(p.values()), allow_unused=True)))
        gradients = {name: g if g is not None else torch.zeros_like(p[name]) for name, g in gradients.items()}
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
        self.clipped |= norm > TRAINING.clip
        scale = min(1.0, TRAINING.clip / (norm + 1e-6))
        self.t += 1
        stepped = {}
        for name, g in gradients.items():
            g = g * scale
            self.m[name] = 0.9 * self.m.get(name, torch.zeros_like(g)) + 0.1 * g
            self.v[name] = 0.999 * self.v.get(name, torch.zeros_like(g)) + 0.001 * g**2
            m, v = self.m[name] / (1 - 0.9**self.t), self.v[name] / (1 - 0.999**self.t)
            value = p[name].detach() * (1 - rate * TRAINING.weight_decay)
            stepped[name] = (value - rate * m / (v.sqrt() + 1e-8)).requires_grad_()
        return stepped


def reference_rates(training: Training, steps: int, warmup: int) -> list[list[float]]:
    """The reference's schedule by torch's own: warm-up each step, cosine each epoch once it is over."""
    parameter = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.AdamW([parameter], lr=training.learning_rate)
    linear = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1e-8, total_iters=warmup)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=training.epochs, eta_min=training.learning_rate * 1e-3
    )
    rates, done = [], 0
    for _ in range(training.epochs):
        rates.append([])
        for _ in range(steps):
            rates[-1].append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            linear.step()
            done += 1
        if done > warmup:
            cosine.step()
    return rates


def parameters_of(phase: Phase1) -> Parameters:
    parts = {"tip": phase.tip, "objective": phase.objective, "distiller": phase.distiller}
    return {
        f"{part}.{name}": value.detach().clone().requires_grad_()
        for part, module in parts.items()
        if module is not None
        for name, value in module.named_parameters()
        if value.requires_grad
    }


def slow_epoch(
    p: Parameters, views: Recording, asked: list[tuple[Tensor, Tensor]], epoch: int, loss_of: Callable
) -> tuple[Parameters, SlowAdamW]:
    """The steps on the views that were `asked` for; `loss_of(p, z, x, own, labels)` is the loss of one."""
    optimizer = SlowAdamW()
    rates = reference_rates(TRAINING, len(asked), warmup=TRAINING.epochs * len(asked) // 10)
    for step, (rows, ids) in enumerate(asked):
        x = BankViews.augmented(views, rows, ids)["vector"].double()
        own = min(BATCH, OWN - step * BATCH)
        z = slow_tip(p, x).view(2, len(rows), DIM)
        p = optimizer.step(p, loss_of(p, z, x, own, LABELS[rows[own:]]), rates[epoch][step])
    return p, optimizer


def assert_same(phase: Phase1, expected: Parameters, before: Parameters) -> None:
    actual = parameters_of(phase)
    assert actual.keys() == expected.keys()
    for name in actual:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-7, atol=1e-9, msg=name)
        assert not torch.equal(actual[name], before[name]), f"{name} did not move"


@pytest.mark.parametrize("epoch", [0, 1])
def test_camp_in_the_first_task_is_its_equations(digits: Any, epoch: int) -> None:
    settings = CampSettings(projector_width=8, simclr_temperature=0.7, entropy_weight=1.5, beta=0.3)
    views = digits(Recording)
    phase = make_phase1(views, SimgcdObjective(settings, DIM, 5, generator()))
    before = parameters_of(phase)
    phase.epoch(epoch)
    tau_t = {0: 0.07, 1: 0.055}[epoch]

    def loss(p: Parameters, z: Tensor, x: Tensor, own: int, labels: Tensor) -> Tensor:
        l_ssl, l_sl = slow_ssl(p, z, tau_t, settings), slow_sl(p, z[:, own:], labels, settings)
        return (1 - settings.beta) * l_ssl + settings.beta * l_sl

    expected, optimizer = slow_epoch(before, views, views.asked, epoch, loss)
    assert len(views.asked) == 3
    assert optimizer.clipped
    assert_same(phase, expected, before)


def test_camp_in_a_later_task_distils_all_views(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phase1, "_TABLE_BYTES", 0)  # old features in double precision, in each step
    settings, alpha = CampSettings(projector_width=8), 0.4
    views, old_tip = digits(Recording), frozen_copy(tip(5))
    phase = make_phase1(
        views,
        SimgcdObjective(settings, DIM, 5, generator()),
        distiller=make_distiller("mlp", DIM, generator(1)).double(),
        distillation=Distillation(alpha, "mse", "all", "mean"),
        old=OldFeatures(old_tip, views, DIM, QUIET),
    )
    before = parameters_of(phase)
    phase.epoch(2)
    old = {f"tip.{name}": value for name, value in old_tip.named_parameters()}

    def loss(p: Parameters, z: Tensor, x: Tensor, own: int, labels: Tensor) -> Tensor:
        l_ssl, l_sl = slow_ssl(p, z, 0.04, settings), slow_sl(p, z[:, own:], labels, settings)
        new = (1 - settings.beta) * l_ssl + settings.beta * l_sl
        distance = slow_mlp_distiller(p, z.flatten(0, 1)) - slow_tip(old, x)
        l_kd = sum((d**2).sum() for d in distance) / distance.numel()
        return (1 - alpha) * new + alpha * l_kd

    expected, _ = slow_epoch(before, views, views.asked, 2, loss)
    assert_same(phase, expected, before)


def test_gcd_with_feature_distillation_on_the_task_alone(
    digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference's GCD+FD: a sum over the two views, without the labelled batch."""
    monkeypatch.setattr(phase1, "_TABLE_BYTES", 0)
    settings, alpha = GcdSettings(projector_width=8, simclr_temperature=0.6), 0.5
    views, old_tip = digits(Recording), frozen_copy(tip(5))
    phase = make_phase1(
        views,
        GcdObjective(settings, DIM, generator()),
        distiller=make_distiller("fd", DIM, generator(1)),
        distillation=Distillation(alpha, "mse", "task", "sum"),
        old=OldFeatures(old_tip, views, DIM, QUIET),
    )
    before = parameters_of(phase)
    phase.epoch(1)
    old = {f"tip.{name}": value for name, value in old_tip.named_parameters()}

    def loss(p: Parameters, z: Tensor, x: Tensor, own: int, labels: Tensor) -> Tensor:
        z_old = slow_tip(old, x).view(2, -1, DIM)
        l_kd = sum(((z[v, :own] - z_old[v, :own]) ** 2).mean() for v in range(2))
        return (1 - alpha) * slow_gcd(p, z, own, labels, settings) + alpha * l_kd

    expected, _ = slow_epoch(before, views, views.asked, 1, loss)
    assert_same(phase, expected, before)


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
    monkeypatch.setattr(phase1, "_TABLE_BYTES", 0)
    views, student = digits(BankViews), tip(1)
    old_tip = frozen_copy(student)
    phase = make_phase1(
        views,
        SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()),
        tip=student,
        distiller=make_distiller("mlp", DIM, generator(1)).double(),
        old=OldFeatures(old_tip, views, DIM, QUIET),
    )
    phase.epoch(3)
    for now, then, new in zip(old_tip.parameters(), tip(1).parameters(), student.parameters()):
        assert torch.equal(now, then)
        assert not torch.equal(new, then)


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
    monkeypatch.setattr(phase1, "_TABLE_BYTES", 0)
    views, results = digits(BankViews), {}
    for distiller in (None, make_distiller("mlp", DIM, generator(1)).double()):
        phase = make_phase1(
            views,
            SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()),
            distiller=distiller,
            old=OldFeatures(frozen_copy(tip(5)), views, DIM, QUIET),
            settings=Training(epochs=10, batch_size=OWN),
        )
        results[distiller is not None] = phase.epoch(0)
    with_kd, without = results[True], results[False]
    assert with_kd.keys() - without.keys() == {"kd"}
    # One step from the same start: the other terms are alike, and the loss is their mixture.
    for name in without.keys() - {"loss"}:
        assert with_kd[name] == pytest.approx(without[name])
    assert with_kd["loss"] == pytest.approx(0.5 * without["loss"] + 0.5 * with_kd["kd"])


def test_labelled_pictures_come_round_in_turn(digits: Any) -> None:
    """Each step takes a labelled batch; none comes again before all have come, exemplars among them."""
    views = digits(Recording)
    phase = make_phase1(views, SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()))
    phase.epoch(0)
    labelled = (LABELS >= 0).nonzero()[:, 0].tolist()
    own, beside = [], []
    for step, (rows, _) in enumerate(views.asked):
        count = min(BATCH, OWN - step * BATCH)
        own += rows[:count].tolist()
        beside.append(rows[count:].tolist())
    assert sorted(own) == list(range(OWN))
    assert own != list(range(OWN))
    assert [len(batch) for batch in beside] == [4, 3, 4]  # 7 labelled pictures, then anew
    assert sorted(beside[0] + beside[1]) == labelled
    assert set(beside[2]) <= set(labelled)


def test_two_different_views_of_each_picture(digits: Any) -> None:
    views = digits(Recording)
    phase = make_phase1(views, SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()))
    phase.epoch(0)
    first = [ids.clone() for _, ids in views.asked]
    assert all((ids[0] != ids[1]).all() for ids in first)
    views.asked.clear()
    phase.epoch(1)
    assert any(not torch.equal(a, b) for a, (_, b) in zip(first, views.asked))


def test_prefetching_changes_nothing(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> tuple[list[Any], Parameters, dict[str, float]]:
        views = digits(Recording)
        phase = make_phase1(views, SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()))
        terms = phase.epoch(0)
        return [(a.tolist(), b.tolist()) for a, b in views.asked], parameters_of(phase), terms

    def at_once(items: Iterator) -> Iterator:
        yield from items

    ahead = trained()
    monkeypatch.setattr(phase1, "_one_ahead", at_once)
    plain = trained()
    assert ahead[0] == plain[0]
    assert ahead[2] == plain[2]
    assert all(torch.equal(ahead[1][name], plain[1][name]) for name in plain[1])


def test_an_error_while_fetching_ahead_is_raised(digits: Any) -> None:
    class Failing(BankViews):
        def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
            raise OSError("the disk is gone")

    phase = make_phase1(
        digits(Failing), SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator())
    )
    with pytest.raises(OSError, match="the disk is gone"):
        phase.epoch(0)


@pytest.mark.parametrize("steps", [79, 17, 16, 11, 50, 100, 101])
def test_learning_rate_is_the_reference_schedule(steps: int) -> None:
    training = Training()
    expected = reference_rates(training, steps, warmup=100)
    actual = [[learning_rate(training, e, s, steps) for s in range(steps)] for e in range(training.epochs)]
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_learning_rates_the_reference_was_seen_with() -> None:
    """CIFAR-100 has 79 steps an epoch, CUB-200 has 17."""
    training = Training()
    assert learning_rate(training, 0, 0, 79) == pytest.approx(1e-11)
    assert learning_rate(training, 99, 0, 79) == pytest.approx(1.99e-6, rel=0.005)
    assert learning_rate(training, 99, 0, 17) == pytest.approx(9.8e-6, rel=0.01)
    assert learning_rate(training, 50, 0, 79) == pytest.approx(5.16e-4, rel=0.002)
    assert learning_rate(training, 50, 0, 17) == pytest.approx(5.79e-4, rel=0.002)


def test_a_short_run_warms_up_for_a_tenth() -> None:
    training = Training(epochs=5)
    expected = reference_rates(training, 4, warmup=2)
    actual = [[learning_rate(training, e, s, 4) for s in range(4)] for e in range(5)]
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_state_brings_heads_and_moments_back(digits: Any) -> None:
    """Two epochs in a row, and two with everything but the tip handed to a new `Phase1` between them."""

    def fresh(network: nn.Module) -> Phase1:
        return make_phase1(
            digits(BankViews),
            SimgcdObjective(CampSettings(projector_width=8), DIM, 5, generator()),
            tip=network,
        )

    whole = fresh(tip(1))
    whole.epoch(0)
    terms = whole.epoch(1)
    first = fresh(tip(1))
    first.epoch(0)
    second = fresh(first.tip)
    second.load({name: value.clone() for name, value in first.state().items()})
    assert second.epoch(1) == terms
    expected = parameters_of(whole)
    assert all(torch.equal(value, expected[name]) for name, value in parameters_of(second).items())
