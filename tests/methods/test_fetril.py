"""FeTrIL: features moved to where old classes were, and support vectors over all classes."""

import pytest
import torch
from sklearn.svm import LinearSVC
from small_streams import LABELLED, QUIET, Stream, small_settings, stream
from torch import Tensor

from camp.core.errors import CampError
from camp.core.seeds import generator
from camp.methods.cil.fetril import linear_svc, with_pseudo_features


def test_pseudo_features_by_hand() -> None:
    """Class 0 points where class 3 does although class 2 lies nearer, and class 1 where class 2 does."""
    means = torch.tensor([[1.0, 0.0], [0.0, 9.0], [0.0, 1.0], [10.0, 1.0]])
    features = torch.tensor([[0.0, 0.0], [0.0, 2.0], [10.0, 1.0]])
    moved, labels = with_pseudo_features(features, torch.tensor([2, 2, 3]), means)
    assert labels.tolist() == [2, 2, 3, 0, 1, 1]
    assert moved.tolist() == [*features.tolist(), [1.0, 0.0], [0.0, 8.0], [0.0, 10.0]]


def test_pseudo_features_have_the_mean_of_their_class() -> None:
    draw = generator(0, "features")
    labels = torch.tensor([3, 4, 5]).repeat_interleave(7)
    features, means = torch.randn(21, 8, generator=draw), torch.randn(6, 8, generator=draw)
    for label in (3, 4, 5):
        means[label] = features[labels == label].mean(dim=0)
    moved, owners = with_pseudo_features(features, labels, means)
    assert owners.bincount().tolist() == [7] * 6
    for label in range(6):
        torch.testing.assert_close(moved[owners == label].mean(dim=0), means[label])


def test_without_old_classes_there_are_no_pseudo_features() -> None:
    features, labels = torch.eye(3), torch.tensor([1, 0, 1])
    moved, owners = with_pseudo_features(features, labels, torch.ones(2, 3))
    assert torch.equal(moved, features)
    assert torch.equal(owners, labels)


def clouds(classes: int) -> tuple[Tensor, Tensor]:
    """Features of classes that overlap a little, at lengths of 1 to 20."""
    draw = generator(0, "clouds", classes)
    labels = torch.arange(classes).repeat_interleave(20)
    features = torch.randn(classes, 6, generator=draw)[labels] + torch.randn(len(labels), 6, generator=draw)
    return features * torch.linspace(1, 20, len(labels))[:, None], labels


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_support_vectors_predict_as_those_of_scikit_learn(classes: int) -> None:
    features, labels = clouds(classes)
    weight, bias = linear_svc(features, labels, c=0.5)
    assert weight.shape == (classes, 6)
    assert bias.shape == (classes,)
    at_unit_length = (features / features.norm(dim=1, keepdim=True)).numpy()
    theirs = LinearSVC(C=0.5, dual=False).fit(at_unit_length, labels.numpy()).predict(at_unit_length)
    ours = (torch.from_numpy(at_unit_length) @ weight.T + bias).argmax(dim=1)
    assert ours.tolist() == theirs.tolist()
    assert (ours == labels).float().mean() > 0.6


def test_errors_weigh_more_with_a_greater_c() -> None:
    features, labels = clouds(3)
    assert linear_svc(features, labels, c=10.0)[0].norm() > 2 * linear_svc(features, labels, c=0.01)[0].norm()


def test_a_single_class_is_always_predicted() -> None:
    weight, bias = linear_svc(
        torch.randn(4, 3, generator=generator(0)), torch.zeros(4, dtype=torch.long), 1.0
    )
    assert weight.tolist() == [[0.0] * 3]
    assert bias.tolist() == [0.0]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    plans = [*LABELLED, {6: (6, 0), 7: (6, 0)}]
    return stream("images", tmp_path_factory.mktemp("streams"), plans)


def test_the_network_is_frozen_after_the_first_task(here: Stream) -> None:
    method, losses, tips = here.build("fetril"), [], []
    initial = {key: value.clone() for key, value in method.tip.state_dict().items()}  # type: ignore[attr-defined]
    for task, _ in here.tasks:
        method.start_task(task, QUIET)
        losses.append([method.train_epoch(epoch)["loss"] for epoch in range(method.epochs)])
        method.finish_task(QUIET)
        tips.append({key: value.clone() for key, value in method.tip.state_dict().items()})  # type: ignore[attr-defined]
    assert min(losses[0]) > 0
    assert losses[1:] == [[0.0, 0.0]] * 2
    assert all(
        not torch.equal(tips[0][key], value) for key, value in initial.items() if key.startswith("convs")
    )
    for tip in tips[1:]:
        assert all(torch.equal(tip[key], value) for key, value in tips[0].items())


def test_a_class_is_remembered_by_the_mean_of_its_features(here: Stream) -> None:
    method, kept = here.build("fetril"), []
    for task, _ in here.tasks:
        method.start_task(task, QUIET)
        for epoch in range(method.epochs):
            method.train_epoch(epoch)
        method.finish_task(QUIET)
        assert method.centroids is not None
        features = method.features(task.views.clean(torch.arange(len(task))))
        kept += [features[task.labels == label].mean(dim=0) for label in task.labels.unique()]
        torch.testing.assert_close(method.centroids, torch.stack(kept))
    assert len(kept) == 8


def test_old_classes_are_still_distinguished(here: Stream) -> None:
    """By one classifier over all of them, though it has seen no image of theirs since."""
    method = here.build("fetril", epochs=8)
    for task, _ in here.tasks:
        method.start_task(task, QUIET)
        for epoch in range(method.epochs):
            method.train_epoch(epoch)
        method.finish_task(QUIET)
    first = here.tasks[0][0]
    answers = method.predict(method.features(first.views.clean(torch.arange(len(first)))))
    assert (answers == first.labels).float().mean() > 0.7


@pytest.mark.parametrize("svc", [0.0, -1.0])
def test_errors_must_have_a_weight(svc: float) -> None:
    with pytest.raises(CampError, match="svc, the weight of errors, must be above 0"):
        small_settings("fetril", svc=svc)
