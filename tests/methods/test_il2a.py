"""IL2A: outputs of mixed classes, which are removed after a task, and old classes with their spread."""

import math
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from small_streams import QUIET, Stream, learn, stream
from torch import Tensor

from camp.core.errors import CampError
from camp.core.seeds import generator
from camp.methods.cil.base import ClassRange, IncrementalMethod
from camp.methods.cil.il2a import Il2aObjective
from camp.methods.cil.prototypes import ClassPrototypes, PrototypeMemory
from camp.methods.cil.settings import Il2aSettings
from camp.nn.losses import semantic_augmentation

DIM = 3
PLANS = [{0: (8, 0), 1: (8, 0), 2: (8, 0)}, {3: (8, 0), 4: (8, 0)}, {5: (9, 0)}]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return stream("images", tmp_path_factory.mktemp("il2a"), PLANS)


def objective(known: int, old: ClassPrototypes | None = None, mixtures: int = 4) -> Il2aObjective:
    count = 0 if old is None else len(old)
    return Il2aObjective(
        ClassRange(DIM, count, known), generator(0), Il2aSettings(mixtures=mixtures), old
    ).double()


def old_prototypes() -> ClassPrototypes:
    means, roots = torch.randn(2, 4, DIM, generator=generator(1)).double().split([1, 3], dim=1)
    return ClassPrototypes(means[:, 0], torch.tensor(0.7), roots @ roots.transpose(1, 2))


def test_each_pair_of_the_tasks_classes_is_a_class_of_its_own() -> None:
    made = objective(known=6, old=old_prototypes())  # classes 2 .. 5 are new
    assert made.classifier.weight.shape == (6 + 6, DIM)
    targets = {}
    for a, b in combinations(range(2, 6), 2):
        both = made.targets(torch.tensor([a, b]), torch.tensor([[1], [0]]))
        assert both[0].tolist() == [a, b]
        assert both[1, 0] == both[1, 1]
        targets[a, b] = int(both[1, 0])
    assert sorted(targets.values()) == list(range(6, 12))


def test_a_mixture_without_a_class_is_marked() -> None:
    made = objective(known=4, old=old_prototypes())
    labels = torch.tensor([2, 2, 3, 3])
    partners = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1]]).T
    assert made.targets(labels, partners).tolist() == [
        [2, 2, 3, 3],
        [-1, -1, -1, -1],
        [-1, -1, -1, -1],
        [4, 4, 4, 4],
    ]


def test_partners_and_shares_are_drawn_for_the_whole_step() -> None:
    made, labels = objective(known=3), torch.zeros(500, dtype=torch.long)
    plan = made.plan(labels, generator(5))
    assert plan["partners"].shape == plan["shares"].shape == (500, 4)
    assert all(sorted(column.tolist()) == list(range(500)) for column in plan["partners"].T)
    shares = plan["shares"]
    assert 0.4 <= shares.min() < 0.42
    assert 0.58 < shares.max() <= 0.6
    # Beta(20, 20) lies within 0.4 .. 0.6 with a probability of 0.796; the rest is exactly one half.
    assert shares.eq(0.5).float().mean().item() == pytest.approx(0.204, abs=0.04)
    again = made.plan(labels, generator(5))
    assert all(torch.equal(again[key], plan[key]) for key in plan)


def test_mixtures_are_of_the_views_of_both_images_however_the_step_is_shared(here: Stream) -> None:
    views, made = here.tasks[0][0].views, objective(known=3, mixtures=2)
    rows = torch.tensor([3, 0, 9, 5, 7])
    ids = views.draw(rows, 1, generator(0))
    plan = made.plan(torch.zeros(5), generator(1))
    x = views.augmented(rows, ids)["pixels"]
    for mine in (slice(0, 5), slice(0, 2), slice(2, 5), slice(2, 2)):
        seen = made.look(views, rows, ids, plan, mine)["pixels"].unflatten(0, (3, mine.stop - mine.start))
        assert torch.equal(seen[0], x[mine])
        for m in range(2):
            for at, i in enumerate(range(5)[mine]):
                share, partner = plan["shares"][i, m], plan["partners"][i, m]
                expected = share * x[i] + (1 - share) * x[partner]
                torch.testing.assert_close(seen[1 + m, at], expected, atol=1e-6, rtol=1e-6)


def negative_log_share(made: Il2aObjective, z: Tensor, output: int) -> float:
    logits = (made.classifier.weight.detach() @ z + made.classifier.bias.detach()).div(0.1).tolist()
    return math.log(sum(math.exp(logit - logits[output]) for logit in logits))


def test_the_loss_leaves_out_mixtures_without_a_class() -> None:
    old = old_prototypes()
    made = objective(known=5, old=old, mixtures=2)
    z, z_old = torch.randn(2, 3, 4, DIM, generator=generator(2), dtype=torch.float64)
    labels, partners = torch.tensor([2, 4, 2, 3]), torch.tensor([[2, 1, 0, 3], [1, 0, 3, 2]]).T
    # Classes 2, 3, 4 are new; the pairs 2+3, 2+4, 3+4 are the outputs 5, 6, 7. Partners of the first row are
    # all of the same class.
    expected = {(0, i): int(y) for i, y in enumerate(labels)} | {(2, 0): 6, (2, 1): 6, (2, 2): 5, (2, 3): 5}
    terms = made(z, labels, {"partners": partners}, z_old)
    ce = sum(negative_log_share(made, z[at], output) for at, output in expected.items()) / len(expected)
    fd = math.sqrt(sum(float((z[at] - z_old[at]).square().sum()) for at in expected))
    assert old.covariances is not None
    weight, bias = made.classifier.weight[:5], made.classifier.bias[:5]
    prototype = semantic_augmentation(
        old.means, old.covariances, torch.tensor([0, 1]), weight, bias, strength=2.5, temperature=0.1
    ).item()
    assert terms["ce"].item() == pytest.approx(ce, rel=1e-9)
    assert terms["fd"].item() == pytest.approx(fd, rel=1e-9)
    assert terms["prototype"].item() == pytest.approx(prototype, rel=1e-9)
    assert terms["loss"].item() == pytest.approx(ce + 10 * fd + 10 * prototype, rel=1e-9)


def learned(here: Stream, tasks: int, **options: Any) -> tuple[IncrementalMethod, list[dict[str, float]]]:
    method, terms = here.build("il2a", **options), []
    assert isinstance(method, IncrementalMethod)
    for task, _ in here.tasks[:tasks]:
        terms += learn(method, task)
    return method, terms


def test_outputs_of_pairs_are_removed_after_the_task(here: Stream) -> None:
    method = here.build("il2a")
    assert isinstance(method, IncrementalMethod)
    for (task, _), known, pairs in zip(here.tasks, (3, 5, 6), (3, 1, 0)):
        before = method.heads.get("classifier.weight", torch.empty(0, method.dim))
        method.start_task(task, QUIET)
        rows = method._current_run().trainer.step.objective.get_parameter("classifier.weight")
        assert len(rows) == known + pairs
        assert torch.equal(rows[: len(before)], before)  # rows of old classes go on
        method.train_epoch(0)
        method.finish_task(QUIET)
        assert {name: len(value) for name, value in method.heads.items()} == {
            "classifier.weight": known,
            "classifier.bias": known,
        }


def test_old_prototypes_enter_from_the_second_task_on(here: Stream) -> None:
    method, terms = learned(here, 3)
    assert [sorted(line) for line in terms[:2]] == [["ce", "loss"]] * 2
    assert [sorted(line) for line in terms[2:]] == [["ce", "fd", "loss", "prototype"]] * 4
    *_, memory = method.callbacks
    assert isinstance(memory, PrototypeMemory)
    assert memory.prototypes.covariances.shape == (6, method.dim, method.dim)
    _, other = learned(here, 2, semantic_strength=0.0)
    assert other[:2] == terms[:2]
    assert other[2:] != terms[2:4]


def test_impossible_settings_and_networks_are_refused(tmp_path: Path) -> None:
    for options in ({"mixtures": 0}, {"semantic_strength": -1.0}):
        with pytest.raises(CampError, match="IL2A needs"):
            Il2aSettings(**options)
    with pytest.raises(CampError, match="IL2A works on images"):
        stream("vectors", tmp_path, PLANS).build("il2a")
