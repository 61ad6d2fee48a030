"""CAMP+ against its equations: the scatter it keeps, the classifier, and what is carried when the tip moves."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from small_streams import CPU, QUIET, Stream, backbone, learn, small_settings, stream

from camp.core.errors import CampError
from camp.discovery.camp_plus_discoverer import power_transform
from camp.methods.base import Method
from camp.methods.gccd.adaptation import feature_pairs
from camp.methods.gccd.centroid_method import CentroidMethod
from camp.methods.registry import method_info

# Five known digits and a novel one, then two and one: enough to hide classes of the first task, not of the second.
PLANS = (dict.fromkeys(range(5), (8, 6)) | {5: (0, 14)}, {6: (8, 6), 7: (8, 6), 8: (0, 14)})


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return stream("vectors", tmp_path_factory.mktemp("plus"), PLANS)


def build(here: Stream, **options: object) -> CentroidMethod:
    settings = small_settings("camp-plus", **{"train": False, **options})
    method = method_info("camp-plus").build(backbone(here.kind, 0), settings, 0, CPU)
    assert isinstance(method, CentroidMethod)
    return method


def learned(here: Stream, **options: object) -> CentroidMethod:
    method = build(here, **options)
    for task, _ in here.tasks:
        learn(method, task)
    return method


@pytest.fixture(scope="module")
def method(here: Stream) -> CentroidMethod:
    """Without training, after both tasks."""
    return learned(here)


def clean(here: Stream, at: int) -> torch.Tensor:
    """u (n, D) of a task, which no training changes: roots around the median, at unit length."""
    views = here.tasks[at][0].views
    z = views.clean(torch.arange(len(views)))["vector"]
    centred = z - z.median(dim=1, keepdim=True).values
    return F.normalize(torch.sign(centred) * centred.abs() ** 0.5, dim=1)


def test_the_scatter_is_that_of_all_labelled_classes_so_far(here, method):
    total = torch.zeros(64, 64, dtype=torch.float64)
    for at, (task, _) in enumerate(here.tasks):
        u = clean(here, at).double()
        for label in task.labels[task.labels >= 0].unique():
            own = u[task.labels == label]
            total += (own - own.mean(dim=0)).T @ (own - own.mean(dim=0))
    torch.testing.assert_close(method.discoverer.scatter.total, total, rtol=1e-4, atol=1e-4)
    assert method.discoverer.scatter.degrees_of_freedom == 7 * 8 - 7


def test_centroids_are_near_the_means_of_what_was_assigned(here, method):
    """They are weighted by soft assignments, which are nearly hard for separate classes."""
    u, assigned = clean(here, 1), method.assigned()
    for position in assigned.unique().tolist():
        mean = u[assigned == position].mean(dim=0)
        assert float((method.centroids[position] - mean).norm() / mean.norm()) < 0.1


def test_predictions_maximise_the_cosine_about_the_mean_centroid(here, method):
    views = here.tasks[0][1].test_views
    u = method.features(views.clean(torch.arange(len(views))))
    within = method.discoverer.scatter.total / method.discoverer.scatter.degrees_of_freedom
    s = method.discoverer.shrinkage
    inverse = torch.linalg.inv((1 - s) * within + s * within.trace() / 64 * torch.eye(64))
    mean = method.centroids.double().mean(dim=0)
    z, c = u.double() - mean, method.centroids.double() - mean
    lengths = [torch.einsum("nd,de,ne->n", x, inverse, x).sqrt() for x in (z, c)]
    cosines = z @ inverse @ c.T / (lengths[0][:, None] * lengths[1])
    assert torch.equal(method.predict(u), cosines.argmax(dim=1))
    allowed = torch.tensor([1, 3])
    assert torch.equal(method.predict(u, allowed), allowed[cosines[:, allowed].argmax(dim=1)])


def test_with_full_shrinkage_directions_are_compared_as_they_are(here):
    method = learned(here, shrinkage=1.0)
    views = here.tasks[0][1].test_views
    u = method.features(views.clean(torch.arange(len(views))))
    z, c = (F.normalize(x - method.centroids.mean(dim=0), dim=1) for x in (u, method.centroids))
    assert torch.equal(method.predict(u), (z @ c.T).argmax(dim=1))


def test_what_is_kept_does_not_grow_with_the_images(here, method):
    kept = method.state().tensors
    assert kept["discoverer.scatter"].shape == (64, 64)
    assert kept["centroids"].shape == (len(method.categories), 64)
    assert kept["counts.counts"].tolist() == [category.size for category in method.categories]
    sized = {"discoverer.scatter", "centroids", "counts.counts"}
    others = {name for name in kept if not name.startswith("tip.")} - sized
    assert all(kept[name].numel() <= 1 for name in others)


def test_training_carries_centroids_and_scatter_by_one_map(here):
    method = build(here, train=True)
    (first, _), (second, _) = here.tasks
    learn(method, first)
    before, stored = method.discoverer.scatter, method.centroids.clone()
    method.start_task(second, QUIET)
    for epoch in range(method.epochs):
        method.train_epoch(epoch)
    old, new = (method.parts.transform(z).double() for z in feature_pairs(method._current_run(), QUIET))
    method.finish_task(QUIET)
    # The map, from the pairs, by ordinary least squares with the same pull to the identity.
    x = old - old.mean(dim=0)
    ridge = method.parts.adapter.ridge * (x.T @ x / len(x)).diagonal().mean()
    weight = torch.linalg.solve(
        x.T @ x / len(x) + ridge * torch.eye(64),
        x.T @ (new - new.mean(dim=0)) / len(x) + ridge * torch.eye(64),
    ).T
    bias = new.mean(dim=0) - weight @ old.mean(dim=0)
    torch.testing.assert_close(
        method.drift.adapted.double(), stored.double() @ weight.T + bias, rtol=1e-4, atol=1e-5
    )
    error = (new - old @ weight.T - bias).T.cov()
    carried = weight @ before.total @ weight.T + before.degrees_of_freedom * error
    kept = second.labels >= 0
    u = method.parts.transform(method_features(method, second))
    own = replace(before, total=carried).add(u[kept], second.labels[kept])
    torch.testing.assert_close(method.discoverer.scatter.total, own.total, rtol=1e-3, atol=1e-4)
    assert float((carried - before.total).norm()) > 1e-3 * float(before.total.norm())  # the tip did move
    assert len(first) == 84


def method_features(method: Method, task: object) -> torch.Tensor:
    views = task.views  # type: ignore[attr-defined]
    with torch.no_grad():
        return method.tip.eval()(views.clean(torch.arange(len(views))))  # type: ignore[attr-defined]


def test_without_training_centroids_stay(here, method):
    assert method.epochs == 0
    assert torch.equal(method.drift.stored, method.drift.adapted)


def test_the_number_of_categories_is_estimated_with_its_error(tmp_path):
    (first, _), (second, _) = stream("vectors", tmp_path, PLANS, tell_k=False).tasks
    method = build(Stream("vectors", []))
    learn(method, first)
    assert method.discovery.estimate.standard_error >= 0
    assert 0 <= method.discovery.n_novel <= 3
    learn(method, second)  # two known classes, each hidden in turn
    assert method.discovery.estimate.standard_error >= 0
    assert 0 <= method.discovery.n_novel <= 3


def test_roots_around_the_median():
    z = torch.tensor([[0.0, 0.0, 0.0, 4.0, -9.0]])
    assert power_transform(z).tolist() == [[0.0, 0.0, 0.0, 2.0, -3.0]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"exemplars": 5}, "keeps no images unless it trains"),
        ({"adapter": "sdc"}, "by a linear map or not at all"),
        ({"shrinkage": 0.0}, "must be above 0"),
        ({"shrinkage": 1.5}, "between 0 and 1"),
        ({"power": 0.0}, "must be above 0"),
        ({"start_factor": 0}, "at least the number wanted"),
        ({"n_components": 0}, "at least one component"),
    ],
)
def test_impossible_settings_are_refused(options, sentence):
    with pytest.raises(CampError, match=sentence):
        small_settings("camp-plus", **{"train": False, **options})


@pytest.fixture(scope="module")
def returning(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """Five known digits and a novel one; then these without labels beside two novel ones; then one of them labelled."""
    plans = (
        dict.fromkeys(range(5), (12, 6)) | {5: (0, 14)},
        dict.fromkeys(range(6), (0, 8)) | {6: (0, 14), 7: (0, 14)},
        {0: (6, 4), 6: (8, 4), 1: (0, 6), 8: (0, 14)},
    )
    streamed = stream("vectors", tmp_path_factory.mktemp("returning"), plans)
    tasks = [(replace(task, returning=task.index > 0), truth) for task, truth in streamed.tasks]
    return replace(streamed, tasks=tasks)


def test_unlabelled_images_of_earlier_categories_are_recognised(returning):
    method, (first, second) = build(returning), [task for task, _ in returning.tasks[:2]]
    learn(method, first)
    stored, sizes = method.centroids.clone(), method.counts.counts.clone()
    learn(method, second)
    truth = torch.from_numpy(returning.tasks[1][1].train_classes)
    assigned = method.assigned()
    of_old = truth < 6
    assert (assigned[of_old] == truth[of_old]).float().mean() > 0.75
    assert [category.label for category in method.categories] == [0, 1, 2, 3, 4, None, None, None]
    counts = torch.bincount(assigned, minlength=8)
    assert torch.equal(method.counts.counts, F.pad(sizes, (0, 2)) + counts)
    # A centroid that returns is the mean of its old and new images, not of the new ones alone.
    moved = (method.centroids[:6] - stored).norm(dim=1)
    fresh = torch.stack([clean(returning, 1)[assigned == k].mean(dim=0) for k in range(6)])
    assert (moved < (fresh - stored).norm(dim=1)).all()


def test_a_label_takes_the_place_of_the_category_that_was_discovered_for_it(returning):
    method = learned(returning)
    labels = [category.label for category in method.categories]
    assert labels == [0, 1, 2, 3, 4, None, None, None, 5, None]
    third, truth = returning.tasks[2]
    names = torch.from_numpy(truth.train_classes)
    assigned = method.assigned()
    assert torch.equal(assigned[third.labels == 0], torch.zeros(6, dtype=torch.long))
    of_six = (names == 6) & (third.labels < 0)
    assert (assigned[of_six] == 8).float().mean() > 0.5


def test_without_the_option_earlier_categories_are_clustered_again(returning):
    method = build(returning, returning=False)
    for task, _ in returning.tasks[:2]:
        learn(method, task)
    assert int(method.assigned().min()) >= 6


def test_counts_survive_a_checkpoint(returning):
    method, again = learned(returning), build(returning)
    again.load_state(method.state(), None, returning.tasks[0][0].views)
    assert torch.equal(again.counts.counts, method.counts.counts)
