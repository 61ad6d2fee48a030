"""What every discoverer promises, and what each adds to it."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from small_batches import DIM, batch, gaussians, half_labelled

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.discovery.base import Discoverer, KnownCategories
from camp.discovery.camp_plus_discoverer import CampPlusDiscoverer, power_transform
from camp.discovery.class_scatter import WithinClassScatter
from camp.discovery.hungarian import cluster_accuracy
from camp.discovery.kmeans_discoverer import SemiSupervisedKMeansDiscoverer
from camp.discovery.open_world_discoverer import MIN_CLUSTER_SIZE, OpenWorldDiscoverer
from camp.discovery.semi_supervised_kmeans import semi_supervised_kmeans
from camp.discovery.simulated_novelty import ParameterGrid

QUIET = Progress(quiet=True)
SMALL = ParameterGrid(shrinkage=(0.5,), n_components=(16,), power=(0.5, 1.0))

MAKERS = {
    "k-means": lambda: SemiSupervisedKMeansDiscoverer(n_init=10),
    "camp-plus": lambda: CampPlusDiscoverer(DIM, SMALL, n_init=10),
    "open-world": lambda: OpenWorldDiscoverer(n_init=10),
}


@pytest.fixture(params=MAKERS)
def discoverer(request: pytest.FixtureRequest) -> Discoverer:
    return MAKERS[request.param]()


@pytest.fixture(scope="module")
def task() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Unit features, labels and classes: five known classes and two novel ones."""
    features, truth = gaussians(list(range(7)), 14, seed=1)
    return F.normalize(features, dim=1), half_labelled(truth, 5), truth


@pytest.mark.parametrize("n_novel", [2, None])
def test_separate_classes_are_discovered(discoverer, task, n_novel):
    features, labels, truth = task
    result = discoverer.discover(batch(features, labels, n_novel), QUIET)
    assert result.n_novel == 2
    assert result.labels == (0, 1, 2, 3, 4, None, None)
    assert torch.equal(result.assignments[labels >= 0], labels[labels >= 0])
    assert (result.assignments[truth < 5] == truth[truth < 5]).float().mean() > 0.95
    assert cluster_accuracy(result.assignments, truth) > 0.95
    for category in range(7):
        mean = features[result.assignments == category].mean(dim=0)
        torch.testing.assert_close(result.centroids[category], mean, rtol=1e-4, atol=1e-5)
    assert (result.estimate is None) == (n_novel is not None)


def test_the_same_batch_gives_the_same_result(discoverer, task):
    features, labels, _ = task
    same = batch(features, labels, None)
    state, estimate = discoverer.state(), discoverer.estimate(same, QUIET)
    assert discoverer.estimate(same, QUIET) == estimate
    first = discoverer.discover(same, QUIET)
    discoverer.load_state(state)
    second = discoverer.discover(same, QUIET)
    assert torch.equal(first.assignments, second.assignments)
    assert torch.equal(first.centroids, second.centroids)
    assert first.estimate == second.estimate


def test_a_batch_without_unlabelled_images(discoverer, task):
    features, _, truth = task
    result = discoverer.discover(batch(features, truth, 0), QUIET)
    assert torch.equal(result.assignments, truth)
    assert result.n_novel == 0


def test_k_means_is_given_the_features_and_its_own_generator(task):
    features, labels, _ = task
    result = SemiSupervisedKMeansDiscoverer(n_init=10).discover(batch(features, labels, 2, index=3), QUIET)
    expected = semi_supervised_kmeans(features, labels, 2, n_init=10, generator=generator(0, "clustering", 3))
    assert torch.equal(result.assignments, expected.assignments)
    assert torch.equal(result.centroids, expected.centroids)
    assert result.inertia == expected.inertia


# CAMP+


def test_the_scatter_of_labelled_classes_is_kept_and_restored(task):
    features, labels, _ = task
    discoverer = CampPlusDiscoverer(DIM, SMALL, n_init=5)
    expected = WithinClassScatter.empty(DIM).add(features[labels >= 0], labels[labels >= 0])
    result = discoverer.discover(batch(features, labels, 2), QUIET)
    assert torch.equal(discoverer.scatter.total, expected.total)
    assert discoverer.scatter.degrees_of_freedom == 35 - 5
    assert result.parameters["shrinkage"] == discoverer.shrinkage == 0.5
    assert torch.equal(discoverer.whiten(features), features @ expected.whitening(0.5))
    again = CampPlusDiscoverer(DIM, SMALL)
    again.load_state(discoverer.state())
    assert torch.equal(again.whiten(features), discoverer.whiten(features))


def test_an_affine_map_carries_the_scatter_and_the_whitening(task):
    features, labels, _ = task
    discoverer = CampPlusDiscoverer(DIM, SMALL, n_init=5)
    discoverer.discover(batch(features, labels, 2), QUIET)
    before = discoverer.whiten(features)
    scatter, weight = discoverer.scatter, torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(0))
    discoverer.carry(weight, torch.eye(DIM))
    assert torch.equal(discoverer.scatter.total, scatter.carry(weight, torch.eye(DIM)).total)
    assert not torch.allclose(discoverer.whiten(features), before)


@pytest.mark.parametrize("n_known", [0, 1])
def test_too_few_classes_to_hide_are_counted_by_silhouettes(n_known):
    features, truth = gaussians(list(range(5)), 20, seed=1)
    discoverer = CampPlusDiscoverer(DIM, SMALL, n_init=5)
    same = batch(discoverer.transform(features), half_labelled(truth, n_known), None)
    estimate = discoverer.estimate(same, QUIET)
    assert estimate.n_novel == 5 - n_known
    assert estimate.standard_error is None
    assert discoverer.scatter.degrees_of_freedom == 0  # an estimate changes nothing


def test_the_power_transform_takes_roots_around_the_median():
    z = torch.tensor([[0.0, 0.0, 0.0, 4.0, -9.0]])
    assert power_transform(z).tolist() == [[0.0, 0.0, 0.0, 2.0, -3.0]]
    x = torch.randn(4, DIM, generator=torch.Generator().manual_seed(0))
    plain = CampPlusDiscoverer(DIM, SMALL, power_transform=False).transform(x)
    torch.testing.assert_close(plain, F.normalize(x, dim=1))
    few = CampPlusDiscoverer(5, SMALL).transform(x[:, :5])
    assert torch.equal(few, x[:, :5])  # features of few dimensions keep their length


# Open world


@pytest.fixture(scope="module")
def remembered() -> KnownCategories:
    return KnownCategories.of_images(*gaussians([0, 1, 2], 20, seed=1))


def test_known_categories_return(remembered):
    features, truth = gaussians([1, 2, 5, 6, 7], 15, seed=2)
    labels = torch.where((truth == 5) & (torch.arange(75) % 2 == 0), 3, -1)  # class 5 is labelled 3
    discoverer = OpenWorldDiscoverer(n_init=20)
    result = discoverer.discover(batch(features, labels, 2, remembered), QUIET)
    assert result.labels == (0, 1, 2, 3, None, None)
    for label, position in ((1, 1), (2, 2), (5, 3)):
        assert (result.assignments[truth == label] == position).float().mean() > 0.9
    assert {int(result.assignments[truth == label].mode().values) for label in (6, 7)} == {4, 5}
    for position in range(6):  # centroids are means of remembered and new images
        old = remembered.features[remembered.labels == position]
        mean = torch.cat([old, features[result.assignments == position]]).mean(dim=0)
        torch.testing.assert_close(result.centroids[position], mean, rtol=1e-4, atol=1e-4)


def test_the_metric_is_kept_for_recognition(remembered):
    features, truth = gaussians([1, 2, 5, 6], 15, seed=2)
    discoverer = OpenWorldDiscoverer(n_init=5)
    assert discoverer.metric is None
    result = discoverer.discover(batch(features, torch.full((60,), -1), 2, remembered), QUIET)
    assert discoverer.metric is not None
    points = discoverer.metric.transform(features)
    assert points.shape[1] <= DIM
    centroids = discoverer.metric.centroids(
        torch.cat([discoverer.metric.transform(remembered.features), points]).numpy(),
        torch.cat([remembered.labels, result.assignments]).numpy(),
        5,
    )
    new, truth = gaussians([0, 1, 2], 30, seed=4)
    nearest = torch.cdist(discoverer.metric.transform(new), torch.from_numpy(centroids)).argmin(dim=1)
    assert (nearest == truth).float().mean() > 0.95


@pytest.mark.parametrize(("novel", "labelled"), [([8, 9], True), ([8, 9], False), ([], False)])
def test_remembered_images_help_to_estimate_the_number(novel, labelled):
    known = KnownCategories.of_images(*gaussians([0, 1, 2, 3, 4, 5], 20, seed=1))
    features, truth = gaussians([1, 2, *novel], 20, seed=2)
    labels = torch.where((truth == 1) & (torch.arange(len(truth)) % 2 == 0) & labelled, truth, -1)
    estimate = OpenWorldDiscoverer(n_init=5).estimate(batch(features, labels, None, known), QUIET)
    assert abs(estimate.n_novel - len(novel)) <= 1


def test_categories_are_discovered_without_any_label():
    features, truth = gaussians([0, 1, 2, 3], 20, seed=2)
    result = OpenWorldDiscoverer(n_init=5).discover(batch(features, torch.full((80,), -1), None), QUIET)
    assert result.labels == (None, None, None, None)
    assert cluster_accuracy(result.assignments, truth) == 1.0


def test_small_clusters_are_dissolved_only_where_the_number_is_estimated():
    known = KnownCategories.of_images(*gaussians([0, 1, 2, 3], 20, seed=1))
    features, _ = gaussians([0, 1, 2, 3], 15, seed=2)
    outliers = 40 * torch.eye(DIM)[:2]
    same = batch(torch.cat([features, outliers]), torch.full((62,), -1), None, known)
    discoverer = OpenWorldDiscoverer(n_init=5)
    estimated = discoverer.discover(same, QUIET)
    sizes = torch.bincount(estimated.assignments, minlength=len(estimated.labels))
    assert bool((sizes[4:] >= MIN_CLUSTER_SIZE).all())
    assert discoverer.discover(replace(same, n_novel=2), QUIET).n_novel == 2


@pytest.mark.parametrize("count", [1, 2])
def test_a_first_batch_of_very_few_images(count):
    features, _ = gaussians([0], count, seed=2)
    result = OpenWorldDiscoverer(n_init=5).discover(batch(features, torch.full((count,), -1), None), QUIET)
    assert result.labels == (None,)
    assert result.assignments.tolist() == [0] * count
