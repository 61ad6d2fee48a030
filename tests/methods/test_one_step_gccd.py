"""Training steps of every method of category discovery against steps that are written out by hand.

A method learns a first task and starts the second. From there the test takes the batches that the trainer draws,
computes the loss from the equations one image, pair or class at a time, differentiates it, clips the gradient and
applies the rule of the optimiser. The gradients that the trainer leaves behind and the parameters of tip, heads and
distiller must be the same after the first and after the second step (the second has moments of the first, and a penalty
that is not 0). Everything is in double precision.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from slow_trainer import (
    slow_contrast,
    slow_gcd,
    slow_logits,
    slow_mlp_distiller,
    slow_network,
    slow_sl,
    slow_ssl,
)
from small_streams import QUIET, learn, stream
from torch import Tensor
from torch.func import functional_call

from camp.core.seeds import generator
from camp.methods import distillation
from camp.methods.components import TaskRun
from camp.methods.gccd.igcd import Igcd, IgcdObjective
from camp.methods.gccd.pa import CleanLabelledBatch
from camp.methods.tip_method import TipMethod
from camp.methods.trainer import Trainer, clean_features

Parameters = dict[str, Tensor]
BATCH, EPOCH, RATE = 6, 1, 0.01
TAU_T = 0.055
"""Temperature of the teacher in the second epoch."""


@dataclass(frozen=True)
class Step:
    """What a loss can depend on, and the method whose settings it reads."""

    p: Parameters
    """Parameters of tip, objective and distiller, by prefix."""
    z: Tensor
    """(2, B, D) features of the views under the parameters."""
    z_old: Tensor
    """(2, B, D) features of the views under the tip after the task before."""
    own: int
    """Number of images of the task in the batch, treated as unlabelled."""
    labels: Tensor
    """Labels of the other images."""
    clean: tuple[Tensor, Tensor] | None
    """Features (m, D) of clean views of labelled images and their labels, where a step has them."""
    settings: Any
    method: TipMethod
    run: TaskRun

    def projected(self, head: str, layers: list[int], between: Callable, images: range) -> list:
        """Projections of both views of images, each with the number of its image."""
        return [
            (b, slow_network(self.p, f"objective.{head}", layers, between, self.z[v, b]))
            for v in range(2)
            for b in images
        ]

    def l_fd(self, images: int) -> Tensor:
        """Mean of squared differences to the old features of the first images."""
        difference = self.z[:, :images] - self.z_old[:, :images]
        return sum((d**2).sum() for d in difference.flatten(0, 1)) / difference.numel()


def same_image(a: int, b: int) -> bool:
    return a == b


def gcd(s: Step) -> Tensor:
    return slow_gcd(s.p, s.z, s.own, s.labels, s.settings)


def gcd_fd(s: Step) -> Tensor:
    """Summed over the views, without the labelled batch."""
    return 0.5 * gcd(s) + 0.5 * 2 * s.l_fd(s.own)


def gcd_ewc(s: Step) -> Tensor:
    h = s.projected("projector", [0, 2], torch.relu, range(s.own))
    l_ce = torch.zeros((), dtype=torch.double)
    for view in s.z[:, s.own :]:
        for x, y in zip(view, s.labels):
            logits = s.p["objective.classifier.weight"] @ x + s.p["objective.classifier.bias"]
            l_ce = l_ce - torch.log_softmax(logits, dim=0)[y] / (2 * len(s.labels))
    penalty = torch.zeros((), dtype=torch.double)
    fisher = s.method.callbacks[0].fisher  # type: ignore[attr-defined]
    for name, then in s.run.old_tip.named_parameters():
        penalty = penalty + (fisher[name] * (s.p[f"tip.{name}"] - then) ** 2).sum()
    return 0.65 * slow_contrast(h, same_image, 1.0) + 0.35 * l_ce + 5000 / BATCH / 2 * penalty


def metagcd_offline(s: Step) -> Tensor:
    h = s.projected("projector", [0, 2], torch.relu, range(s.z.shape[1]))
    task = [(b, x) for b, x in h if b < s.own]
    labelled = [(b - s.own, x) for b, x in h if b >= s.own]
    l_supcon = slow_contrast(labelled, lambda a, b: bool(s.labels[a] == s.labels[b]), 0.07)
    return 0.65 * slow_contrast(task, same_image, 1.0) + 0.35 * l_supcon


def metagcd_session(s: Step) -> Tensor:
    """L_in of all images of the step; neighbours and positiveness have no gradient."""
    h = s.projected("projector", [0, 2], torch.relu, range(s.z.shape[1]))
    unit = [(b, x / x.norm()) for b, x in h]
    count, anchors = s.z.shape[1], []
    for i in range(count):
        mine = [x.detach() for b, x in unit if b == i]
        near = {
            j: max(float(x @ y) for x in mine for y in (y.detach() for b, y in unit if b == j))
            for j in range(count)
        } | {i: 1.0}
        near = {j: cosine for j, cosine in near.items() if cosine >= s.settings.neighbour_threshold}
        if len(near) == 1:
            continue
        softmax = {j: math.exp(c) / sum(map(math.exp, near.values())) for j, c in near.items()}
        for a in (i, i + count):
            weights = {n: torch.exp(unit[a][1] @ unit[n][1] / 0.07) for n in range(2 * count) if n != a}
            total = sum(weights.values())
            positive = [n for n in weights if n % count in near]
            terms = [
                softmax[n % count] / max(softmax.values()) * torch.log(weights[n] / total) for n in positive
            ]
            anchors.append(-sum(terms) / len(terms))
    assert 0 < len(anchors) < 2 * count
    return 0.5 * slow_contrast(h, same_image, 1.0) + 0.5 * sum(anchors) / len(anchors)


def simgcd(s: Step) -> Tensor:
    """Over the prototypes of the task alone, rows 3 to 5."""
    weight = s.p["objective.prototypes.weight"][3:]
    p = s.p | {"objective.prototypes.weight": weight}
    l_sl = slow_sl(p, s.z[:, s.own :], s.labels - 3, s.settings)
    return 0.65 * slow_ssl(p, s.z, TAU_T, s.settings) + 0.35 * l_sl


def pa(s: Step) -> Tensor:
    """On the clean view of labelled images, or on two augmented ones."""
    z, labels = (s.z[:, s.own :], s.labels) if s.clean is None else (s.clean[0][None], s.clean[1])
    embeddings = [(x / x.norm(), int(y)) for view in z for x, y in zip(view, labels)]
    pull, push = [], []
    for c, w in enumerate(s.p["objective.proxies"]):
        cosines = [(x @ w / w.norm(), y == c) for x, y in embeddings]
        inside = [torch.exp(-32 * (cosine - 0.1)) for cosine, mine in cosines if mine]
        outside = [torch.exp(32 * (cosine + 0.1)) for cosine, mine in cosines if not mine]
        if inside:
            pull.append(torch.log(1 + sum(inside)))
        push.append(torch.log(1 + sum(outside)))
    l_pa = sum(pull) / len(pull) + sum(push) / len(push)
    return 0.5 * l_pa + 0.5 * 2 * s.l_fd(s.z.shape[1] if s.clean else s.own)


def igcd(s: Step) -> Tensor:
    """SimGCD's loss over all prototypes, and that of the soft nearest neighbours in its second epoch of two."""
    objective = s.run.trainer.step.objective
    assert isinstance(objective, IgcdObjective)
    neighbours, present = objective.neighbours, objective.present.tolist()
    support = [x / x.norm() for x in neighbours.support]
    p_of: list[list[Tensor]] = []
    for view in s.z:
        p_of.append([])
        for x in view:
            weights = [torch.exp(x / x.norm() @ y / 0.1) for y in support]
            votes = [
                sum(w for w, c in zip(weights, neighbours.categories.tolist()) if c == k)
                for k in range(len(present))
            ]
            p_of[-1].append(torch.stack(votes) / sum(weights))
    count = s.z.shape[1]
    l_pseudo = torch.zeros((), dtype=torch.double)
    for b in range(count):
        for view, other in ((0, 1), (1, 0)):
            q = p_of[other][b].detach() ** (0.1 / TAU_T)
            l_pseudo = l_pseudo - (q / q.sum() * p_of[view][b].log()).sum() / (2 * count)
    mean = sum(p_of[v][b] for v in range(2) for b in range(count)) / (2 * count)
    entropy = -(mean * mean.log()).sum()
    l_ce = -sum(
        p_of[v][s.own + b][present.index(y)].log() for v in range(2) for b, y in enumerate(s.labels.tolist())
    ) / (2 * len(s.labels))
    l_snn = 0.65 * (l_pseudo + 2 * (math.log(len(mean)) - entropy)) + 0.35 * l_ce
    l_sl = slow_sl(s.p, s.z[:, s.own :], s.labels, s.settings)
    l_simgcd = 0.65 * slow_ssl(s.p, s.z, TAU_T, s.settings) + 0.35 * l_sl
    weight = 0.2 * math.exp(-5 * (1 - EPOCH / (0.9 * 2)) ** 2)
    return l_simgcd + weight * l_snn


def gm(s: Step) -> Tensor:
    h = s.projected("projector", [0, 2], torch.relu, range(s.own))
    first = [x.detach() / x.norm().detach() for x in s.z[0, : s.own]]

    def nearest(i: int) -> list[int]:
        return sorted((j for j in range(s.own) if j != i), key=lambda j: -float(first[i] @ first[j]))[:2]

    logits = [[x / 0.1 for x in view] for view in slow_logits(s.p, s.z)]
    p, p_other = ([torch.softmax(x, dim=0) for x in view[: s.own]] for view in logits)
    l_pairs = torch.zeros((), dtype=torch.double)
    for i in range(s.own):
        for j in range(s.own):
            alike = i == j or (j in nearest(i) and i in nearest(j))
            together = p[i] @ p_other[j]
            l_pairs = l_pairs - torch.log((together if alike else 1 - together) + 1e-7) / s.own**2
    l_ce = -sum(
        torch.log_softmax(view[s.own + b], dim=0)[y] for view in logits for b, y in enumerate(s.labels)
    ) / (2 * len(s.labels))
    loss = 0.65 * (slow_contrast(h, same_image, 1.0) + l_pairs) + 0.35 * l_ce
    return 0.5 * loss + 0.5 * s.l_fd(s.z.shape[1])


def camp(alpha: float) -> Callable[[Step], Tensor]:
    def loss(s: Step) -> Tensor:
        l_sl = slow_sl(s.p, s.z[:, s.own :], s.labels, s.settings)
        new = 0.65 * slow_ssl(s.p, s.z, TAU_T, s.settings) + 0.35 * l_sl
        distance = slow_mlp_distiller(s.p, s.z.flatten(0, 1)) - s.z_old.flatten(0, 1)
        return (1 - alpha) * new + alpha * sum((d**2).sum() for d in distance) / distance.numel()

    return loss


@dataclass(frozen=True)
class Case:
    """A method, its loss written out, and how it is optimised."""

    method: str
    loss: Callable[[Step], Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    task: int = 1
    rule: Literal["adamw", "sgd"] = "adamw"
    clipping: Literal["norm", "value"] = "norm"
    clip: float = 0.05
    head_rate: float = 1.0
    """Learning rate of the heads as a multiple of the tip's."""


CASES = {
    "gcd": Case("gcd", gcd),
    "gcd-er": Case("gcd-er", gcd, {"exemplars": 3}),
    "gcd-fd": Case("gcd-fd", gcd_fd),
    "gcd-ewc": Case("gcd-ewc", gcd_ewc),
    "metagcd, first task": Case("metagcd", metagcd_offline, task=0),
    "metagcd, later task": Case("metagcd", metagcd_session, {"neighbour_threshold": 0.9}, rule="sgd"),
    "metagcd, exemplars": Case(
        "metagcd", metagcd_session, {"neighbour_threshold": 0.9, "exemplars": 3}, rule="sgd"
    ),
    "simgcd": Case("simgcd", simgcd),
    "pa": Case("pa", pa, {"exemplars": 3}, clipping="value", clip=0.01, head_rate=100.0),
    "pa, clean view": Case(
        "pa",
        pa,
        {"exemplars": 3, "labelled_views": "clean"},
        clipping="value",
        clip=0.01,
        head_rate=100.0,
    ),
    "igcd": Case("igcd", igcd, {"exemplars": 3, "rampup": 0.9}),
    "gm": Case("gm", gm, {"neighbours": 2}),
    "camp": Case("camp", camp(0.5)),
    "camp, exemplars": Case("camp", camp(0.1), {"exemplars": 3}),
    "camp-plus": Case("camp-plus", camp(0.5)),
}


class HandOptimizer:
    """Clipping, AdamW and SGD with momentum, written out."""

    def __init__(self, case: Case) -> None:
        self.case, self.t = case, 0
        self.m: Parameters = {}
        self.v: Parameters = {}

    def clipped(self, p: Parameters, loss: Tensor) -> Parameters:
        clip = self.case.clip
        found = dict(zip(p, torch.autograd.grad(loss, list(p.values()), allow_unused=True)))
        gradients = {name: torch.zeros_like(p[name]) if g is None else g for name, g in found.items()}
        if self.case.clipping == "value":
            assert any(float(g.abs().max()) > clip for g in gradients.values())
            return {name: g.clamp(-clip, clip) for name, g in gradients.items()}
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
        assert norm > clip
        return {name: g * clip / (norm + 1e-6) for name, g in gradients.items()}

    def step(self, p: Parameters, gradients: Parameters) -> Parameters:
        self.t += 1
        stepped = {}
        for name, g in gradients.items():
            rate = RATE * (self.case.head_rate if name.startswith("objective.") else 1.0)
            x = p[name].detach()
            if self.case.rule == "sgd":
                decayed = g + 5e-5 * x
                self.m[name] = 0.9 * self.m[name] + decayed if name in self.m else decayed
                update = rate * self.m[name]
            else:
                self.m[name] = 0.9 * self.m.get(name, torch.zeros_like(g)) + 0.1 * g
                self.v[name] = 0.999 * self.v.get(name, torch.zeros_like(g)) + 0.001 * g**2
                m, v = self.m[name] / (1 - 0.9**self.t), self.v[name] / (1 - 0.999**self.t)
                update = rate * m / (v.sqrt() + 1e-8)
            stepped[name] = (x - update).requires_grad_()
        return stepped


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streams")


def started(case: Case, folder: Path) -> TipMethod:
    """The method at the start of a task, with all networks in double precision."""
    here = stream("vectors", folder)
    method = here.build(case.method, batch_size=BATCH, clip=case.clip, **case.options)
    assert isinstance(method, TipMethod)
    for task, _ in here.tasks[: case.task]:
        learn(method, task)
    method.start_task(here.tasks[case.task][0], QUIET)
    run = method._current_run()
    modules = [method.tip, *run.trainer.step.modules().values()]
    for module in [*modules, *([run.old_tip] if run.old_tip is not None else [])]:
        module.double()
    if isinstance(method, Igcd):
        views, rows = method.support
        run.trainer.step.objective.set_support(clean_features(method.tip, views, QUIET), rows)
    method.tip.train()
    return method


def parameters_of(trainer: Trainer) -> Parameters:
    modules = {"tip": trainer.tip, **trainer.step.modules()}
    return {
        f"{prefix}.{name}": p
        for prefix, module in modules.items()
        for name, p in module.named_parameters()
        if p.requires_grad
    }


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_two_steps_are_those_written_out(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "_TABLE_BYTES", 0)  # old features in double precision, in each step
    method = started(case, folder)
    run = method._current_run()
    trainer = run.trainer
    actual = parameters_of(trainer)
    p = {name: value.detach().clone().requires_grad_() for name, value in actual.items()}
    start = {name: value.detach().clone() for name, value in actual.items()}
    for group in trainer.optimizer.param_groups:
        group["lr"] = RATE * group["rate"]
    optimizer, old_tip = HandOptimizer(case), run.old_tip or method.tip
    batches = trainer.step.batches(trainer.data, BATCH, generator(0, "test"))
    for _, batch in zip(range(2), batches):
        z_old = old_tip(batch.views).detach()
        tip = {name.removeprefix("tip."): value for name, value in p.items() if name.startswith("tip.")}
        z = functional_call(trainer.tip, tip, (batch.views,)).view(2, len(batch.rows), -1)
        labels = trainer.data.labels[batch.rows[batch.num_task_images :]]
        clean = None
        if isinstance(batch, CleanLabelledBatch):
            rows = batch.labelled.rows
            clean = functional_call(trainer.tip, tip, (batch.labelled.views,)), trainer.data.labels[rows]
            assert torch.equal(batch.labelled.views["vector"], trainer.data.views.clean(rows)["vector"])
        settings = trainer.step.objective.settings
        loss = case.loss(
            Step(p, z, z_old.view_as(z), batch.num_task_images, labels, clean, settings, method, run)
        )
        gradients = optimizer.clipped(p, loss)
        terms = trainer.train_step(batch, EPOCH)
        torch.testing.assert_close(terms["loss"], loss, rtol=1e-9, atol=1e-10)
        p = optimizer.step(p, gradients)
        for name, value in actual.items():
            found = torch.zeros_like(value) if value.grad is None else value.grad
            torch.testing.assert_close(found, gradients[name], rtol=1e-6, atol=1e-10, msg=f"{name} gradient")
            torch.testing.assert_close(value.detach(), p[name].detach(), rtol=1e-6, atol=1e-8, msg=name)
    moved = {name.split(".")[0] for name in actual if not torch.equal(actual[name], start[name])}
    assert moved == {name.split(".")[0] for name in actual}
