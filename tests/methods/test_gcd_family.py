"""What tells GCD's relatives and Frozen from GCD."""

import pytest
import torch
import torch.nn.functional as F
from small_streams import KINDS, QUIET, Stream, stream
from torch import nn

from camp.methods.base import Method
from camp.methods.consolidation import ElasticWeightConsolidation, diagonal_fisher
from camp.methods.gccd.centroid_method import CentroidMethod


@pytest.fixture(scope="module", params=KINDS)
def here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return stream(request.param, tmp_path_factory.mktemp("streams"))


def learn(method: Method, here: Stream, tasks: int = 2) -> list[dict[str, float]]:
    terms = []
    for task, _ in here.tasks[:tasks]:
        method.start_task(task, QUIET)
        terms += [method.train_epoch(epoch) for epoch in range(method.epochs)]
        method.finish_task(QUIET)
    return terms


def test_the_fisher_information_is_the_mean_square_of_single_gradients(here: Stream) -> None:
    """One image at a time, by plain autograd."""
    task = here.tasks[0][0]
    tip = here.build("gcd").tip  # type: ignore[attr-defined]
    torch.manual_seed(0)
    head = nn.Linear(tip(task.views.clean(torch.arange(1))).shape[1], 2)
    rows = (task.labels >= 0).nonzero()[:, 0]
    found = diagonal_fisher(tip, head, task.views.subset(rows), task.labels[rows], QUIET)

    parameters = {name: p for name, p in tip.named_parameters() if p.requires_grad}
    expected = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for row in rows:
        log_p = F.log_softmax(head(tip(task.views.clean(row[None]))), dim=-1)[0, task.labels[row]]
        for name, gradient in zip(expected, torch.autograd.grad(log_p, list(parameters.values()))):
            expected[name] += gradient.square() / len(rows)
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-9)
    assert all(p.grad is None for p in tip.parameters())


def consolidation_of(method: Method) -> ElasticWeightConsolidation:
    assert isinstance(method, CentroidMethod)
    [consolidation] = method.callbacks
    assert isinstance(consolidation, ElasticWeightConsolidation)
    return consolidation


def test_fisher_information_adds_up_over_tasks(here: Stream) -> None:
    method = here.build("gcd-ewc")
    consolidation = consolidation_of(method)
    learn(method, here, tasks=1)
    first = {name: value.clone() for name, value in consolidation.fisher.items()}
    assert any(value.sum() > 0 for value in first.values())
    task = here.tasks[1][0]
    method.start_task(task, QUIET)
    run = method._current_run()
    objective = run.trainer.step.objective
    consolidation.after_training(run, QUIET)
    rows = (task.labels >= 0).nonzero()[:, 0]
    second = diagonal_fisher(
        method.tip, objective.classifier, task.views.subset(rows), task.labels[rows], QUIET
    )
    for name, value in consolidation.fisher.items():
        torch.testing.assert_close(value, first[name] + second[name])


def test_consolidation_keeps_the_tip_near_its_old_parameters(here: Stream) -> None:
    """The penalty begins at 0, where the tip was, and a stronger one lets it go less far."""
    moved = {}
    for strength in (0.0, 1e9):
        method = here.build("gcd-ewc", ewc=strength)
        first = learn(method, here, tasks=1)
        assert all("penalty" not in line for line in first)
        before = {name: p.detach().clone() for name, p in method.tip.named_parameters()}
        fisher = consolidation_of(method).fisher
        method.start_task(here.tasks[1][0], QUIET)
        [penalty] = method._current_run().trainer.penalties
        assert penalty().item() == 0
        method.train_epoch(0)
        method.train_epoch(1)
        moved[strength] = sum(
            float((fisher[name] * (p.detach() - before[name]).square()).sum())
            for name, p in method.tip.named_parameters()
        )
        if strength:
            assert abs(penalty().item() - strength / 2 * moved[strength]) <= 1e-3 * penalty().item()
    assert moved[1e9] < moved[0.0]


def test_without_penalty_and_exemplars_the_relatives_are_gcd(here: Stream) -> None:
    plain = learn(here.build("gcd"), here)
    assert learn(here.build("gcd-er", exemplars=0), here) == plain
    replayed = learn(here.build("gcd-er", exemplars=3), here)
    assert replayed[:2] == plain[:2]
    assert replayed[2:] != plain[2:]


def test_feature_distillation_weighs_new_against_old(here: Stream) -> None:
    """L = (1 - alpha) L_GCD + alpha L_FD from the second task on."""
    plain, method = learn(here.build("gcd"), here), here.build("gcd-fd", alpha=0.25)
    terms = learn(method, here)
    assert terms[:2] == plain[:2]
    assert "kd" not in terms[0]
    for line in terms[2:]:
        gcd = 0.65 * line["simclr"] + 0.35 * line["supcon"]
        assert line["loss"] == pytest.approx(0.75 * gcd + 0.25 * line["kd"], rel=1e-5)
    still = learn(here.build("gcd-fd", alpha=0.0), here)
    assert [line["simclr"] for line in still] == pytest.approx([line["simclr"] for line in plain], rel=1e-5)


def test_frozen_features_and_centroids_never_move(here: Stream) -> None:
    method = here.build("frozen")
    assert isinstance(method, CentroidMethod)
    tip = {name: value.clone() for name, value in method.tip.state_dict().items()}
    assert learn(method, here, tasks=1) == []
    first = method.centroids
    assert first is not None
    method.start_task(here.tasks[1][0], QUIET)
    method.finish_task(QUIET)
    assert method.centroids is not None
    assert torch.equal(method.centroids[: len(first)], first)
    for name, value in method.tip.state_dict().items():
        assert torch.equal(value, tip[name])
