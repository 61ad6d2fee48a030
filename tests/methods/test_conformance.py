"""Checks that every registered method must pass; a new method is tested by its line in the registry.

A reference run is made once for each method and stream. It is checked task by task, and saves a checkpoint at the
moments at which a run can be interrupted; tests of resuming continue from these.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
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

from camp.bench.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from camp.bench.evaluation.after_task import Evaluator
from camp.core.errors import CampError
from camp.data.tasks import Task
from camp.discovery.base import DiscoveryResult
from camp.methods.base import Method, MethodState
from camp.methods.registry import METHODS
from camp.nn.backbones.feature_scale import FEATURE_RMS

PLANS = {"mixed": USUAL, "labelled": LABELLED}
DISCOVERING = [name for name, info in METHODS.items() if not info.supervised]
SUPERVISED = [name for name, info in METHODS.items() if info.supervised]
Moment = tuple[int, int | None]
"""A task, and the number of epochs of it that were trained; None is before the task was started."""
ALL_MOMENTS: tuple[Moment, ...] = ((0, 0), (0, 1), (1, None), (1, 0), (1, 1), (1, 2))
INSIDE_TASKS: tuple[Moment, ...] = ((0, 1), (1, 1))


def cases() -> list[tuple[str, str, str]]:
    """Every method on every kind of input, with labels for some images or for all.

    Methods that need all labels get no other stream; those that are compared with them get both.
    """
    mixed = [(name, kind, "mixed") for name in DISCOVERING for kind in kinds_for(name)]
    both = [(name, "images", "labelled") for name in DISCOVERING if METHODS[name].incremental]
    return mixed + both + [(name, kind, "labelled") for name in SUPERVISED for kind in kinds_for(name)]


every_case = pytest.mark.parametrize(("name", "kind", "labels"), cases())


def kind_in_turn(name: str, turn: int) -> str:
    """One of the kinds of input of a method; methods and turns alternate between them."""
    kinds = kinds_for(name)
    return kinds[(list(METHODS).index(name) + turn) % len(kinds)]


@dataclass
class Outcome:
    """All that a method returns and remembers after a run."""

    terms: list[dict[str, float]]
    """Of each epoch."""
    categories: list[Any]
    centroids: Tensor | None
    features: Tensor
    """Of all test images."""
    predictions: Tensor
    assigned: Tensor
    discovery: DiscoveryResult | None
    tensors: dict[str, Tensor]
    """Of its state."""

    def same_as(self, other: "Outcome") -> bool:
        """Whether everything is equal to the last digit."""
        return all(equal(getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self))


def equal(a: Any, b: Any) -> bool:
    """Whether tensors and what contains them are equal to the last digit."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, DiscoveryResult) and isinstance(b, DiscoveryResult):
        return equal(vars(a), vars(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(value, b[key]) for key, value in a.items())
    return bool(a == b)


@dataclass
class Reference:
    """An uninterrupted run over all tasks of a stream."""

    here: Stream
    name: str
    options: dict[str, Any]
    outcome: Outcome
    checkpoints: dict[Moment, Path]
    end: Path
    """The checkpoint after the last task."""

    def state(self, moment: Moment) -> MethodState:
        """The state that was saved at a moment."""
        return loaded(self.checkpoints[moment])

    def resumed(self, moment: Moment) -> Outcome:
        """The outcome of a run that continues from a moment."""
        at_task, at_epoch = moment
        task = self.here.tasks[at_task][0]
        method = self.here.build(self.name, **self.options)
        method.load_state(
            self.state(moment), task if at_epoch is not None else None, self.here.tasks[0][0].views
        )
        terms = self.outcome.terms[: at_task * method.epochs + (at_epoch or 0)]
        for later, _ in self.here.tasks[at_task:]:
            if later is task and at_epoch is not None:
                terms += [method.train_epoch(epoch) for epoch in range(at_epoch, method.epochs)]
                method.finish_task(QUIET)
            else:
                terms += learn(method, later)
        return outcome_of(method, self.here, terms)


def loaded(folder: Path) -> MethodState:
    saved = load_checkpoint(folder)
    assert saved is not None
    return saved.state


@dataclass
class Runs:
    """Streams and reference runs, each made once for all tests."""

    folder: Path
    made: dict[str, Any] = field(default_factory=dict)

    def stream(self, kind: str, plans: Sequence[Plan] = USUAL, tell_k: bool = True) -> Stream:
        """The stream of `plans`; the images of all streams of a kind lie in one bank."""
        key = repr((kind, plans, tell_k))
        if key not in self.made:
            self.made[key] = stream(kind, self.folder, plans, tell_k)
        here: Stream = self.made[key]
        return here

    def reference(
        self,
        name: str,
        kind: str,
        plans: Sequence[Plan] = USUAL,
        tell_k: bool = True,
        moments: Sequence[Moment] = ALL_MOMENTS,
        **options: Any,
    ) -> Reference:
        """The run of a method with its checkpoints at some moments."""
        key = repr((name, kind, plans, tell_k, moments, options))
        if key not in self.made:
            folder = self.folder / f"run-{len(self.made)}"
            self.made[key] = reference_run(self.stream(kind, plans, tell_k), name, folder, moments, options)
        run: Reference = self.made[key]
        return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("streams"))


def reference_run(
    here: Stream, name: str, folder: Path, moments: Sequence[Moment], options: dict[str, Any]
) -> Reference:
    """A run over all tasks, with the answers checked and evaluated after each."""
    method, evaluator, terms = here.build(name, **options), Evaluator(), []
    moments = [(task, None if epoch is None else min(epoch, method.epochs)) for task, epoch in moments]
    checkpoints: dict[Moment, Path] = {}

    def reached(task: int, epoch: int | None) -> None:
        if (task, epoch) in moments:
            checkpoints[task, epoch] = folder / f"{task}-{epoch}"
            save_checkpoint(
                checkpoints[task, epoch], Checkpoint(state=method.state(), task=task, epoch=epoch)
            )

    for t, (task, _) in enumerate(here.tasks):
        reached(t, None)
        method.start_task(task, QUIET)
        reached(t, 0)
        for epoch in range(method.epochs):
            terms.append(method.train_epoch(epoch))
            reached(t, epoch + 1)
        method.finish_task(QUIET)
        check_answers(method, task)
        measured = evaluator.after_task(method, here.tasks[: t + 1], QUIET)
        assert len(measured.rows["agnostic"].all) == t + 1
    assert all(math.isfinite(value) for line in terms for value in line.values())
    assert not any(line.keys() & {"task", "epoch", "seconds"} for line in terms)  # metrics.jsonl adds them
    save_checkpoint(folder / "end", Checkpoint(state=method.state(), task=len(here.tasks), epoch=None))
    return Reference(here, name, options, outcome_of(method, here, terms), checkpoints, folder / "end")


def check_answers(method: Method, task: Task) -> None:
    """Check that categories, centroids and answers fit each other and the labels of the task just learned."""
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
    n_novel = sum(method.categories[i].label is None for i in own)
    assert n_novel == (0 if method.discovery is None else method.discovery.n_novel)
    if task.n_novel is not None:
        assert n_novel == task.n_novel
    z = method.features(task.views.clean(torch.arange(len(task))))
    assert z.isfinite().all()
    answers = method.predict(z)
    assert answers.shape == (len(task),)
    assert 0 <= answers.min() <= answers.max() < len(ids)
    if own:
        assert set(method.predict(z, torch.tensor(own)).tolist()) <= set(own)
    if method.centroids is not None:
        assert torch.equal(method.predict(z, centroids=method.centroids), answers)


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
        discovery=method.discovery,
        tensors={key: value.clone() for key, value in method.state().tensors.items()},
    )


@every_case
def test_the_same_seed_gives_the_same_numbers_and_another_does_not(
    runs: Runs, name: str, kind: str, labels: str
) -> None:
    run = runs.reference(name, kind, PLANS[labels])
    method, terms = run.here.build(name), []
    for task, _ in run.here.tasks:
        terms += learn(method, task)
    assert outcome_of(method, run.here, terms).same_as(run.outcome)
    if terms:  # else nothing is trained, and the seed of the backbone alone matters
        other = run.here.build(name, seed=1)
        others = learn(other, run.here.tasks[0][0])
        assert others != terms[: len(others)]
        tip = run.state((1, None)).tensors
        assert any(not torch.equal(tip[k], v) for k, v in other.state().tensors.items() if k in tip)


@every_case
def test_a_resumed_run_equals_an_uninterrupted_one(runs: Runs, name: str, kind: str, labels: str) -> None:
    run = runs.reference(name, kind, PLANS[labels])
    moments = run.checkpoints if kind == kind_in_turn(name, 0) else INSIDE_TASKS
    for moment in moments:
        if moment in run.checkpoints:
            assert run.resumed(moment).same_as(run.outcome), f"interrupted at {moment}"


@every_case
def test_saved_and_loaded_predicts_the_same(runs: Runs, name: str, kind: str, labels: str) -> None:
    run = runs.reference(name, kind, PLANS[labels])
    again = run.here.build(name, seed=7)  # whatever it began with, the checkpoint decides
    again.load_state(loaded(run.end), None, run.here.tasks[0][0].views)
    z = features_of(again, run.here)
    assert torch.equal(z, run.outcome.features)
    assert torch.equal(again.predict(z), run.outcome.predictions)
    assert again.categories == run.outcome.categories
    assert equal(again.centroids, run.outcome.centroids)


@pytest.mark.parametrize(
    ("name", "kind", "labels"), [case for case in cases() if small_settings(case[0]).after_training()]
)
def test_training_can_be_taken_over_from_another_run(runs: Runs, name: str, kind: str, labels: str) -> None:
    """Where the settings say so, the trained state in place of the epochs leads to the same categories."""
    run = runs.reference(name, kind, PLANS[labels])
    trained, taken = run.here.build(name), run.here.build(name)
    for task, _ in run.here.tasks:
        trained.start_task(task, QUIET)
        for epoch in range(trained.epochs):
            trained.train_epoch(epoch)
        taken.start_task(task, QUIET)
        taken.load_trained_state({k: v.clone() for k, v in trained.trained_state().items()})
        for method in (trained, taken):
            method.finish_task(QUIET)
    assert outcome_of(taken, run.here, run.outcome.terms).same_as(run.outcome)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, info in METHODS.items() if not info.pixels])
def test_a_block_of_a_vit_is_trained_from_a_bank(runs: Runs, name: str) -> None:
    """The paper's tip: its attention is rearranged, and has gradients of its own."""
    plans = PLANS["labelled" if METHODS[name].supervised else "mixed"]
    run = runs.reference(name, "tokens", plans, moments=((1, 1),))
    for moment in run.checkpoints:
        assert run.resumed(moment).same_as(run.outcome)


@pytest.mark.slow
@pytest.mark.parametrize("name", DISCOVERING)
def test_the_number_of_categories_is_estimated_and_resumed(runs: Runs, name: str) -> None:
    run = runs.reference(name, kind_in_turn(name, 0), tell_k=False, moments=INSIDE_TASKS)
    assert run.here.tasks[0][0].n_novel is None
    found = run.outcome.discovery
    assert found is not None
    assert found.estimate is not None
    assert 0 <= found.n_novel <= 3
    assert [k for k, _ in found.estimate.curve] == sorted({k for k, _ in found.estimate.curve})
    assert all(0 <= score <= 1 for _, score in found.estimate.curve)
    for moment in run.checkpoints:
        assert run.resumed(moment).same_as(run.outcome)


UNUSUAL: dict[str, list[Plan]] = {
    "one image in a class": [{0: (1, 0), 1: (6, 5), 2: (0, 6)}, {3: (5, 1), 4: (0, 1)}],
    "no novel class": [{0: (5, 4), 1: (5, 4)}, {3: (5, 4), 4: (4, 5)}],
    "no unlabelled image": [{0: (6, 0), 1: (6, 0)}, {3: (6, 0), 4: (6, 0)}],
    "no labelled image": [{0: (0, 8), 1: (0, 8)}, {3: (0, 8), 4: (0, 8)}],
    "labels in the first task only": [{0: (5, 4), 2: (0, 8)}, {3: (0, 8), 4: (0, 8)}],
    "a class of an earlier task": [{0: (5, 4), 2: (0, 8)}, {0: (6, 4), 1: (4, 5), 3: (0, 8)}],
    "a novel class gets labels": [{0: (5, 4), 2: (0, 8)}, {0: (0, 4), 2: (4, 4), 3: (0, 8)}],
    "last batch of one image": [{0: (6, 5), 1: (0, 6)}, {3: (6, 5), 4: (0, 6)}],
    "last batch of one, no labels": [{0: (0, 9), 1: (0, 8)}, {3: (0, 9), 4: (0, 8)}],
    "two images a task": [{0: (1, 1)}, {1: (1, 1)}],
}
UNUSUAL_LABELLED: dict[str, list[Plan]] = {
    "one image in a class": [{0: (1, 0), 1: (6, 0)}, {3: (5, 0), 4: (1, 0)}],
    "last batch of one image": [{0: (9, 0), 1: (8, 0)}, {3: (9, 0), 4: (8, 0)}],
    "two images a task": [{0: (1, 0), 1: (1, 0)}, {3: (1, 0), 4: (1, 0)}],
    "one class a task": [{0: (6, 0)}, {3: (6, 0)}],
    "tasks of other sizes": [
        {0: (5, 0), 1: (5, 0)},
        {3: (5, 0)},
        {4: (5, 0), 5: (5, 0), 6: (5, 0)},
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DISCOVERING)
@pytest.mark.parametrize("case", UNUSUAL)
def test_unusual_tasks(runs: Runs, name: str, case: str) -> None:
    check_unusual(runs, name, kind_in_turn(name, list(UNUSUAL).index(case)), UNUSUAL[case])


@pytest.mark.slow
@pytest.mark.parametrize("name", SUPERVISED)
@pytest.mark.parametrize("case", UNUSUAL_LABELLED)
def test_unusual_tasks_where_every_image_is_labelled(runs: Runs, name: str, case: str) -> None:
    kind = kind_in_turn(name, list(UNUSUAL_LABELLED).index(case))
    check_unusual(runs, name, kind, UNUSUAL_LABELLED[case])


def check_unusual(runs: Runs, name: str, kind: str, plans: list[Plan]) -> None:
    """Check that a run over `plans` knows all their digits in the end."""
    outcome = runs.reference(name, kind, plans, moments=()).outcome
    digits = {digit for plan in plans for digit in plan}
    known = {digit for plan in plans for digit, (labelled, _) in plan.items() if labelled}
    assert len({c.label for c in outcome.categories if c.label is not None}) == len(known)
    assert len(outcome.categories) >= len(digits)


@pytest.mark.parametrize("name", DISCOVERING)
def test_a_class_keeps_its_category(runs: Runs, name: str) -> None:
    """Labelled images of a class that is known already move its category; they make no second one."""
    case = "a class of an earlier task"
    kind = kind_in_turn(name, list(UNUSUAL).index(case))
    run = runs.reference(name, kind, UNUSUAL[case], moments=())
    first, second = ([(c.id, c.label) for c in run.outcome.categories if c.task == task] for task in (0, 1))
    assert first == [(0, 0), (1, None)]
    assert second == [(2, 1), (3, None)]


def test_batches_of_one_image_occur() -> None:
    """The plans above end in such a batch, whatever `SMALL` says."""
    size = small_settings("camp").training.batch_size
    for plan in ({0: (6, 5), 1: (0, 6)}, {0: (0, 9), 1: (0, 8)}, {0: (9, 0), 1: (8, 0)}):
        assert sum(sum(counts) for counts in plan.values()) % size == 1


@pytest.mark.parametrize("name", SUPERVISED)
def test_an_image_without_a_label_is_refused(runs: Runs, name: str) -> None:
    here = runs.stream("images", [LABELLED[0], {3: (6, 0), 4: (5, 1)}])
    method = here.build(name)
    sentence = "needs the label of every image, and 1 of the 12 in task 2 have none: use --setting cil"
    with pytest.raises(CampError, match=sentence):
        method.start_task(here.tasks[1][0], QUIET)


@pytest.mark.parametrize("name", SUPERVISED)
def test_a_class_is_remembered_by_its_label(runs: Runs, name: str) -> None:
    """Nothing is discovered: each class of a task is a category, in the order of the labels."""
    categories = runs.reference(name, "images", LABELLED).outcome.categories
    assert [(c.id, c.label, c.task, c.size) for c in categories] == [
        *((0, 0, 0, 10), (1, 1, 0, 10), (2, 2, 0, 9)),
        *((3, 3, 1, 10), (4, 4, 1, 10), (5, 5, 1, 9)),
    ]


def least_exemplars(name: str) -> int:
    """The fewest exemplars that the method runs with: 0, or 1 if it classifies by them."""
    try:
        small_settings(name, exemplars=0)
    except CampError:
        return 1
    return 0


with_exemplars = pytest.mark.parametrize("name", [name for name in DISCOVERING if takes(name, "exemplars")])


def exemplar_run(runs: Runs, name: str, exemplars: int) -> Reference:
    kind = kind_in_turn(name, 1)
    return runs.reference(name, kind, moments=((1, None), (1, 1)), exemplars=exemplars)


@with_exemplars
def test_exemplars_are_kept_and_restored(runs: Runs, name: str) -> None:
    for exemplars in (least_exemplars(name), 5):
        run = exemplar_run(runs, name, exemplars)
        states = run.state((1, None)).tensors, run.outcome.tensors
        for t, tensors in enumerate(states):
            kept = tensors.get("exemplars.labels", torch.empty(0))
            assert sorted(kept.tolist()) == sorted(list(range(2 * (t + 1))) * exemplars)
        if exemplars:
            digests = run.outcome.tensors["exemplars.digests"]
            assert len(np.unique(digests.numpy(), axis=0)) == len(digests)
            tasks = [task for task, _ in run.here.tasks]
            labelled = {bytes(d.tolist()) for task in tasks for d in task.views.digests()[task.labels >= 0]}
            assert {bytes(d.tolist()) for d in digests} <= labelled
        assert run.resumed((1, 1)).same_as(run.outcome)
        assert len(run.here.tasks[0][0].views) == 29  # learning from a task does not change it


@with_exemplars
def test_exemplars_make_a_difference(runs: Runs, name: str) -> None:
    few = least_exemplars(name)
    replayed, without = (exemplar_run(runs, name, count).outcome.terms for count in (5, few))
    if not few:
        assert replayed[:2] == without[:2]  # the first task has nothing to replay
    assert replayed[2:] != without[2:]


@with_exemplars
def test_a_negative_number_of_exemplars_is_refused(name: str) -> None:
    with pytest.raises(CampError, match="cannot be negative"):
        small_settings(name, exemplars=-1)


@pytest.mark.parametrize("name", [name for name, info in METHODS.items() if not info.pixels])
def test_without_epochs_features_are_those_of_the_backbone(runs: Runs, name: str) -> None:
    plans = PLANS["labelled" if METHODS[name].supervised else "mixed"]
    options = {"epochs": 0} if takes(name, "epochs") else {}
    run = runs.reference(name, "vectors", plans, moments=(), **options)
    truth = run.here.tasks[0][1]
    assert run.outcome.terms == []
    given = truth.test_views.clean(torch.arange(len(truth.test_views)))
    transformed = name == "camp-plus"  # its features are transformed
    expected = run.here.build(name).features(given) if transformed else FEATURE_RMS * given["vector"]
    torch.testing.assert_close(run.outcome.features[: len(expected)], expected)
