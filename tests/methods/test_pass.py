"""PASS: labels of turned images, and old prototypes with noise."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small_streams import Stream, learn, stream
from torch import Tensor

from camp.core.errors import CampError
from camp.core.seeds import generator
from camp.methods.cil.base import ClassRange, IncrementalMethod
from camp.methods.cil.pass_ import PassObjective
from camp.methods.cil.prototypes import ClassPrototypes, PrototypeMemory
from camp.methods.cil.settings import PassSettings
from camp.methods.trainer import Plan

DIM = 3
PLANS = [{0: (8, 0), 1: (8, 0)}, {2: (8, 0), 3: (8, 0)}, {4: (9, 0)}]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return stream("images", tmp_path_factory.mktemp("pass"), PLANS)


def objective(old: ClassPrototypes | None) -> PassObjective:
    """Of a task that brings the third class, or all three."""
    count = 0 if old is None else len(old)
    return PassObjective(ClassRange(DIM, count, 3), generator(0), PassSettings(), old).double()


def old_prototypes() -> ClassPrototypes:
    means = torch.randn(2, DIM, generator=generator(1)).double()
    return ClassPrototypes(means, torch.tensor(0.7, dtype=torch.float64))


def step(old: ClassPrototypes | None) -> tuple[PassObjective, Tensor, Tensor, Plan, Tensor | None]:
    """An objective and the rest of what a step of four images gives it."""
    made = objective(old)
    z, z_old = torch.randn(2, 4, 4, DIM, generator=generator(2), dtype=torch.float64)
    labels = torch.tensor([0, 2, 1, 2] if old is None else [2] * 4)
    plan = made.plan(labels, generator(3))
    return (
        made,
        z,
        labels,
        {k: v.double() if v.is_floating_point() else v for k, v in plan.items()},
        (None if old is None else z_old),
    )


def negative_log_share(made: PassObjective, z: Tensor, output: int) -> float:
    """-log softmax(logits / 0.1) of one feature, by hand."""
    logits = (made.classifier.weight.detach() @ z + made.classifier.bias.detach()).div(0.1).tolist()
    return math.log(sum(math.exp(logit - logits[output]) for logit in logits))


def test_the_first_task_classifies_classes_and_rotations() -> None:
    made, z, labels, plan, _ = step(None)
    assert plan == {}
    assert made.classifier.weight.shape == (12, DIM)
    terms = made(z, labels, plan, None)
    shares = [
        negative_log_share(made, z[turn, i], 4 * int(labels[i]) + turn) for turn in range(4) for i in range(4)
    ]
    assert terms["loss"].item() == pytest.approx(sum(shares) / 16, rel=1e-9)


def test_later_tasks_add_distance_and_old_prototypes() -> None:
    old = old_prototypes()
    made, z, labels, plan, z_old = step(old)
    assert z_old is not None
    assert plan["noise"].shape == (4, DIM)
    assert plan["classes"].max() < 2
    terms = made(z, labels, plan, z_old)
    ce = sum(negative_log_share(made, z[turn, i], 8 + turn) for turn in range(4) for i in range(4)) / 16
    fd = math.sqrt(sum(float(d) ** 2 for d in (z - z_old).flatten()))
    prototype = 0.0
    for y, noise in zip(plan["classes"].tolist(), plan["noise"]):
        prototype += negative_log_share(made, old.means[y] + 0.7 * noise, 4 * y) / 4
    assert terms["ce"].item() == pytest.approx(ce, rel=1e-9)
    assert terms["fd"].item() == pytest.approx(fd, rel=1e-9)
    assert terms["prototype"].item() == pytest.approx(prototype, rel=1e-9)
    assert terms["loss"].item() == pytest.approx(ce + 10 * fd + 10 * prototype, rel=1e-9)


def test_features_that_did_not_move_have_a_gradient() -> None:
    """The norm has a corner at 0, where a task begins when the network has no batch norm."""
    made, z, labels, plan, _ = step(old_prototypes())
    z.requires_grad_()
    made(z, labels, plan, z.detach())["loss"].backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_a_process_sees_the_rotations_of_its_own_views(here: Stream) -> None:
    views, made = here.tasks[0][0].views, objective(None)
    rows = torch.tensor([3, 0, 9, 5, 7])
    ids = views.draw(rows, 1, generator(0))
    plain = views.augmented(rows, ids)["pixels"]
    for mine in (slice(0, 5), slice(0, 2), slice(2, 5), slice(2, 2)):
        seen = made.look(views, rows, ids, {}, mine)["pixels"].unflatten(0, (4, mine.stop - mine.start))
        for turns in range(4):
            assert torch.equal(seen[turns], torch.rot90(plain[mine], turns, (2, 3)))


def prototypes_of(method: IncrementalMethod) -> ClassPrototypes:
    [memory] = method.callbacks
    assert isinstance(memory, PrototypeMemory)
    assert memory.prototypes is not None
    return memory.prototypes


def learned(here: Stream, tasks: int, **options: Any) -> tuple[IncrementalMethod, list[dict[str, float]]]:
    method, terms = here.build("pass", **options), []
    assert isinstance(method, IncrementalMethod)
    for task, _ in here.tasks[:tasks]:
        terms += learn(method, task)
    return method, terms


def test_old_prototypes_enter_from_the_second_task_on(here: Stream) -> None:
    method, terms = learned(here, 3)
    assert [sorted(line) for line in terms[:2]] == [["ce", "loss"]] * 2
    assert [sorted(line) for line in terms[2:]] == [["ce", "fd", "loss", "prototype"]] * 4
    assert len(prototypes_of(method)) == 5
    _, without = learned(here, 2, prototype_weight=0.0)
    assert without[:2] == terms[:2]
    assert without[2:] != terms[2:4]


def test_prototypes_are_the_means_of_the_task_they_came_with(here: Stream) -> None:
    method, _ = learned(here, 1)
    task = here.tasks[0][0]
    z = method.features(task.views.clean(torch.arange(len(task))))
    first = prototypes_of(method)
    for label in (0, 1):
        torch.testing.assert_close(first.means[label], z[task.labels == label].mean(dim=0))
    later = prototypes_of(learned(here, 3)[0])
    assert torch.equal(later.means[:2], first.means)
    assert later.radius == first.radius


def test_images_are_classified_by_the_outputs_without_rotation(here: Stream) -> None:
    method, _ = learned(here, 2)
    weight, bias = method.heads["classifier.weight"], method.heads["classifier.bias"]
    assert weight.shape == (16, method.dim)
    z = torch.randn(50, method.dim, generator=generator(0))
    answers = [int((weight[::4] @ x + bias[::4]).argmax()) for x in z]
    assert method.predict(z).tolist() == answers


def test_vectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CampError, match="PASS works on images"):
        stream("vectors", tmp_path, PLANS).build("pass")
