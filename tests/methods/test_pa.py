"""What is special about PA: persistent proxies with their own learning rate, distillation, clipping by value."""

import pytest
import torch
from small_streams import QUIET, Stream, learn, small_settings, stream
from torch import Tensor

from camp.core.errors import CampError
from camp.core.seeds import generator
from camp.methods.gccd.centroid_method import CentroidMethod
from camp.methods.gccd.pa import CleanLabelledBatch, PaObjective
from camp.methods.gccd.settings import PaSettings
from camp.methods.trainer import StepBatch


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return stream("vectors", tmp_path_factory.mktemp("stream"))


def built(here: Stream, **options: object) -> CentroidMethod:
    method = here.build("pa", **options)
    assert isinstance(method, CentroidMethod)
    return method


def proxies_of(method: CentroidMethod) -> Tensor:
    objective = method._current_run().trainer.step.objective
    assert isinstance(objective, PaObjective)
    return objective.proxies.detach().clone()


def test_the_defaults_are_those_of_the_reference(vectors: Stream) -> None:
    usual = PaSettings()
    assert (usual.scale, usual.margin, usual.alpha, usual.exemplars) == (32.0, 0.1, 0.5, 20)
    assert (usual.training.learning_rate, usual.training.batch_size, usual.proxy_rate) == (1e-4, 256, 100.0)
    assert built(vectors).parts.clipping == "value"


def test_the_clean_view_of_labelled_images(vectors: Stream) -> None:
    """Batches are images of the task with two views, and labelled ones, exemplars among them, with the clean view."""
    method = built(vectors, labelled_views="clean", exemplars=3)
    learn(method, vectors.tasks[0][0])
    task = vectors.tasks[1][0]
    method.start_task(task, QUIET)
    trainer = method._current_run().trainer
    seen = set()
    for batch in trainer.step.batches(trainer.data, 8, generator(0)):
        assert isinstance(batch, CleanLabelledBatch)
        assert int(batch.rows.max()) < len(task)
        assert len(batch.views["vector"]) == 2 * len(batch.rows)
        rows = batch.labelled.rows
        assert (trainer.data.labels[rows] >= 0).all()
        assert torch.equal(batch.labelled.views["vector"], trainer.data.views.clean(rows)["vector"])
        seen |= set(rows.tolist())
    assert seen == set(trainer.data.labelled.tolist())
    assert max(seen) >= len(task)


def test_proxies_are_persistent_and_new_classes_get_new_ones(vectors: Stream) -> None:
    method = built(vectors)
    (first, _), (second, _) = vectors.tasks
    method.start_task(first, QUIET)
    initial = proxies_of(method)
    assert initial.shape == (2, method.dim)  # two known digits; the novel one has none
    for epoch in range(method.epochs):
        method.train_epoch(epoch)
    learned = proxies_of(method)
    assert not torch.equal(learned, initial)
    method.finish_task(QUIET)

    method.start_task(second, QUIET)
    proxies = proxies_of(method)
    assert proxies.shape == (4, method.dim)
    assert torch.equal(proxies[:2], learned)
    assert torch.equal(proxies[2:], torch.randn(4, method.dim, generator=generator(0, "heads", 1))[2:])


def test_proxies_learn_a_hundred_times_faster_than_the_tip(vectors: Stream) -> None:
    """AdamW's first step moves every entry that has a gradient by the learning rate."""
    method = built(vectors, epochs=1, batch_size=64, learning_rate=1e-4)
    task = vectors.tasks[0][0]
    method.start_task(task, QUIET)
    bias, proxies = method.tip.get_parameter("fc2.bias").detach().clone(), proxies_of(method)
    method.train_epoch(0)
    tip_moved = (method.tip.get_parameter("fc2.bias") - bias).abs().max().item()
    assert tip_moved == pytest.approx(1e-4, rel=1e-3)
    assert (proxies_of(method) - proxies).abs().max().item() == pytest.approx(1e-2, rel=1e-3)


def test_distillation_starts_in_the_second_task(vectors: Stream) -> None:
    method = built(vectors, alpha=0.3)
    (first, _), (second, _) = vectors.tasks
    method.start_task(first, QUIET)
    terms = method.train_epoch(0)
    assert terms.keys() == {"pa", "loss"}
    assert terms["loss"] == terms["pa"]
    method.finish_task(QUIET)
    method.start_task(second, QUIET)
    method.train_epoch(0)
    terms = method.train_epoch(1)
    assert terms["kd"] > 0
    assert terms["loss"] == pytest.approx(0.7 * terms["pa"] + 0.3 * terms["kd"])


def test_old_features_are_compared_on_the_tasks_images_twice_as_strongly(vectors: Stream) -> None:
    """The two views are summed, and images of the labelled batch are left out."""
    method = built(vectors)
    (first, _), (second, _) = vectors.tasks
    method.start_task(first, QUIET)
    method.finish_task(QUIET)
    method.start_task(second, QUIET)
    z, z_old = torch.randn(2, 2, 5, method.dim, generator=torch.Generator().manual_seed(0))
    expected = sum((z[v, i] - z_old[v, i]).square().mean() for v in range(2) for i in range(3)) / 3
    distiller = method._current_run().trainer.step.distiller
    distiller.old = lambda rows, ids, views: z_old
    batch = StepBatch(torch.arange(5), 3, torch.zeros(2, 5), {})
    torch.testing.assert_close(distiller.loss(z, batch), expected)


def test_training_moves_a_class_towards_its_proxy(vectors: Stream) -> None:
    """After some epochs a labelled image is nearer to the proxy of its class than to the other."""
    method = built(vectors, epochs=30, learning_rate=1e-3)
    task = vectors.tasks[0][0]
    method.start_task(task, QUIET)
    for epoch in range(30):
        method.train_epoch(epoch)
    rows = (task.labels >= 0).nonzero()[:, 0]
    z = torch.nn.functional.normalize(method.features(task.views.clean(rows)), dim=1)
    cosines = z @ torch.nn.functional.normalize(proxies_of(method), dim=1).T
    assert torch.equal(cosines.argmax(dim=1), task.labels[rows])


@pytest.mark.parametrize(
    "wrong", [{"alpha": 1.5}, {"scale": 0.0}, {"margin": -0.1}, {"proxy_rate": 0.0}, {"exemplars": -1}]
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(CampError):
        small_settings("pa", **wrong)
