"""What is IGCD's own: its loss against loops over the equation, the support set, replay of all categories."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_streams import QUIET, stream

from camp.core.errors import CampError
from camp.data.tasks import Task
from camp.discovery.density import density
from camp.methods.gccd.igcd import Igcd, IgcdObjective
from camp.methods.gccd.settings import IgcdSettings
from camp.methods.gccd.simgcd import SimgcdObjective
from camp.methods.settings import Training
from camp.methods.trainer import clean_features
from camp.nn.losses import teacher_temperature

DIM, OWN = 6, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streams")


def learn(method: Any, task: Task, epochs: int = 2) -> None:
    method.start_task(task, QUIET)
    for epoch in range(epochs):
        method.train_epoch(epoch)
    method.finish_task(QUIET)


def digests(views: Any) -> list[bytes]:
    return [bytes(row.tolist()) for row in views.digests()]


def slow_snn(
    z: torch.Tensor, support: torch.Tensor, rows: list[int], labels: list[int], tau_t: float, s: IgcdSettings
) -> float:
    """L_SNN of features z (2, B, D), one view and one neighbour at a time."""
    names = sorted(set(rows))

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(p * q for p, q in zip(a, b)) / math.hypot(*a) / math.hypot(*b)

    def p(x: list[float]) -> list[float]:
        weights = [math.exp(cosine(x, n) / s.snn_temperature) for n in support.tolist()]
        return [sum(w for w, row in zip(weights, rows) if row == k) / sum(weights) for k in names]

    def sharp(values: list[float]) -> list[float]:
        powers = [v ** (0.1 / tau_t) for v in values]
        return [v / sum(powers) for v in powers]

    views = [[p(x) for x in view] for view in z.tolist()]
    images = z.shape[1]
    pseudo = 0.0
    for i in range(images):
        for teacher, student in ((0, 1), (1, 0)):
            q = sharp(views[teacher][i])
            pseudo -= sum(a * math.log(b) for a, b in zip(q, views[student][i])) / (2 * images)
    mean = [
        sum(view[i][k] for view in views for i in range(images)) / (2 * images) for k in range(len(names))
    ]
    entropy = math.log(len(names)) + sum(v * math.log(v) for v in mean)
    ce = 0.0
    for view in views:
        for i, label in enumerate(labels):
            ce -= math.log(view[OWN + i][names.index(label)]) / (2 * len(labels))
    return (1 - s.beta) * (pseudo + s.entropy_weight * entropy) + s.beta * ce


@pytest.mark.parametrize("epoch", [0, 2, 7])
def test_the_loss_is_its_equation(epoch: int) -> None:
    s = IgcdSettings(projector_width=8, training=Training(epochs=10), rampup=0.5)
    draw = torch.Generator().manual_seed(1)
    z = torch.randn(2, OWN + 4, DIM, generator=draw, dtype=torch.float64)
    support = torch.randn(8, DIM, generator=draw, dtype=torch.float64)
    rows, labels = [0, 0, 2, 5, 2, 5, 3, 3], [2, 5, 5, 3]  # rows 1 and 4 have no image in the support set
    objective = IgcdObjective(s, DIM, 6, torch.Generator().manual_seed(0)).double()
    plain = SimgcdObjective(s, DIM, 6, torch.Generator().manual_seed(0)).double()
    objective.set_support(support, torch.tensor(rows))
    loss = objective(z, OWN, torch.tensor(labels), epoch)["loss"].item()
    simgcd = plain(z, OWN, torch.tensor(labels), epoch)["loss"].item()
    weight = 0.2 * (math.exp(-5 * (1 - epoch / 5) ** 2) if epoch < 5 else 1)
    snn = slow_snn(z, support, rows, labels, teacher_temperature(epoch), s)
    assert loss == pytest.approx(simgcd + weight * snn, rel=1e-9)


def test_the_support_set_is_the_densest_images_of_each_category(folder: Path) -> None:
    here = stream("vectors", folder)
    method = here.build("igcd", exemplars=3, neighbours=4)
    assert isinstance(method, Igcd)
    task = here.tasks[0][0]
    learn(method, task)
    assert method.exemplars.labels is not None
    assert method.discovered.labels is not None
    assert method.exemplars.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert method.discovered.labels.tolist() == [2, 2, 2]
    around = density(clean_features(method.tip, task.views, QUIET), 4)
    names = digests(task.views)
    for memory, members in (
        (method.exemplars, [(task.labels == label).nonzero()[:, 0].tolist() for label in (0, 1)]),
        (method.discovered, [(method.assigned() == 2).nonzero()[:, 0].tolist()]),
    ):
        expected = []
        for rows in members:
            rows.sort(key=lambda i: (not around.peaks[i], -float(around.values[i])))
            expected += [names[i] for i in rows[:3]]
        assert digests(memory.views) == expected


def test_discovered_categories_contain_unlabelled_images_only(folder: Path) -> None:
    here = stream("images", folder)
    method = here.build("igcd", exemplars=5)
    for task, _ in here.tasks:
        learn(method, task)
    assert isinstance(method, Igcd)
    assert method.discovered.labels is not None
    assert set(method.discovered.labels.tolist()) == {2, 5}
    free = {
        d for task, _ in here.tasks for d in digests(task.views.subset((task.labels < 0).nonzero()[:, 0]))
    }
    assert set(digests(method.discovered.views)) <= free


def test_known_and_discovered_categories_are_replayed(folder: Path) -> None:
    """Behind the task's own images come those of the support set, with the rows of their categories."""
    here = stream("vectors", folder, [{0: (5, 4), 2: (0, 8)}, {0: (5, 4), 1: (4, 5), 3: (0, 8)}])
    method = here.build("igcd", exemplars=2)
    assert isinstance(method, Igcd)
    learn(method, here.tasks[0][0])
    task = here.tasks[1][0]
    method.start_task(task, QUIET)
    training = method._current_run().trainer.data
    assert training.num_task_images == len(task)
    assert sorted(training.labels[len(task) :].tolist()) == [0, 0, 1, 1]
    expected = {-1: -1, 0: 0, 1: 2}
    assert training.labels[: len(task)].tolist() == [expected[label] for label in task.labels.tolist()]
    views, rows = method.support
    assert sorted(rows.tolist()) == [
        0,
        0,
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]  # the provisional choice, and what was kept
    assert len(views) == len(rows)


def test_the_support_set_moves_with_the_features(folder: Path) -> None:
    """Predictions are those of soft neighbours under the present tip, not under the one that chose them."""
    here = stream("vectors", folder)
    method = here.build("igcd", exemplars=4, learning_rate=1e-2)
    assert isinstance(method, Igcd)
    for task, _ in here.tasks:
        learn(method, task)
    kept = method._kept()
    support, positions = clean_features(method.tip, kept.views, QUIET), kept.labels
    z = method.features(here.tasks[0][0].views.clean(torch.arange(20)))
    for x, answer in zip(z, method.predict(z)):
        votes = torch.zeros(6)
        for s, position in zip(support, positions.tolist()):
            votes[position] += math.exp(float(x @ s / x.norm() / s.norm()) / 0.1)
        assert answer == votes.argmax()


def test_a_discovered_category_has_the_prototype_nearest_to_it(folder: Path) -> None:
    here = stream("vectors", folder, [{0: (10, 5), 2: (0, 20), 3: (0, 20), 4: (0, 20)}])
    method = here.build("igcd", epochs=3)
    task = here.tasks[0][0]
    learn(method, task, 3)
    z = clean_features(method.tip, task.views, QUIET)
    means = torch.stack([z[method.assigned() == k].mean(0) for k in (1, 2, 3)])
    novel = method.state().tensors["heads.prototypes.weight"][1:]
    cosines = F.normalize(means, dim=1) @ F.normalize(novel, dim=1).T
    best = max(sum(float(cosines[i, p[i]]) for i in range(3)) for p in itertools.permutations(range(3)))
    assert float(cosines.diagonal().sum()) == pytest.approx(best, abs=1e-5)


def test_it_finds_digits(folder: Path) -> None:
    here = stream("vectors", folder, [{0: (20, 20), 1: (20, 20), 2: (0, 30)}, {3: (20, 20), 4: (0, 30)}])
    method = here.build("igcd", epochs=10, batch_size=32)
    for task, _ in here.tasks:
        learn(method, task, 10)
    for _, truth in here.tasks:
        z = method.features(truth.test_views.clean(torch.arange(len(truth.test_views))))
        right = (method.predict(z) == torch.from_numpy(truth.test_classes)).float().mean()
        assert right > 0.7


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(CampError, match="at least 1"):
        IgcdSettings(exemplars=0)
    with pytest.raises(CampError, match="rampup"):
        IgcdSettings(rampup=2.0)
    with pytest.raises(CampError, match="neighbours"):
        IgcdSettings(neighbours=0)
