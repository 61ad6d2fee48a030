"""SSRE: side branches, and losses weighted by the similarity of images to old prototypes."""

import math
from pathlib import Path

import pytest
import torch
from small_streams import CPU, LABELLED, QUIET, Stream, learn, small_settings, stream
from torch import Tensor

from camp.bench.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from camp.core.errors import CampError
from camp.core.seeds import generator
from camp.methods.base import BuildContext
from camp.methods.cil.base import ClassRange, IncrementalMethod
from camp.methods.cil.prototypes import ClassPrototypes, PrototypeMemory
from camp.methods.cil.settings import SsreSettings
from camp.methods.cil.ssre import SsreObjective, make_ssre, similarity
from camp.nn.backbones import BackboneSettings, make_backbone


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return stream("images", tmp_path_factory.mktemp("streams"), [*LABELLED, {6: (6, 0), 7: (6, 0)}])


def resnet() -> IncrementalMethod:
    """With batch norms, which conv-tiny has not."""
    settings = BackboneSettings(backbone="resnet18-slim", resolution=8)
    network = make_backbone(settings, generator(0, "backbone"))
    return make_ssre(BuildContext(network, 0, CPU), small_settings("ssre"))


def test_similarity_by_hand() -> None:
    means = torch.tensor([[2.0, 0.0], [0.0, 5.0]])
    z = torch.tensor([[3.0, 0.0], [3.0, 4.0], [-1.0, -1.0]])
    torch.testing.assert_close(similarity(z, means), torch.tensor([1.0, 0.8, 0.0]))


def objective(prototypes: ClassPrototypes | None) -> SsreObjective:
    settings = SsreSettings(temperature=0.5, feature_weight=3.0, prototype_weight=7.0)
    old = 0 if prototypes is None else len(prototypes)
    return SsreObjective(ClassRange(4, old, old + 2), generator(0, "classifier"), settings, prototypes)


def surprise(of: SsreObjective, z: Tensor, label: int) -> float:
    """-log of the softmax of the logits over the temperature 0.5, at the label."""
    weight, bias = of.classifier.weight.detach(), of.classifier.bias.detach()
    logits = [float(w @ z + b) / 0.5 for w, b in zip(weight, bias)]
    return -math.log(math.exp(logits[label]) / sum(math.exp(logit) for logit in logits))


def test_the_loss_is_the_equation() -> None:
    draw = generator(0, "features")
    z, z_old, means = (torch.randn(1, n, 4, generator=draw) for n in (5, 5, 3))
    loss = objective(ClassPrototypes(means[0], torch.zeros(())))
    labels, classes = torch.tensor([3, 4, 4, 3, 4]), torch.tensor([0, 2, 2, 1, 0])
    terms = loss(z, labels, {"classes": classes}, z_old)
    ce = fd = prototype = 0.0
    for i in range(5):
        cosines = [float(z[0, i] @ mu / (z[0, i].norm() * mu.norm())) for mu in means[0]]
        s = max(0.0, *cosines)
        ce += (1 - s) * surprise(loss, z[0, i], int(labels[i])) / 5
        fd += s * float((z[0, i] - z_old[0, i]).square().sum().sqrt())
        prototype += surprise(loss, means[0, classes[i]], int(classes[i])) / 5
    expected = {"ce": ce, "fd": fd, "prototype": prototype, "loss": ce + 3 * fd + 7 * prototype}
    assert {name: value.item() for name, value in terms.items()} == pytest.approx(expected, rel=1e-4)


def test_the_first_task_is_cross_entropy() -> None:
    loss, z = objective(None), torch.randn(1, 3, 4, generator=generator(0, "features"))
    assert loss.plan(torch.zeros(3), generator(0)) == {}
    expected = sum(surprise(loss, z[0, i], label) for i, label in enumerate((0, 1, 1))) / 3
    terms = loss(z, torch.tensor([0, 1, 1]), {}, None)
    assert terms["loss"].item() == pytest.approx(expected, rel=1e-5)


def test_there_is_no_gradient_through_the_similarity() -> None:
    """Where no loss but L_CE asks for anything, its gradient is that of the cross-entropy with s as a number."""
    draw = generator(0, "features")
    z, means = torch.randn(1, 4, 4, generator=draw).requires_grad_(), torch.randn(3, 4, generator=draw)
    loss, labels = objective(ClassPrototypes(means, torch.zeros(()))), torch.tensor([3, 4, 4, 3])
    terms = loss(z, labels, {"classes": torch.zeros(4, dtype=torch.long)}, z.detach())
    got = torch.autograd.grad(terms["ce"], z)[0]
    s = similarity(z[0].detach(), means)
    ce = torch.nn.functional.cross_entropy(loss.classifier(z[0]) / 0.5, labels, reduction="none")
    torch.testing.assert_close(got, torch.autograd.grad((s.neg() + 1) @ ce / 4, z)[0])


def test_a_prototype_of_an_old_class_is_drawn_for_each_image() -> None:
    loss = objective(ClassPrototypes(torch.randn(3, 4, generator=generator(0)), torch.zeros(())))
    classes = loss.plan(torch.zeros(200), generator(0, "draw"))["classes"]
    assert classes.shape == (200,)
    assert set(classes.tolist()) == {0, 1, 2}


@pytest.mark.parametrize("network", ["conv-tiny", "resnet18-slim"])
def test_after_the_first_task_only_the_middle_of_kernels_changes(here: Stream, network: str) -> None:
    method = resnet() if network == "resnet18-slim" else here.build("ssre")
    assert isinstance(method, IncrementalMethod)
    names = list(method.tip.state_dict())
    for task, _ in here.tasks[:1]:
        learn(method, task)
    before = {key: value.clone() for key, value in method.tip.state_dict().items()}
    for task, _ in here.tasks[1:]:
        method.start_task(task, QUIET)
        assert any(key.endswith(".side") for key in method.tip.state_dict())
        assert list(method._current_run().old_tip.state_dict()) == names
        for epoch in range(method.epochs):
            method.train_epoch(epoch)
        method.finish_task(QUIET)
        assert list(method.tip.state_dict()) == names
    kernels = [key for key, value in before.items() if value.shape[2:] == (3, 3)]
    assert len(kernels) >= 3
    for key, value in method.tip.state_dict().items():
        difference = value - before[key]
        if key in kernels:
            assert difference[:, :, 1, 1].abs().max() > 0
            difference[:, :, 1, 1] = 0
        assert difference.abs().max() == 0, key


def test_prototypes_lie_in_the_space_of_the_folded_network(here: Stream) -> None:
    method = resnet()
    for task, _ in here.tasks[:2]:
        learn(method, task)
    task = here.tasks[1][0]
    features = method.features(task.views.clean(torch.arange(len(task))))
    memory = method.callbacks[1]
    assert isinstance(memory, PrototypeMemory)
    for label in task.labels.unique():
        expected = features[task.labels == label].mean(dim=0)
        torch.testing.assert_close(memory.prototypes.means[label], expected)


def test_a_task_with_branches_is_resumed(here: Stream, tmp_path: Path) -> None:
    """Batch norms, branches and their moments are those of an undisturbed run."""
    first, second = (task for task, _ in here.tasks[:2])
    undisturbed = resnet()
    learn(undisturbed, first)
    undisturbed.start_task(second, QUIET)
    for epoch in range(undisturbed.epochs + 1):
        save_checkpoint(tmp_path / str(epoch), Checkpoint(state=undisturbed.state(), task=1, epoch=epoch))
        if epoch < undisturbed.epochs:
            undisturbed.train_epoch(epoch)
    undisturbed.finish_task(QUIET)
    expected = undisturbed.state().tensors
    for at_epoch in range(undisturbed.epochs + 1):
        saved = load_checkpoint(tmp_path / str(at_epoch))
        assert saved is not None
        resumed = resnet()
        resumed.load_state(saved.state, second, first.views)
        for epoch in range(at_epoch, resumed.epochs):
            resumed.train_epoch(epoch)
        resumed.finish_task(QUIET)
        found = resumed.state().tensors
        assert found.keys() == expected.keys()
        assert [key for key, value in expected.items() if not torch.equal(found[key], value)] == []


def test_vectors_are_refused() -> None:
    vectors = make_backbone(BackboneSettings(backbone="embeddings", dim=8), generator(0))
    with pytest.raises(CampError, match="SSRE works on images"):
        make_ssre(BuildContext(vectors, 0, CPU), SsreSettings())
