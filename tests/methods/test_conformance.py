"""What every registered method must do; a new method is held against all of it by its line in the registry."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_streams import (
    LABELLED,
    QUIET,
    USUAL,
    Plan,
    Stream,
    kinds_for,
    learn,
    small_settings,
    stream,
    takes,
)
from torch import Tensor

from camp.bench.checkpoint import load_checkpoint, save_checkpoint
from camp.bench.evaluation.after_task import Evaluator
from camp.core.errors import CampError
from camp.data.tasks import Task
from camp.methods.base import Method
from camp.methods.registry import METHODS

Open = Callable[..., Stream]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Open:
    """`stream` in a folder of its own; the pictures of all tests lie in the same banks."""
    folder = tmp_path_factory.mktemp("streams")

    def open_stream(kind: str, plans: Sequence[Plan] = USUAL, tell_k: bool = True) -> Stream:
        return stream(kind, folder, plans, tell_k)

    return open_stream


PLANS = {"mixed": USUAL, "labelled": LABELLED}
DISCOVERING = [name for name, info in METHODS.items() if not info.supervised]
SUPERVISED = [name for name, info in METHODS.items() if info.supervised]


def cases() -> list[tuple[str, str, str]]:
    """Every method on every kind of input it works on, with labels for some pictures or for all.

    Methods that need all labels meet no other stream; those that are compared with them meet both.
    """
    mixed = [(name, kind, "mixed") for name in DISCOVERING for kind in kinds_for(name)]
    both = [(name, "pictures", "labelled") for name in DISCOVERING if METHODS[name].incremental]
    return mixed + both + [(name, kind, "labelled") for name in SUPERVISED for kind in kinds_for(name)]


every_case = pytest.mark.parametrize(("name", "kind", "labels"), cases())
discovering = pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, kind, labels in cases() if labels == "mixed"]
)
supervised = pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, kind, _ in cases() if METHODS[name].supervised]
)


@dataclass
class Outcome:
    """All that a method said and knows."""

    terms: list[dict[str, float]]
    """Of each epoch."""
    categories: list[Any]
    centroids: Tensor | None
    features: Tensor
    """Of all test pictures."""
    predictions: Tensor
    assigned: Tensor
    found: dict[str, Any]
    tensors: dict[str, Tensor]
    """Of its state."""

    def same_as(self, other: "Outcome") -> bool:
        """To the last digit."""
        mine, yours = self.tensors, other.tensors
        return (
            self.terms == other.terms
            and self.categories == other.categories
            and _equal(self.centroids, other.centroids)
            and torch.equal(self.features, other.features)
            and torch.equal(self.predictions, other.predictions)
            and torch.equal(self.assigned, other.assigned)
            and self.found == other.found
            and mine.keys() == yours.keys()
            and all(torch.equal(mine[key], yours[key]) for key in mine)
        )


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    return torch.equal(a, b) if a is not None and b is not None else a is b


def features_of(method: Method, here: Stream) -> Tensor:
    return torch.cat(
        [method.features(t.test_views.clean(torch.arange(len(t.test_views)))) for _, t in here.tasks]
    )


def outcome_of(method: Method, here: Stream, terms: list[dict[str, float]]) -> Outcome:
    z = features_of(method, here)
    return Outcome(
        terms=terms,
        categories=list(method.categories),
        centroids=method.centroids,
        features=z,
        predictions=method.predict(z),
        assigned=method.assigned(),
        found=method.found,
        tensors={key: value.clone() for key, value in method.state().tensors.items()},
    )


def whole(here: Stream, name: str, seed: int = 0, **options: Any) -> Outcome:
    """A run over all tasks, measured after each; whatever the method says must hang together."""
    method = here.build(name, seed, **options)
    evaluator, terms = Evaluator(), []
    for t, (task, _) in enumerate(here.tasks):
        terms += learn(method, task)
        check_answers(method, task)
        measured = evaluator.after_task(method, here.tasks[: t + 1], QUIET)
        assert len(measured["agnostic"]["all"]) == t + 1
    assert all(math.isfinite(value) for line in terms for value in line.values())
    assert not any(line.keys() & {"task", "epoch", "seconds"} for line in terms)  # metrics.jsonl adds them
    return outcome_of(method, here, terms)


def check_answers(method: Method, task: Task) -> None:
    """Categories, centroids and answers fit each other and the labels of the task just learned."""
    ids = [category.id for category in method.categories]
    assert len(set(ids)) == len(ids) > 0
    if method.centroids is not None:
        assert method.centroids.shape[0] == len(ids)
        assert method.centroids.isfinite().all()
    assigned = method.assigned()
    assert assigned.shape == (len(task),)
    for position, label in zip(assigned.tolist(), task.labels.tolist()):
        assert label < 0 or method.categories[position].label == label
    own = [i for i, category in enumerate(method.categories) if category.task == task.index]
    members = [int((assigned == i).sum()) for i in own]
    assert members == [method.categories[i].size for i in own]
    assert method.found["n_novel"] == sum(method.categories[i].label is None for i in own)
    if task.n_novel is not None:
        assert method.found["n_novel"] == task.n_novel
    z = method.features(task.views.clean(torch.arange(len(task))))
    assert z.isfinite().all()
    answers = method.predict(z)
    assert answers.shape == (len(task),)
    assert 0 <= answers.min() <= answers.max() < len(ids)
    if own:
        assert set(method.predict(z, torch.tensor(own)).tolist()) <= set(own)


@every_case
def test_the_same_seed_gives_the_same_numbers_and_another_does_not(
    opened: Open, name: str, kind: str, labels: str
) -> None:
    here = opened(kind, PLANS[labels])
    first = whole(here, name)
    assert whole(here, name).same_as(first)
    if first.terms:  # else there is no training, and what is left is told by the backbone
        other = whole(here, name, seed=1)
        assert other.terms != first.terms
        assert not torch.equal(other.features, first.features)


def interrupted(
    here: Stream, name: str, folder: Path, at_task: int, at_epoch: int | None, **options: Any
) -> Outcome:
    """A run that stops after `at_epoch` epochs of a task (before it, if None) and goes on from a checkpoint."""
    method, terms = here.build(name, **options), []
    for task, _ in here.tasks[:at_task]:
        terms += learn(method, task)
    task = here.tasks[at_task][0]
    if at_epoch is not None:
        at_epoch = min(at_epoch, method.epochs)
        method.start_task(task, QUIET)
        terms += [method.train_epoch(epoch) for epoch in range(at_epoch)]
    save_checkpoint(folder, method.state(), {"task": at_task, "epoch": at_epoch})
    del method

    saved = load_checkpoint(folder)
    assert saved is not None
    resumed = here.build(name, **options)
    resumed.load(saved[0], task if at_epoch is not None else None, here.tasks[0][0].views)
    for later, _ in here.tasks[at_task:]:
        if later is task and at_epoch is not None:
            terms += [resumed.train_epoch(epoch) for epoch in range(at_epoch, resumed.epochs)]
            resumed.finish_task(QUIET)
        else:
            terms += learn(resumed, later)
    return outcome_of(resumed, here, terms)


@every_case
def test_interrupted_and_resumed_is_undisturbed(
    opened: Open, tmp_path: Path, name: str, kind: str, labels: str
) -> None:
    here = opened(kind, PLANS[labels])
    undisturbed = whole(here, name)
    for at_task, at_epoch in ((0, 0), (0, 1), (1, None), (1, 0), (1, 1), (1, 2)):
        resumed = interrupted(here, name, tmp_path / f"{at_task}-{at_epoch}", at_task, at_epoch)
        assert resumed.same_as(undisturbed), f"stopped after {at_epoch} epochs of task {at_task}"


@pytest.mark.parametrize("name", [name for name, info in METHODS.items() if not info.pixels])
def test_a_block_of_a_vit_is_trained_from_a_bank(opened: Open, tmp_path: Path, name: str) -> None:
    """The paper's tip: its attention is rearranged, and has gradients of its own."""
    here = opened("tokens", PLANS["labelled" if METHODS[name].supervised else "mixed"])
    assert interrupted(here, name, tmp_path, 1, 1).same_as(whole(here, name))


@pytest.mark.parametrize("name", DISCOVERING)
@pytest.mark.parametrize("at_task", [0, 1])
def test_resumed_where_the_number_of_categories_is_estimated(
    opened: Open, tmp_path: Path, name: str, at_task: int
) -> None:
    here = opened("pictures", tell_k=False)
    assert interrupted(here, name, tmp_path, at_task, 1).same_as(whole(here, name))


@every_case
def test_saved_and_loaded_predicts_the_same(
    opened: Open, tmp_path: Path, name: str, kind: str, labels: str
) -> None:
    here = opened(kind, PLANS[labels])
    method = here.build(name)
    for task, _ in here.tasks:
        learn(method, task)
    save_checkpoint(tmp_path, method.state(), {"task": len(here.tasks), "epoch": None})
    saved = load_checkpoint(tmp_path)
    assert saved is not None
    again = here.build(name, seed=7)  # whatever it began with, the checkpoint decides
    again.load(saved[0], None, here.tasks[0][0].views)
    z = features_of(method, here)
    assert torch.equal(features_of(again, here), z)
    assert torch.equal(again.predict(z), method.predict(z))
    assert again.categories == method.categories
    assert _equal(again.centroids, method.centroids)


@discovering
@pytest.mark.parametrize(
    "plans",
    [
        pytest.param([{0: (1, 0), 1: (6, 5), 2: (0, 6)}, {3: (5, 1), 4: (0, 1)}], id="one image in a class"),
        pytest.param([{0: (5, 4), 1: (5, 4)}, {3: (5, 4), 4: (4, 5)}], id="no novel class"),
        pytest.param([{0: (6, 0), 1: (6, 0)}, {3: (6, 0), 4: (6, 0)}], id="no unlabelled image"),
        pytest.param([{0: (0, 8), 1: (0, 8)}, {3: (0, 8), 4: (0, 8)}], id="no labelled image"),
        pytest.param([{0: (5, 4), 2: (0, 8)}, {3: (0, 8), 4: (0, 8)}], id="labels in the first task only"),
        pytest.param([{0: (5, 4), 2: (0, 8)}, {0: (5, 4), 1: (4, 5), 3: (0, 8)}], id="a class comes again"),
        pytest.param([{0: (5, 4), 2: (0, 8)}, {0: (0, 4), 2: (4, 4), 3: (0, 8)}], id="a novel class gets labels"),
        pytest.param([{0: (6, 5), 1: (0, 6)}, {3: (6, 5), 4: (0, 6)}], id="last batch of one picture"),
        pytest.param([{0: (0, 9), 1: (0, 8)}, {3: (0, 9), 4: (0, 8)}], id="last batch of one, no labels"),
        pytest.param([{0: (1, 1)}, {1: (1, 1)}], id="two pictures a task"),
    ],
)  # fmt: skip
def test_unusual_tasks(opened: Open, name: str, kind: str, plans: list[Plan]) -> None:
    check_unusual(opened, name, kind, plans)


@supervised
@pytest.mark.parametrize(
    "plans",
    [
        pytest.param([{0: (1, 0), 1: (6, 0)}, {3: (5, 0), 4: (1, 0)}], id="one image in a class"),
        pytest.param([{0: (9, 0), 1: (8, 0)}, {3: (9, 0), 4: (8, 0)}], id="last batch of one picture"),
        pytest.param([{0: (1, 0), 1: (1, 0)}, {3: (1, 0), 4: (1, 0)}], id="two pictures a task"),
        pytest.param([{0: (6, 0)}, {3: (6, 0)}], id="one class a task"),
        pytest.param([{0: (5, 0), 1: (5, 0)}, {3: (5, 0)}, {4: (5, 0), 5: (5, 0), 6: (5, 0)}], id="unlike tasks"),
    ],
)  # fmt: skip
def test_unusual_tasks_where_every_picture_has_its_label(
    opened: Open, name: str, kind: str, plans: list[Plan]
) -> None:
    check_unusual(opened, name, kind, plans)


def check_unusual(opened: Open, name: str, kind: str, plans: list[Plan]) -> None:
    """A run over `plans` that knows all their digits in the end."""
    outcome = whole(opened(kind, plans), name)
    digits = {digit for plan in plans for digit in plan}
    known = {digit for plan in plans for digit, (labelled, _) in plan.items() if labelled}
    assert len({c.label for c in outcome.categories if c.label is not None}) == len(known)
    assert len(outcome.categories) >= len(digits)


@pytest.mark.parametrize("name", SUPERVISED)
def test_a_picture_without_its_label_is_refused(opened: Open, name: str) -> None:
    here = opened("pictures", [LABELLED[0], {3: (6, 0), 4: (5, 1)}])
    method = here.build(name)
    learn(method, here.tasks[0][0])
    sentence = "needs the label of every picture, and 1 of the 12 in task 2 have none: use --setting cil"
    with pytest.raises(CampError, match=sentence):
        method.start_task(here.tasks[1][0], QUIET)


@pytest.mark.parametrize("name", SUPERVISED)
def test_a_class_is_remembered_by_its_label(opened: Open, name: str) -> None:
    """Nothing is discovered: each class of a task is a category, in the order of the labels."""
    here = opened("pictures", LABELLED)
    method = here.build(name)
    for task, _ in here.tasks:
        learn(method, task)
    assert [(c.id, c.label, c.task, c.size) for c in method.categories] == [
        *((0, 0, 0, 10), (1, 1, 0, 10), (2, 2, 0, 9)),
        *((3, 3, 1, 10), (4, 4, 1, 10), (5, 5, 1, 9)),
    ]


def test_batches_of_one_picture_are_met() -> None:
    """The plans above end in such a batch, whatever `SMALL` says."""
    size = small_settings("camp").training.batch_size
    for plan in ({0: (6, 5), 1: (0, 6)}, {0: (0, 9), 1: (0, 8)}, {0: (9, 0), 1: (8, 0)}):
        assert sum(sum(counts) for counts in plan.values()) % size == 1


@discovering
def test_a_class_keeps_its_category(opened: Open, name: str, kind: str) -> None:
    """Labelled pictures of a class that is known already move its category; they make no second one."""
    here = opened(kind, [{0: (5, 4), 2: (0, 8)}, {0: (6, 4), 1: (4, 5), 3: (0, 8)}])
    method = here.build(name)
    learn(method, here.tasks[0][0])
    before = [(category.id, category.task, category.label) for category in method.categories]
    learn(method, here.tasks[1][0])
    assert [(c.id, c.task, c.label) for c in method.categories[: len(before)]] == before
    labels = [category.label for category in method.categories if category.label is not None]
    assert sorted(labels) == [0, 1]


@discovering
def test_number_of_categories_estimated(opened: Open, name: str, kind: str) -> None:
    here = opened(kind, tell_k=False)
    outcome = whole(here, name)
    assert here.tasks[0][0].n_novel is None
    assert 0 <= outcome.found["n_novel"] <= 3
    assert [k for k, _ in outcome.found["curve"]] == sorted({k for k, _ in outcome.found["curve"]})
    assert all(0 <= score <= 1 for _, score in outcome.found["curve"])


def least_exemplars(name: str) -> int:
    """The fewest exemplars that the method runs with: 0, or 1 if it classifies by them."""
    try:
        small_settings(name, exemplars=0)
    except CampError:
        return 1
    return 0


with_exemplars = pytest.mark.parametrize("name", [name for name in DISCOVERING if takes(name, "exemplars")])


@with_exemplars
def test_exemplars_are_kept_and_restored(opened: Open, tmp_path: Path, name: str) -> None:
    here = opened("pictures")
    views = here.tasks[0][0].views
    for exemplars in (least_exemplars(name), 5):
        method = here.build(name, exemplars=exemplars)
        for t, (task, _) in enumerate(here.tasks):
            learn(method, task)
            kept = method.state().tensors.get("memory.labels", torch.empty(0))
            assert sorted(kept.tolist()) == sorted(list(range(2 * (t + 1))) * exemplars)
        if exemplars:
            tensors = method.state().tensors
            assert len(np.unique(tensors["memory.digests"].numpy(), axis=0)) == len(tensors["memory.labels"])
            own = {
                bytes(d.tolist()) for task, _ in here.tasks for d in task.views.digests()[task.labels >= 0]
            }
            assert {bytes(d.tolist()) for d in tensors["memory.digests"]} <= own
        undisturbed = whole(here, name, exemplars=exemplars)
        resumed = interrupted(here, name, tmp_path / str(exemplars), 1, 1, exemplars=exemplars)
        assert resumed.same_as(undisturbed)
        assert len(views) == 29  # a task is not changed by those who learn from it


@with_exemplars
def test_exemplars_make_a_difference(opened: Open, name: str) -> None:
    here = opened("vectors")
    few = least_exemplars(name)
    with_memory, without = whole(here, name, exemplars=5), whole(here, name, exemplars=few)
    if not few:
        assert with_memory.terms[:2] == without.terms[:2]  # the first task has nothing to replay
    assert with_memory.terms[2:] != without.terms[2:]


@with_exemplars
def test_a_negative_number_of_exemplars_is_refused(name: str) -> None:
    with pytest.raises(CampError, match="can not be negative"):
        small_settings(name, exemplars=-1)


@pytest.mark.parametrize("name", [name for name, info in METHODS.items() if not info.pixels])
def test_no_epochs_is_the_backbone_as_it_is(opened: Open, name: str) -> None:
    here = opened("vectors", PLANS["labelled" if METHODS[name].supervised else "mixed"])
    outcome = whole(here, name, **({"epochs": 0} if takes(name, "epochs") else {}))
    truth = here.tasks[0][1]
    assert outcome.terms == []
    given = truth.test_views.clean(torch.arange(len(truth.test_views)))
    expected = here.build(name).features(given) if name == "camp-plus" else given["vector"]  # it takes roots
    torch.testing.assert_close(outcome.features[: len(expected)], expected)
