"""Methods of class-incremental learning by a classifier: the base, Fine-tune, LwF, EWC and Joint."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from small_streams import CPU, QUIET, Stream, backbone, learn, small_settings, stream

from camp.core.errors import CampError
from camp.methods.cil.base import ClassRange, IncrementalMethod, SupervisedStep
from camp.methods.cil.fine_tune import FineTuneObjective
from camp.methods.cil.lwf import LwfObjective
from camp.methods.cil.settings import LwfSettings
from camp.methods.consolidation import ElasticWeightConsolidation
from camp.methods.registry import method_info

TWO_TASKS = ({0: (9, 0), 1: (8, 0)}, {2: (9, 0), 3: (8, 0)})


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return stream("images", tmp_path_factory.mktemp("streams"), TWO_TASKS)


def built(name: str, **options: float) -> IncrementalMethod:
    method = method_info(name).build(backbone("images", 0), small_settings(name, **options), 0, CPU)
    assert isinstance(method, IncrementalMethod)
    return method


def rows_of_an_epoch(method: IncrementalMethod) -> list[torch.Tensor]:
    """The rows of each step of a task under way."""
    trainer = method._current_run().trainer
    batches = trainer.step.batches(
        trainer.data, trainer.settings.batch_size, torch.Generator().manual_seed(0)
    )
    return [batch.rows for batch in batches]


def test_an_epoch_shows_every_image_once(here: Stream) -> None:
    method = built("fine-tune", held_out=0.0)
    method.start_task(here.tasks[0][0], QUIET)
    assert isinstance(method._current_run().trainer.step, SupervisedStep)
    steps = rows_of_an_epoch(method)
    assert [len(rows) for rows in steps] == [16, 1]
    assert sorted(row for rows in steps for row in rows.tolist()) == list(range(17))


def test_held_out_images_are_not_trained_on_and_stay_the_same(here: Stream) -> None:
    """A tenth of each class, as FACIL; Joint holds out the same images of earlier tasks again."""
    method, held_out = built("joint", held_out=0.25), []
    for task, _ in here.tasks:
        method.start_task(task, QUIET)
        data = method._current_run().trainer.data
        counts = torch.bincount(data.labels[data.held_out]).tolist()
        assert counts == [2] * len(counts)  # of 9 and of 8 images
        trained = sorted(row for rows in rows_of_an_epoch(method) for row in rows.tolist())
        assert sorted([*trained, *data.held_out.tolist()]) == list(range(len(data.labels)))
        held_out.append({bytes(d.tolist()) for d in data.views.digests()[data.held_out]})
        for epoch in range(method.epochs):
            assert "held_out" in method.train_epoch(epoch)
        method.finish_task(QUIET)
    assert held_out[0] < held_out[1]


def test_the_best_weights_on_held_out_images_are_those_of_the_end(here: Stream) -> None:
    """A learning rate of 30 makes everything worse after some epoch; resuming in between changes nothing."""
    options = {"learning_rate": 30.0, "epochs": 12, "momentum": 0.0}
    task = here.tasks[0][0]
    method = built("fine-tune", **options)
    method.start_task(task, QUIET)
    losses, states = [], []
    for epoch in range(12):
        losses.append(method.train_epoch(epoch))
        states.append(method.state())
        states[-1] = dataclasses.replace(
            states[-1], tensors={k: v.clone() for k, v in states[-1].tensors.items()}
        )
    trainer = method._current_run().trainer
    best = min(line["held_out"] for line in losses if "held_out" in line)
    assert best < losses[-1].get("held_out", math.inf)
    assert trainer.step.held_out_loss(trainer) == pytest.approx(best, rel=1e-5)
    for at in (2, 5, 8):
        again = built("fine-tune", **options)
        again.load_state(states[at], task, task.views)
        assert [again.train_epoch(epoch) for epoch in range(at + 1, 12)] == losses[at + 1 :]
        assert all(torch.equal(v, again.state().tensors[k]) for k, v in states[-1].tensors.items())


def test_fine_tune_uses_the_classes_of_its_task_alone() -> None:
    objective = FineTuneObjective(ClassRange(4, 2, 5), torch.Generator().manual_seed(0))
    z = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([2, 3, 4, 4, 2, 3])
    loss = objective(z, labels, {}, None)["loss"]
    logits = objective.classifier(z[0])[:, 2:]
    by_hand = -torch.stack([logits[i].log_softmax(0)[y - 2] for i, y in enumerate(labels)]).mean()
    torch.testing.assert_close(loss, by_hand)
    loss.backward()
    assert (objective.classifier.weight.grad[:2] == 0).all()
    assert (objective.classifier.weight.grad[2:] != 0).any()


def test_old_rows_of_the_classifier_stay_where_they_are(here: Stream) -> None:
    method = built("fine-tune")
    learn(method, here.tasks[0][0])
    before = method.heads["classifier.weight"].clone()
    learn(method, here.tasks[1][0])
    after = method.heads["classifier.weight"]
    assert after.shape == (4, method.dim)
    assert torch.equal(after[:2], before)  # no loss touches them


def test_predictions_are_the_largest_allowed_logit(here: Stream) -> None:
    method = built("fine-tune")
    for task, _ in here.tasks:
        learn(method, task)
    z = torch.randn(30, method.dim, generator=torch.Generator().manual_seed(0))
    logits = F.linear(z, method.heads["classifier.weight"], method.heads["classifier.bias"])
    assert torch.equal(method.predict(z), logits.argmax(1))
    allowed = torch.tensor([1, 2])
    assert torch.equal(method.predict(z, allowed), 1 + logits[:, 1:3].argmax(1))


def test_lwf_distils_the_old_predictions_at_its_temperature() -> None:
    settings = LwfSettings(lwf=3.0, temperature=2.0)
    objective = LwfObjective(settings, ClassRange(4, 2, 5), torch.Generator().manual_seed(0))
    heads = {"classifier.weight": torch.randn(2, 4), "classifier.bias": torch.randn(2)}
    objective.inherit(heads)
    z, z_old = torch.randn(1, 3, 4), torch.randn(1, 3, 4)
    labels = torch.tensor([2, 3, 4])
    terms = objective(z, labels, {}, z_old)
    q = ((z_old[0] @ heads["classifier.weight"].T + heads["classifier.bias"]) / 2).softmax(1)
    p = (objective.classifier(z[0])[:, :2] / 2).softmax(1)
    torch.testing.assert_close(terms["kd"], -(q * p.log()).sum(1).mean())
    torch.testing.assert_close(terms["loss"], terms["ce"] + 3 * terms["kd"])
    assert "kd" not in objective(z, labels, {}, None)
    terms["loss"].backward()
    assert (objective.classifier.weight.grad[:2] == 0).all()  # outputs of old classes are frozen
    assert (objective.classifier.weight.grad[2:] != 0).any()


def test_lwf_changes_old_predictions_less_than_fine_tune(here: Stream) -> None:
    z = here.tasks[0][0].views.clean(torch.arange(17))
    moved = []
    for name, options in (("fine-tune", {}), ("lwf", {"lwf": 20.0})):
        method = built(name, epochs=8, **options)
        learn(method, here.tasks[0][0])
        before = method._logits(method.features(z)).softmax(1)
        learn(method, here.tasks[1][0])
        moved.append((method._logits(method.features(z))[:, :2].softmax(1) - before).abs().mean().item())
    assert moved[1] < 0.7 * moved[0]


def consolidation_of(method: IncrementalMethod) -> ElasticWeightConsolidation:
    [consolidation] = method.callbacks
    assert isinstance(consolidation, ElasticWeightConsolidation)
    return consolidation


def test_ewc_accumulates_fisher_information_and_limits_changes_of_the_network(here: Stream) -> None:
    free, held = built("ewc", ewc=0.0, epochs=4), built("ewc", ewc=1e7, epochs=4)
    distances = []
    for method in (free, held):
        learn(method, here.tasks[0][0])
        first = {name: value.clone() for name, value in consolidation_of(method).fisher.items()}
        assert list(first) == sorted(dict(method.tip.named_parameters()))
        assert all((value >= 0).all() for value in first.values())
        before = torch.cat([p.detach().flatten().clone() for p in method.tip.parameters()])
        weight = torch.cat([first[name].flatten() for name, _ in method.tip.named_parameters()])
        method.start_task(here.tasks[1][0], QUIET)
        terms = [method.train_epoch(epoch) for epoch in range(method.epochs)]
        assert all("penalty" in line for line in terms)
        after = torch.cat([p.detach().flatten() for p in method.tip.parameters()])
        distances.append((weight * (after - before).square()).sum().item())
        method.finish_task(QUIET)
    assert distances[1] < 0.2 * distances[0]


def test_ewc_averages_old_and_new_fisher_information(here: Stream) -> None:
    method = built("ewc", fisher_kept=0.25)
    consolidation = consolidation_of(method)
    consolidation.add({"a": torch.tensor(8.0)})
    assert consolidation.fisher["a"] == 0.75 * 8  # the first is merged with 0
    consolidation.add({"a": torch.tensor(4.0)})
    assert consolidation.fisher["a"] == 0.25 * (0.75 * 8) + 0.75 * 4


def test_joint_sees_the_images_of_all_tasks(here: Stream) -> None:
    method = built("joint", held_out=0.0)
    learn(method, here.tasks[0][0])
    method.start_task(here.tasks[1][0], QUIET)
    assert sorted(method._current_run().trainer.data.labels.tolist()) == [0] * 9 + [1] * 8 + [2] * 9 + [3] * 8
    assert sum(map(len, rows_of_an_epoch(method))) == 34


def test_a_class_of_an_earlier_task_is_refused(tmp_path: Path) -> None:
    again = stream("images", tmp_path, ({0: (5, 0), 1: (5, 0)}, {1: (5, 0), 2: (5, 0)}))
    method = built("fine-tune")
    learn(method, again.tasks[0][0])
    with pytest.raises(CampError, match="1 of task 2 occurred before"):
        method.start_task(again.tasks[1][0], QUIET)


@pytest.mark.parametrize(
    ("name", "option", "value", "words"),
    [
        ("lwf", "temperature", 0.0, "temperature must be above 0"),
        ("lwf", "lwf", -1.0, "cannot be negative"),
        ("ewc", "ewc", -1.0, "cannot be negative"),
        ("ewc", "fisher_kept", 1.5, "a share between 0 and 1"),
    ],
)
def test_impossible_weights_are_refused(name: str, option: str, value: float, words: str) -> None:
    with pytest.raises(CampError, match=words):
        small_settings(name, **{option: value})


def test_mixed_arithmetic_is_near_the_full_one(here: Stream) -> None:
    losses = []
    for arithmetic in ("full", "mixed"):
        method = method_info("fine-tune").build(
            backbone("images", 0), small_settings("fine-tune", arithmetic=arithmetic), 0, CPU
        )
        method.start_task(here.tasks[0][0], QUIET)
        losses.append(method.train_epoch(0)["loss"])
        assert all(p.dtype == torch.float32 for p in method.tip.parameters())
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
