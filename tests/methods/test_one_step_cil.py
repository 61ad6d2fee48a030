"""One step of each method of class-incremental learning against the step written out by hand.

The weights, the batch and the random draws of the step are fixed. The loss is written from the formulas of the published
code (FACIL, PyCIL and the authors' repositories), image by image; its gradient is autograd's, and the optimiser's rule is
written out. All in double precision.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from slow_trainer import slow_mlp_distiller, slow_sl
from small_streams import CPU, QUIET, Stream, backbone, from_flat, learn, stream
from torch import Tensor, nn
from torch.func import functional_call

from camp.core.seeds import generator
from camp.methods.cil.base import IncrementalMethod
from camp.methods.consolidation import ElasticWeightConsolidation
from camp.methods.registry import METHODS
from camp.methods.tip_method import TipMethod
from camp.methods.trainer import StepBatch, Trainer, frozen_copy
from camp.nn.backbones import BackboneSettings, make_backbone

PLANS = ({0: (9, 0), 1: (8, 0), 2: (9, 0)}, {3: (9, 0), 4: (8, 0), 5: (9, 0)})
OLD, KNOWN = 3, 6
"""Labels 0 .. 2 are of the first task, 3 .. 5 of the second."""
Values = dict[str, Tensor]


@dataclass
class Step:
    """A step of the second task under way, before it is taken."""

    method: Any
    trainer: Trainer
    batch: StepBatch
    labels: list[int]
    old_heads: Values

    def features(self, p: Values) -> Tensor:
        """Features (copies * B, D) of the batch with the parameters p."""
        parameters = {name.removeprefix("tip."): v for name, v in p.items() if name.startswith("tip.")}
        z: Tensor = functional_call(self.trainer.tip, parameters, (self.batch.views,))
        return z

    def old_features(self) -> Tensor:
        """Features (copies * B, D) of the batch under the old network."""
        old_tip = self.method._current_run().old_tip
        z: Tensor = old_tip(self.batch.views).detach()
        return z

    def parameters(self) -> Values:
        """All trainable parameters, by name."""
        networks = {"tip": self.trainer.tip, **self.trainer.step.modules()}
        return {
            f"{prefix}.{name}": p.detach().clone().requires_grad_()
            for prefix, network in networks.items()
            for name, p in network.named_parameters()
            if p.requires_grad
        }


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return stream("images", tmp_path_factory.mktemp("one-step"), PLANS)


@pytest.fixture(scope="module")
def learned(here: Stream) -> Callable[[str], Any]:
    """Methods after the first task, which they learned quickly; then with their own settings again."""
    made: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in made:
            method = here.build(name, epochs=1)
            learn(method, here.tasks[0][0])
            made[name] = method.state()
        # The published recipe, with small batches.
        settings = from_flat(name, {"batch_size": 16} | ({"projector_width": 32} if name == "camp" else {}))
        published = METHODS[name].build(backbone("images", 0), settings.settings.for_labelled_tasks(), 0, CPU)
        published.load_state(made[name], None, here.tasks[0][0].views)
        return published

    return of


def prepared(method: TipMethod, here: Stream, task: int = 1) -> Step:
    """The first step of a task, in double precision, with a network that has moved away from the old one."""
    old_heads = {name: value.double() for name, value in method.heads.items()}
    method.start_task(here.tasks[task][0], QUIET)
    run = method._current_run()
    trainer = run.trainer
    assert trainer is not None
    for network in (trainer.tip, run.old_tip, *trainer.step.modules().values()):
        if network is not None:
            network.double()
    objective: Any = trainer.step.objective
    if getattr(objective, "prototypes", None) is not None and not isinstance(objective.prototypes, nn.Module):
        objective.prototypes = objective.prototypes.like(next(trainer.tip.parameters()))
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in trainer.tip.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=draw, dtype=torch.double)
                parameter += 0.02 * noise
    batch = next(iter(trainer.step.batches(trainer.data, 16, draw)))
    double = {
        name: value.double() if value.is_floating_point() else value for name, value in batch.plan.items()
    }
    views = {name: value.double() for name, value in batch.views.items()}
    batch = dataclasses.replace(batch, views=views, plan=double)
    trainer.tip.train()
    return Step(method, trainer, batch, trainer.data.labels[batch.rows].tolist(), old_heads)


def take(step: Step, epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train for an epoch that consists of the one step."""
    monkeypatch.setattr(step.trainer.step, "batches", lambda *_: iter([step.batch]))
    monkeypatch.setattr(step.trainer.schedule, "after_epoch", lambda *_: None)
    monkeypatch.setattr(step.trainer.step, "held_out_loss", lambda *_: None)
    step.trainer.epoch(epoch)


# The optimisers, one parameter at a time.


def gradients(p: Values, loss: Tensor) -> Values:
    found = torch.autograd.grad(loss, list(p.values()), allow_unused=True)
    return {name: torch.zeros_like(v) if g is None else g for (name, v), g in zip(p.items(), found)}


def clipped(g: Values, bound: float) -> Values:
    norm = math.sqrt(sum(float((value**2).sum()) for value in g.values()))
    scale = min(1.0, bound / (norm + 1e-6))
    return {name: value * scale for name, value in g.items()}


def sgd(p: Values, g: Values, rate: float, decay: float = 0.0) -> Values:
    """The first step of SGD; its momentum has no effect yet."""
    return {name: v - rate * (g[name] + decay * v) for name, v in p.items()}


def adam(p: Values, g: Values, rate: float, decay: float) -> Values:
    """The first step of Adam, whose weight decay is part of the gradient."""
    stepped = {}
    for name, v in p.items():
        total = g[name] + decay * v
        m, s = 0.1 * total, 0.001 * total**2
        stepped[name] = v - rate * (m / (1 - 0.9)) / ((s / (1 - 0.999)).sqrt() + 1e-8)
    return stepped


# The losses, one image at a time.


def log_share(logits: list[Tensor], at: int) -> Tensor:
    """log softmax of the logits at a position."""
    return logits[at] - torch.stack(logits).logsumexp(0)


def outputs(p: Values, z: Tensor, rows: range) -> list[Tensor]:
    """Logits of a feature z (D,) for some rows of the classifier."""
    weight, bias = p["objective.classifier.weight"], p["objective.classifier.bias"]
    return [weight[k] @ z + bias[k] for k in rows]


def loss_fine_tune(step: Step, p: Values) -> Tensor:
    """FACIL: cross-entropy over the outputs of the newest head."""
    z = step.features(p)
    new = range(OLD, KNOWN)
    return -sum(log_share(outputs(p, z[i], new), y - OLD) for i, y in enumerate(step.labels)) / len(
        step.labels
    )


def loss_ewc(step: Step, p: Values) -> Tensor:
    """FACIL: lambda / 2 sum F (theta - theta*)^2, where F is half the Fisher information of the first task."""
    [consolidation] = step.method.callbacks
    assert isinstance(consolidation, ElasticWeightConsolidation)
    old = dict(step.method._current_run().old_tip.named_parameters())
    penalty = sum(
        (f.double() * (p[f"tip.{name}"] - old[name].detach()) ** 2).sum()
        for name, f in consolidation.fisher.items()
    )
    return loss_fine_tune(step, p) + 78.0 / 2 * penalty


def loss_lwf(step: Step, p: Values) -> Tensor:
    """FACIL: lambda 1, both softmax distributions to the power 1 / T and normalised; old heads are not trained."""
    z, z_old = step.features(p), step.old_features()
    weight, bias = step.old_heads["classifier.weight"], step.old_heads["classifier.bias"]
    kd = torch.zeros((), dtype=torch.double)
    for i in range(len(step.labels)):
        out = torch.softmax(weight @ z[i] + bias, 0) ** 0.5
        target = torch.softmax(weight @ z_old[i] + bias, 0) ** 0.5
        kd = kd - (target / target.sum() * torch.log(out / out.sum())).sum()
    return loss_fine_tune(step, p) + kd / len(step.labels)


def loss_joint(step: Step, p: Values) -> Tensor:
    """FACIL: cross-entropy over the outputs of all heads."""
    z = step.features(p)
    every = range(KNOWN)
    return -sum(log_share(outputs(p, z[i], every), y) for i, y in enumerate(step.labels)) / len(step.labels)


def sharpened(logits: list[Tensor]) -> list[Tensor]:
    return [logit / 0.1 for logit in logits]


def distance(a: Tensor, b: Tensor) -> Tensor:
    """torch.dist(a, b, 2) of the published code."""
    return ((a - b) ** 2).sum().sqrt()


def loss_pass(step: Step, p: Values) -> Tensor:
    """PyCIL: class 4 y + k for k quarter turns, 10 times the distance, 10 times noisy prototypes as class 4 y."""
    count = len(step.labels)
    pixels = step.batch.views["pixels"]
    for i in range(count):  # the batch holds the turns as torch.rot90 makes them
        for k in range(1, 4):
            assert torch.equal(pixels[k * count + i], torch.rot90(pixels[i], k, (1, 2)))
    z, every = step.features(p), range(4 * KNOWN)
    ce = -sum(
        log_share(sharpened(outputs(p, z[k * count + i], every)), 4 * y + k)
        for k in range(4)
        for i, y in enumerate(step.labels)
    ) / (4 * count)
    known = step.trainer.step.objective.prototypes
    prototype = torch.zeros((), dtype=torch.double)
    for c, noise in zip(step.batch.plan["classes"].tolist(), step.batch.plan["noise"]):
        feature = known.means[c] + noise * known.radius
        prototype = prototype - log_share(sharpened(outputs(p, feature, every)), 4 * c)
    prototype = prototype / len(step.batch.plan["classes"])
    return ce + 10 * distance(z, step.old_features()) + 10 * prototype


def loss_il2a(step: Step, p: Values) -> Tensor:
    """PyCIL: mixtures as classes of their own, 10 times the distance, 10 times semantic augmentation (ratio 2.5).

    The prototypes are all old classes once, the expectation of PyCIL's random choice.
    """
    count, plan, pixels = len(step.labels), step.batch.plan, step.batch.views["pixels"]
    z, z_old = step.features(p), step.old_features()
    total = KNOWN + (KNOWN - OLD) * (KNOWN - OLD - 1) // 2
    kept, targets = list(range(count)), list(step.labels)
    for m in range(4):
        for i in range(count):
            j, share = int(plan["partners"][i, m]), plan["shares"][i, m]
            at = count * (1 + m) + i
            torch.testing.assert_close(
                pixels[at], share * pixels[i] + (1 - share) * pixels[j], atol=1e-6, rtol=0
            )
            large = max(step.labels[i], step.labels[j]) - OLD
            small = min(step.labels[i], step.labels[j]) - OLD
            if large != small:
                kept.append(at)
                targets.append(large * (large - 1) // 2 + small + KNOWN)
    ce = -sum(log_share(sharpened(outputs(p, z[at], range(total))), y) for at, y in zip(kept, targets)) / len(
        kept
    )
    known, weight = step.trainer.step.objective.prototypes, p["objective.classifier.weight"]
    prototype = torch.zeros((), dtype=torch.double)
    for c in range(OLD):
        logits = outputs(p, known.means[c], range(KNOWN))
        for k in range(KNOWN):
            v = weight[k] - weight[c]
            logits[k] = logits[k] + 2.5 / 2 * (v @ known.covariances[c] @ v)
        prototype = prototype - log_share(sharpened(logits), c) / OLD
    return ce + 10 * distance(z[kept], z_old[kept]) + 10 * prototype


def loss_ssre(step: Step, p: Values) -> Tensor:
    """PyCIL: cross-entropy times (1 - s), the sum of s times the distances, 10 times prototypes."""
    z, z_old, every = step.features(p), step.old_features(), range(KNOWN)
    known, count = step.trainer.step.objective.prototypes, len(step.labels)
    ce = kd = torch.zeros((), dtype=torch.double)
    for i, y in enumerate(step.labels):
        unit = z[i].detach() / z[i].detach().norm()
        s = max(0.0, *(float(unit @ (mean / mean.norm())) for mean in known.means))
        ce = ce - (1 - s) * log_share(sharpened(outputs(p, z[i], every)), y) / count
        kd = kd + s * distance(z[i], z_old[i])
    classes = step.batch.plan["classes"].tolist()
    prototype = -sum(log_share(sharpened(outputs(p, known.means[c], every)), c) for c in classes) / len(
        classes
    )
    return ce + kd + 10 * prototype


def loss_camp(step: Step, p: Values) -> Tensor:
    """The paper without its self-supervised part: 0.1 (SupCon + CE) + 0.9 L_KD, a mean over entries."""
    z = step.features(p)
    l_sl = slow_sl(
        p, z.view(2, len(step.labels), -1), torch.tensor(step.labels), step.trainer.step.objective.settings
    )
    l_kd = ((slow_mlp_distiller(p, z) - step.old_features()) ** 2).mean()
    return 0.1 * l_sl + 0.9 * l_kd


LOSSES = {
    "fine-tune": loss_fine_tune,
    "ewc": loss_ewc,
    "lwf": loss_lwf,
    "joint": loss_joint,
    "pass": loss_pass,
    "il2a": loss_il2a,
    "ssre": loss_ssre,
    "camp": loss_camp,
}


def camp_rate(steps: int) -> float:
    """The learning rate of epoch 50 of 100: cosine after a warm-up of a tenth of the steps, down to a thousandth."""
    annealed = 50 - (100 * steps // 10) // steps
    return 1e-6 + (1e-3 - 1e-6) * (1 + math.cos(math.pi * annealed / 100)) / 2


@pytest.mark.parametrize("name", LOSSES)
def test_a_step_of_the_second_task_is_the_published_one(
    name: str, here: Stream, learned: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epoch 50: FACIL is still at its first learning rate, PyCIL has divided it by ten once."""
    step = prepared(learned(name), here)
    p = step.parameters()
    g = gradients(p, LOSSES[name](step, p))
    if name == "camp":
        norm = math.sqrt(sum(float((value**2).sum()) for value in g.values()))
        assert norm != pytest.approx(1.0)
        expected = adam(p, clipped(g, 1.0), camp_rate(step.trainer.num_steps), 0.0)
    elif name in ("pass", "il2a", "ssre"):
        expected = adam(p, g, 1e-4, 5e-4 if name == "ssre" else 2e-4)
    else:
        expected = sgd(p, clipped(g, 10_000.0), 0.1)
    take(step, 50, monkeypatch)
    after = step.parameters()
    assert after.keys() == expected.keys()
    moved = 0
    for key, value in expected.items():
        torch.testing.assert_close(after[key], value, rtol=1e-6, atol=1e-9, msg=f"{name}: {key}")
        moved += not torch.equal(after[key], p[key])
    assert moved >= len(expected) - 1


def test_the_first_task_of_fetril_is_sgd_with_momentum_and_weight_decay(
    here: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyCIL: cross-entropy, learning rate 0.1 by a cosine over 200 epochs, weight decay 5e-4."""
    method = here.build("fetril", epochs=200, learning_rate=0.1)
    step = prepared(method, here, task=0)
    p = step.parameters()
    z = step.features(p)
    ce = -sum(log_share(outputs(p, z[i], range(OLD)), y) for i, y in enumerate(step.labels)) / len(
        step.labels
    )
    # Down to a thousandth of the largest learning rate, where PyCIL goes to 0.
    rate = 1e-4 + (0.1 - 1e-4) * (1 + math.cos(math.pi * 50 / 200)) / 2
    first = sgd(p, gradients(p, ce), rate, 5e-4)
    take(step, 50, monkeypatch)
    after = step.parameters()
    for key, value in first.items():
        torch.testing.assert_close(after[key], value, rtol=1e-6, atol=1e-9, msg=key)
    # The second step adds 0.9 of the first update's direction.
    p2 = {key: value.detach().requires_grad_() for key, value in after.items()}
    z = step.features(p2)
    ce = -sum(log_share(outputs(p2, z[i], range(OLD)), y) for i, y in enumerate(step.labels)) / len(
        step.labels
    )
    g2 = gradients(p2, ce)
    take(step, 50, monkeypatch)
    for key, value in step.parameters().items():
        momentum = (p[key] - first[key]) / rate
        expected = p2[key] - rate * (0.9 * momentum + g2[key] + 5e-4 * p2[key])
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-9, msg=key)


def test_the_fisher_information_of_the_first_task_is_half_of_that_of_single_images(here: Stream) -> None:
    """F <- 1/2 0 + 1/2 F_0, F_0 the mean of squared gradients of log p(y | x), clean views, outputs of the task."""
    method = here.build("ewc", epochs=1, held_out=0.0)
    task = here.tasks[0][0]
    method.start_task(task, QUIET)
    method.train_epoch(0)
    tip = frozen_copy(method._current_run().tip).requires_grad_(True)
    objective = method._current_run().trainer.step.objective
    weight, bias = (objective.classifier.weight.detach().clone(), objective.classifier.bias.detach().clone())
    method.finish_task(QUIET)
    sums = {name: torch.zeros_like(p) for name, p in tip.named_parameters()}
    for row in range(len(task)):
        z = tip(task.views.clean(torch.tensor([row])))[0]
        log_p = log_share([weight[k] @ z + bias[k] for k in range(OLD)], int(task.labels[row]))
        for (name, _), g in zip(tip.named_parameters(), torch.autograd.grad(log_p, list(tip.parameters()))):
            sums[name] += g**2
    [consolidation] = method.callbacks
    for name, total in sums.items():
        torch.testing.assert_close(consolidation.fisher[name], 0.5 * total / len(task), rtol=1e-4, atol=1e-9)


def test_settings_are_those_of_the_published_code() -> None:
    """FACIL: main_incremental.py; PyCIL: exps/*.json and the learners."""

    def recipe(name: str) -> tuple[Any, ...]:
        t: Any = from_flat(name, {}).settings.training
        return (t.optimizer, t.learning_rate, t.weight_decay, t.batch_size, t.epochs, t.schedule, t.clip)

    facil = ("sgd", 0.1, 0.0, 64, 200, "plateau", 10_000.0)
    assert {name: recipe(name) for name in ("fine-tune", "ewc", "lwf", "joint")} == dict.fromkeys(
        ("fine-tune", "ewc", "lwf", "joint"), facil
    )
    assert recipe("pass") == recipe("il2a") == ("adam", 1e-3, 2e-4, 64, 101, "step", None)
    assert recipe("ssre") == ("adam", 1e-3, 5e-4, 128, 101, "step", None)
    assert recipe("fetril") == ("sgd", 0.1, 5e-4, 128, 200, "cosine", None)
    t: Any = from_flat("fine-tune", {}).settings.training
    assert (t.momentum, t.lr_factor, t.lr_min, round(t.lr_patience * t.epochs)) == (0.0, 3.0, 1e-4, 5)


@pytest.mark.parametrize("norms", ["own", "shared", "frozen"])
def test_il2a_is_its_old_network_until_it_has_moved(here: Stream, norms: str) -> None:
    """With shared or frozen batch-norm statistics nothing is left to distil at the beginning of a task."""
    settings = from_flat("il2a", {"batch_size": 16, "norms": norms, "epochs": 1}).settings
    network = make_backbone(BackboneSettings(backbone="resnet18-slim", resolution=8), generator(0))
    method = METHODS["il2a"].build(network, settings, 0, CPU)
    assert isinstance(method, IncrementalMethod)
    learn(method, here.tasks[0][0])
    method.start_task(here.tasks[1][0], QUIET)
    trainer, old_tip = method._current_run().trainer, method._current_run().old_tip
    assert trainer is not None
    trainer.tip.train()
    batch = next(iter(trainer.step.batches(trainer.data, 16, torch.Generator().manual_seed(0))))
    running, old = statistics_of(trainer.tip), statistics_of(old_tip)
    distance_now = trainer.step.terms(trainer, batch, 0)["fd"].item()
    assert (distance_now == 0) == (norms != "own")
    same = [torch.equal(value, running[name]) for name, value in statistics_of(trainer.tip).items()]
    assert all(same) == (norms == "frozen")
    assert all(torch.equal(value, old[name]) for name, value in statistics_of(old_tip).items())
    method.train_epoch(0)
    method.finish_task(QUIET)
    assert not trainer.tip._forward_pre_hooks  # the network is as it was


def statistics_of(network: nn.Module) -> Values:
    return {name: value.clone() for name, value in network.named_buffers() if "running" in name}


@pytest.mark.parametrize("norms", ["shared", "frozen"])
def test_il2a_with_batch_norms_is_resumed_to_the_last_digit(here: Stream, norms: str) -> None:
    settings = from_flat("il2a", {"batch_size": 16, "norms": norms, "epochs": 2}).settings

    def built() -> Any:
        network = make_backbone(BackboneSettings(backbone="resnet18-slim", resolution=8), generator(0))
        return METHODS["il2a"].build(network, settings, 0, CPU)

    whole, task = built(), here.tasks[1][0]
    learn(whole, here.tasks[0][0])
    whole.start_task(task, QUIET)
    whole.train_epoch(0)
    saved = whole.state()
    saved = dataclasses.replace(saved, tensors={name: value.clone() for name, value in saved.tensors.items()})
    last = whole.train_epoch(1)
    whole.finish_task(QUIET)
    again = built()
    again.load_state(saved, task, here.tasks[0][0].views)
    assert again.train_epoch(1) == last
    again.finish_task(QUIET)
    expected = whole.state().tensors
    for name, value in again.state().tensors.items():
        assert torch.equal(value, expected[name]), name
