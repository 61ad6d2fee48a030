"""What is SimGCD's own: prototypes that last and grow, a row a category, classes that keep theirs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_streams import QUIET, USUAL, Stream, stream

from camp.core.errors import CampError
from camp.data.tasks import Task
from camp.methods.gccd.settings import SimgcdSettings
from camp.methods.gccd.simgcd import GrowingObjective, Simgcd, SimgcdObjective


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streams")


def learn(method: Any, task: Task, epochs: int) -> None:
    method.start_task(task, QUIET)
    for epoch in range(epochs):
        method.train_epoch(epoch)
    method.finish_task(QUIET)


def prototypes(method: Any) -> torch.Tensor:
    """Between tasks."""
    return method.state().tensors["heads.prototypes.weight"]


def in_task(method: Any) -> torch.Tensor:
    return method.state().tensors["trainer.objective.prototypes.weight"]


def test_prototypes_are_persistent_and_grow(folder: Path) -> None:
    here = stream("vectors", folder)
    method = here.build("simgcd")
    learn(method, here.tasks[0][0], 2)
    before = prototypes(method).clone()
    assert before.shape == (3, 64)
    assert [c.label for c in method.categories] == [0, 1, None]
    method.start_task(here.tasks[1][0], QUIET)
    assert in_task(method).shape == (6, 64)
    assert torch.equal(in_task(method)[:3], before)
    projector = method.state().tensors["heads.projector.0.weight"]
    assert torch.equal(method.state().tensors["trainer.objective.projector.0.weight"], projector)


def test_the_prediction_is_the_largest_cosine(folder: Path) -> None:
    here = stream("vectors", folder)
    method = here.build("simgcd")
    for task, _ in here.tasks:
        learn(method, task, 2)
    z = method.features(here.tasks[0][0].views.clean(torch.arange(20)))
    for x, answer, among in zip(z, method.predict(z), method.predict(z, torch.tensor([5, 2]))):
        cosines = [float(x @ w / x.norm() / w.norm()) for w in prototypes(method)]
        assert answer == max(range(6), key=lambda k: cosines[k])
        assert among == max((5, 2), key=lambda k: cosines[k])


def test_a_class_of_an_earlier_task_trains_its_row(folder: Path) -> None:
    """Its labels lead to row 0; the new label 1 and the novel category come behind what there was."""
    here = stream("vectors", folder, [{0: (5, 4), 2: (0, 8)}, {0: (6, 4), 1: (4, 5), 3: (0, 8)}])
    method = here.build("simgcd")
    learn(method, here.tasks[0][0], 2)
    task = here.tasks[1][0]
    method.start_task(task, QUIET)
    assert isinstance(method, Simgcd)
    training = method._current_run().trainer.data
    expected = {-1: -1, 0: 0, 1: 2}
    assert training.labels.tolist() == [expected[label] for label in task.labels.tolist()]
    assert in_task(method).shape[0] == 4
    for epoch in range(2):
        method.train_epoch(epoch)
    method.finish_task(QUIET)
    assert [c.label for c in method.categories] == [0, None, 1, None]
    assert [c.task for c in method.categories] == [0, 0, 1, 1]


def test_unlabelled_images_go_to_categories_of_their_task(folder: Path) -> None:
    here = stream("vectors", folder)
    method = here.build("simgcd")
    for task, _ in here.tasks:
        learn(method, task, 2)
    task = here.tasks[1][0]
    z = method.features(task.views.clean(torch.arange(len(task))))
    best = method.predict(z, torch.tensor([3, 4, 5]))
    free = task.labels < 0
    assert torch.equal(method.assigned()[free], best[free])


def test_the_number_of_prototypes_is_estimated_before_training(folder: Path) -> None:
    here = stream("vectors", folder, tell_k=False)
    method = here.build("simgcd")
    task = here.tasks[0][0]
    method.start_task(task, QUIET)
    rows = len(in_task(method))
    for epoch in range(2):
        method.train_epoch(epoch)
    method.finish_task(QUIET)
    assert method.discovery.n_novel == rows - 2 == len(method.categories) - 2
    assert max(method.discovery.estimate.curve, key=lambda point: (point[1], -point[0]))[0] == rows


@pytest.mark.parametrize("among", ["task", "all"])
def test_which_prototypes_are_trained(folder: Path, among: str) -> None:
    """Of the second task's, those of rows 3 to 5 alone, or those of the first task as well."""
    here = stream("vectors", folder)
    method = here.build("simgcd", prototypes=among)
    learn(method, here.tasks[0][0], 2)
    old = prototypes(method).clone()
    learn(method, here.tasks[1][0], 2)
    assert torch.equal(prototypes(method)[:3], old) == (among == "task")


def test_losses_over_some_prototypes_are_those_of_a_smaller_head() -> None:
    settings, draw = SimgcdSettings(projector_width=8), torch.Generator().manual_seed(3)
    z, rows = torch.randn(2, 7, 6, generator=draw), torch.tensor([1, 3, 4])
    some = GrowingObjective(settings, 6, 5, rows, torch.Generator().manual_seed(0))
    small = SimgcdObjective(settings, 6, 3, torch.Generator().manual_seed(1))
    small.load_state_dict({**some.state_dict(), "prototypes.weight": some.prototypes.weight[rows]})
    found, expected = (
        objective(z, 4, torch.tensor(labels), 1)
        for objective, labels in ((some, [3, 1, 4]), (small, [1, 0, 2]))
    )
    assert {k: v.item() for k, v in found.items()} == pytest.approx(
        {k: v.item() for k, v in expected.items()}
    )
    found["loss"].backward()
    assert some.prototypes.weight.grad is not None
    assert some.prototypes.weight.grad.abs().sum(1).gt(0).tolist() == [False, True, False, True, True]


def test_it_learns_digits(folder: Path) -> None:
    plan = {0: (20, 20), 1: (20, 20), 2: (0, 30)}
    here: Stream = stream("vectors", folder, [plan])
    method = here.build("simgcd", epochs=30, batch_size=32)
    task = here.tasks[0][0]
    learn(method, task, 30)
    truth = torch.from_numpy(here.tasks[0][1].train_classes)
    right = [(method.assigned()[truth == c] == c).float().mean().item() for c in range(3)]
    assert min(right) > 0.7  # by chance a third


def test_a_task_with_nothing_to_find_is_refused(folder: Path) -> None:
    here = stream("vectors", folder, [USUAL[0], {0: (0, 4), 1: (0, 4)}])
    method = here.build("simgcd")
    learn(method, here.tasks[0][0], 1)
    with pytest.raises(CampError, match="nothing to find"):
        method.start_task(here.tasks[1][0], QUIET)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(CampError, match="beta"):
        SimgcdSettings(beta=1.5)
    with pytest.raises(CampError, match="supcon_temperature"):
        SimgcdSettings(supcon_temperature=0)
