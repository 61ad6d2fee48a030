"""MetaGCD: what an episode is made of, and its meta-objective against one unrolled by hand."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from small_streams import QUIET, stream
from torch import Tensor

from camp.core.errors import CampError
from camp.core.seeds import generator as seeded
from camp.methods.gccd.metagcd import Learner, MetaGcdObjective, Session, episode, simulated_sessions
from camp.methods.gccd.settings import MetaGcdSettings
from camp.nn.backbones.residual_mlp import ResidualMlp
from camp.nn.backbones.vit import VitShape, random_state, split
from camp.nn.losses import simclr, soft_neighbourhood, supcon

DIM = 6


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass
class Meta:
    """Tip and heads in double precision, and how they are trained."""

    learner: Learner
    settings: MetaGcdSettings

    def meta_loss(self, theta: dict[str, Tensor], sessions: list[Session]) -> Tensor:
        return self.learner.meta_loss(theta, sessions, self.settings)


def make_meta(tip: torch.nn.Module | None = None, dim: int = DIM, **options: Any) -> Meta:
    usual = {"projector_width": 8, "neighbour_threshold": 0.5, "inner_rate": 0.1}
    settings = MetaGcdSettings(**{**usual, **options})
    if tip is None:
        tip = ResidualMlp(dim, 5, generator(1))
        torch.nn.init.normal_(tip.fc2.weight, std=0.3, generator=generator(2))
    objective = MetaGcdObjective(settings, dim, generator(3), offline=False).double()
    return Meta(Learner(tip.double(), objective), settings)


def make_sessions(count: int = 2, twins: bool = False) -> list[Session]:
    """Sessions of six images each, as vectors; with `twins` each image arrives with one just like it."""
    draw = generator(4)

    def batch(twins: bool) -> dict[str, Tensor]:
        views = torch.randn(2, 6, DIM, generator=draw, dtype=torch.float64)
        if twins:
            views = views[:, [0, 0, 1, 1, 2, 2]]
        return {"vector": views.flatten(0, 1)}

    return [(batch(twins), batch(False), torch.tensor([0, 1, 0, 2, 1, 2])) for _ in range(count)]


def theta_of(made: Meta) -> dict[str, Tensor]:
    return {name: p for name, p in made.learner.named_parameters() if p.requires_grad}


def slow_meta_loss(made: Meta, sessions: list[Session]) -> float:
    """The episode played through with a copy of the network and torch's own SGD."""
    meta, learner = made.settings, copy.deepcopy(made.learner)
    sgd = torch.optim.SGD(learner.parameters(), lr=meta.inner_rate)

    def projected(batch: dict[str, Tensor]) -> Tensor:
        return learner.objective.projector(learner.tip(batch).view(2, 6, DIM))

    total = 0.0
    for arriving, seen, labels in sessions:
        for _ in range(meta.inner_steps):
            h = projected(arriving)
            l_sncl = soft_neighbourhood(h, meta.neighbour_threshold, meta.supcon_temperature)
            assert l_sncl > 0
            l_in = (1 - meta.neighbour_weight) * simclr(h) + meta.neighbour_weight * l_sncl
            sgd.zero_grad()
            l_in.backward()
            sgd.step()
        h = projected(seen)
        w = meta.neighbour_weight
        l_out = (1 - w) * simclr(h) + w * supcon(h, labels, meta.supcon_temperature)
        total += l_out.item()
    return total


@pytest.mark.parametrize("options", [{}, {"inner_steps": 3, "inner_rate": 0.05}, {"first_order": True}])
def test_the_meta_objective_is_its_definition(options: dict[str, Any]) -> None:
    made, sessions = make_meta(**options), make_sessions(3)
    assert made.meta_loss(theta_of(made), sessions).item() == pytest.approx(slow_meta_loss(made, sessions))


@pytest.mark.parametrize(("first_order", "exact"), [(False, True), (True, False)])
def test_its_gradient_goes_through_the_inner_updates(first_order: bool, exact: bool) -> None:
    """Against finite differences of the episode played through; without second derivatives it is another.

    Twins are neighbours of positiveness 1 at all parameters: targets have no gradient, but finite differences
    would see them move.
    """
    made = make_meta(first_order=first_order, neighbour_threshold=0.9999)
    sessions = make_sessions(twins=True)
    theta = theta_of(made)
    gradients = torch.autograd.grad(made.meta_loss(theta, sessions), list(theta.values()))
    draw, step = generator(5), 1e-6
    agree = []
    for p, gradient in zip(theta.values(), gradients):
        direction = torch.randn(p.shape, generator=draw, dtype=torch.float64)
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                p += sign * step * direction
            values.append(slow_meta_loss(made, sessions))
            with torch.no_grad():
                p -= sign * step * direction
        slope = (values[0] - values[1]) / (2 * step)
        agree.append((gradient * direction).sum().item() == pytest.approx(slope, rel=1e-4, abs=1e-6))
    assert all(agree) == exact


def test_a_block_with_attention_can_be_differentiated_twice() -> None:
    shape = VitShape(64, 16, blocks=3)
    trunk, tip = split(random_state(shape, generator()), shape, 32, 3, 2)
    batch = {name: x.double() for name, x in trunk(torch.randn(8, 3, 32, 32, generator=generator())).items()}
    gradients = {}
    for first_order in (False, True):
        made = make_meta(copy.deepcopy(tip), 64, first_order=first_order)
        theta = theta_of(made)
        loss = made.meta_loss(theta, [(batch, batch, torch.tensor([0, 0, 1, 1]))])
        gradients[first_order] = torch.autograd.grad(loss, list(theta.values()), materialize_grads=True)
    assert all(g.isfinite().all() for g in gradients[False])
    assert any(not torch.allclose(a, b) for a, b in zip(gradients[False], gradients[True]))


LABELS = torch.tensor([0, 0, 1, -1, 1, 2, 2, -1, 3, 3, 4, 4, -1, 5, 5])


def classes(rows: Tensor) -> set[int]:
    return set(LABELS[rows].flatten().tolist())


def test_an_episode_adds_classes_session_by_session() -> None:
    brought, kept = set(), set()
    for seed in range(10):
        rows = episode(LABELS, 2, 100, generator(seed))
        assert rows.shape == (2, 2, 12)  # all labelled images, and no more
        new = [classes(rows[s, 0, :6]) for s in range(2)]
        old = classes(rows[:, 0, 6:])
        assert [len(new[0]), len(new[1]), len(old)] == [2, 2, 2]
        assert new[0] | new[1] | old == set(range(6))
        assert classes(rows[0, 1]) == old | new[0]  # L_out asks for nothing that is still to come
        assert sorted(rows[1, 1].tolist()) == (LABELS >= 0).nonzero()[:, 0].tolist()
        brought |= new[0] | new[1]
        kept |= old
    assert brought == kept == set(range(6))


def test_no_image_is_repeated_where_there_are_enough() -> None:
    labels = torch.arange(4).repeat_interleave(10)
    for part in episode(labels, 3, 12, generator()).flatten(0, 1):
        assert len(part.unique()) == 12


def test_episodes_of_odd_tasks() -> None:
    draw = generator()
    unlabelled = torch.full((4,), -1)
    assert episode(unlabelled, 2, 8, draw).shape == (2, 2, 0)
    assert episode(unlabelled[:0], 2, 8, draw).shape == (2, 2, 0)
    one_image = episode(torch.tensor([-1, 5, -1]), 3, 8, draw)
    assert one_image.tolist() == [[[1], [1]]] * 3
    one_class = episode(torch.tensor([5, 5, -1, 5]), 2, 8, draw)  # nothing is new, it is kept all the same
    assert all(sorted(part.tolist()) == [0, 1, 3] for part in one_class.flatten(0, 1))


def test_losses_are_their_equations() -> None:
    """L_GCD offline; L_in and L_out with one weight w; one head for all of them."""
    settings = MetaGcdSettings(projector_width=8, beta=0.3, neighbour_weight=0.6, neighbour_threshold=0.2)
    z, labels = torch.randn(2, 7, DIM, generator=generator(1)), torch.tensor([0, 1, 0])
    offline, session = (
        MetaGcdObjective(settings, DIM, generator(), offline=offline) for offline in (True, False)
    )
    h = offline.projector(z)
    assert torch.equal(h, session.projector(z))
    l_gcd = 0.7 * simclr(h[:, :4], 1.0) + 0.3 * supcon(h[:, 4:], labels, 0.07)
    torch.testing.assert_close(offline(z, 4, labels, 0)["loss"], l_gcd)
    l_in = 0.4 * simclr(h, 1.0) + 0.6 * soft_neighbourhood(h, 0.2, 0.07)
    torch.testing.assert_close(session(z, 4, labels, 0)["loss"], l_in)
    l_out = 0.4 * simclr(h[:, 4:], 1.0) + 0.6 * supcon(h[:, 4:], labels, 0.07)
    learner = Learner(torch.nn.Identity(), session)
    torch.testing.assert_close(learner(z.flatten(0, 1), None), l_in)
    torch.testing.assert_close(learner(z[:, 4:].flatten(0, 1), labels), l_out)


def test_the_first_task_is_trained_offline_and_later_ones_by_sgd(tmp_path: Path) -> None:
    """The rates and the optimiser of the authors' code; the head lasts from task to task."""
    here = stream("vectors", tmp_path)
    method = here.build("metagcd")
    optimizers, losses = [], []
    for task, _ in here.tasks:
        method.start_task(task, QUIET)
        trainer = method._current_run().trainer
        optimizers.append(trainer.optimizer)
        losses.append(set(method.train_epoch(0)))
        method.finish_task(QUIET)
    offline, session = optimizers
    assert isinstance(offline, torch.optim.AdamW)
    assert isinstance(session, torch.optim.SGD)
    assert (session.defaults["momentum"], session.defaults["weight_decay"]) == (0.9, 5e-5)
    assert losses == [{"simclr", "supcon", "loss"}, {"simclr", "sncl", "loss"}]
    usual = MetaGcdSettings()
    assert (usual.session_rate, usual.inner_rate, usual.outer_rate) == (1e-4, 1e-4, 1e-5)
    assert (usual.sessions, usual.num_episodes, usual.neighbour_weight) == (4, 100, 0.5)
    method.start_task(here.tasks[0][0], QUIET)
    for name, value in method._current_run().trainer.step.objective.state_dict().items():
        assert torch.equal(value, method.heads[name])


def test_meta_training_is_sgd_on_the_meta_loss(tmp_path: Path) -> None:
    """Two episodes after a task against the rule of SGD with momentum and weight decay written out."""
    here = stream("vectors", tmp_path)
    options = {
        "episodes": 2,
        "sessions": 2,
        "outer_rate": 0.1,
        "inner_rate": 0.05,
        "neighbour_threshold": 0.3,
    }
    method = here.build("metagcd", **options)
    method.start_task(here.tasks[0][0], QUIET)
    method.train_epoch(0)
    run = method._current_run()
    trainer = run.trainer
    settings, learner = trainer.step.objective.settings, Learner(method.tip, trainer.step.objective)
    theta = {name: p.detach().clone().requires_grad_() for name, p in learner.parameters_by_name().items()}
    draw, buffers = seeded(0, "episodes", 0), {name: torch.zeros_like(p) for name, p in theta.items()}
    for _ in range(2):
        sessions = simulated_sessions(trainer, 2, draw)
        assert len(sessions) == 2
        loss = copy.deepcopy(learner).meta_loss(theta, sessions, settings)
        for (name, p), g in zip(theta.items(), torch.autograd.grad(loss, list(theta.values()))):
            buffers[name] = 0.9 * buffers[name] + g + 5e-5 * p.detach()
            theta[name] = (p.detach() - 0.1 * buffers[name]).requires_grad_()
    [meta_training] = method.callbacks
    meta_training.after_training(run, QUIET)
    for name, p in learner.parameters_by_name().items():
        torch.testing.assert_close(p, theta[name], rtol=1e-4, atol=1e-6, msg=name)
    method.finish_task(QUIET)
    method.start_task(here.tasks[1][0], QUIET)  # a later task is not followed by meta-training
    before = copy.deepcopy(method.tip.state_dict())
    meta_training.after_training(method._current_run(), QUIET)
    assert all(torch.equal(value, before[name]) for name, value in method.tip.state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sessions": 0}, "at least one session"),
        ({"inner_steps": 0}, "at least one inner step"),
        ({"inner_rate": 0.0}, "inner_rate"),
        ({"session_rate": 0.0}, "session_rate"),
        ({"outer_rate": -1.0}, "outer_rate"),
        ({"episodes": -1}, "episodes"),
        ({"neighbour_threshold": 1.2}, "cosine"),
        ({"neighbour_weight": 1.2}, "neighbour_weight"),
        ({"exemplars": -1}, "exemplars"),
    ],
)
def test_settings_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CampError, match=message):
        MetaGcdSettings(**options)


def test_without_labels_there_is_no_meta_training(tmp_path: Path) -> None:
    here = stream("vectors", tmp_path, [{0: (0, 10), 1: (0, 10), 2: (0, 9)}])
    method = here.build("metagcd", outer_rate=1.0)
    method.start_task(here.tasks[0][0], QUIET)
    method.train_epoch(0)
    before = copy.deepcopy(method.tip.state_dict())
    method.finish_task(QUIET)
    assert all(torch.equal(value, before[name]) for name, value in method.tip.state_dict().items())
