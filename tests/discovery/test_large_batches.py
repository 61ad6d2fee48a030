"""Batches that are fitted to a sample."""

import pytest
import torch
import torch.nn.functional as F
from small_batches import DIM, batch, gaussians, half_labelled

from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.discovery import large_batches
from camp.discovery.base import KnownCategories
from camp.discovery.camp_plus_discoverer import CampPlusDiscoverer
from camp.discovery.hungarian import cluster_accuracy
from camp.discovery.large_batches import evenly_spaced, grid_for_samples, is_large, sample_rows
from camp.discovery.open_world_discoverer import OpenWorldDiscoverer
from camp.discovery.simulated_novelty import ParameterGrid

QUIET = Progress(quiet=True)
GRID = ParameterGrid(shrinkage=(0.5,), n_components=(16,), power=(0.5, 1.0))


@pytest.fixture(autouse=True)
def _small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_batches, "MAX_IMAGES", 150)
    monkeypatch.setattr(large_batches, "MAX_LABELLED", 60)


@pytest.mark.parametrize("n_novel", [2, None])
@pytest.mark.parametrize("many_classes", [2, 300])
@pytest.mark.parametrize("kind", ["camp-plus", "open-world"])
def test_every_image_of_a_large_batch_gets_a_category(
    kind: str, many_classes: int, n_novel: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_batches, "MANY_CLASSES", many_classes)
    features, truth = gaussians(list(range(7)), 60, seed=1)
    features, labels = F.normalize(features, dim=1), half_labelled(truth, 5)
    assert is_large(len(features))
    discoverer = (
        CampPlusDiscoverer(DIM, GRID, n_init=10) if kind == "camp-plus" else OpenWorldDiscoverer(n_init=10)
    )
    result = discoverer.discover(batch(features, labels, n_novel), QUIET)
    assert result.assignments.shape == truth.shape
    assert torch.equal(result.assignments[labels >= 0], labels[labels >= 0])
    assert result.labels[:7] == (0, 1, 2, 3, 4, None, None)
    # Two folds, as with many classes, are a rough estimate with classes of which each fold hides two.
    assert result.n_novel <= (3 if many_classes == 2 and n_novel is None else 2)
    assert cluster_accuracy(result.assignments, truth) > 0.9
    for category in range(7):
        mean = features[result.assignments == category].mean(dim=0)
        torch.testing.assert_close(result.centroids[category], mean, rtol=1e-4, atol=1e-5)
    again = (
        CampPlusDiscoverer(DIM, GRID, n_init=10) if kind == "camp-plus" else OpenWorldDiscoverer(n_init=10)
    )
    assert torch.equal(
        again.discover(batch(features, labels, n_novel), QUIET).assignments, result.assignments
    )


def test_remembered_categories_return_in_a_large_batch() -> None:
    old, of = gaussians([0, 1, 2, 3], 40, seed=1)
    features, truth = gaussians([2, 3, 4, 5], 60, seed=2)
    labels = torch.full((len(truth),), UNLABELLED)
    known = KnownCategories.of_images(old, of)
    result = OpenWorldDiscoverer(n_init=10).discover(batch(features, labels, None, known, 1), QUIET)
    assert result.labels == (0, 1, 2, 3, None, None)
    assert (result.assignments[truth < 4] == truth[truth < 4]).float().mean() > 0.95
    assert cluster_accuracy(result.assignments, truth) > 0.95
    assert result.centroids.isfinite().all()


def test_a_large_batch_without_labels_is_clustered() -> None:
    features, truth = gaussians([0, 1, 2], 80, seed=3)
    labels = torch.full((len(truth),), UNLABELLED)
    result = OpenWorldDiscoverer(n_init=10).discover(batch(features, labels, None), QUIET)
    assert cluster_accuracy(result.assignments, truth) > 0.95
    assert bool((torch.bincount(result.assignments) >= 3).all())


def test_a_sample_holds_every_labelled_class() -> None:
    labels = torch.full((1000,), UNLABELLED)
    labels[::10] = torch.arange(100) % 40
    rows = sample_rows(labels, torch.Generator().manual_seed(0))
    assert len((labels[rows] == UNLABELLED).nonzero()) == 150
    assert labels[rows].unique().tolist() == [UNLABELLED, *range(40)]
    assert torch.equal(rows, rows.unique())


def test_labelled_images_are_spaced_evenly() -> None:
    labels = torch.tensor([1, 0, 1, UNLABELLED, 1, 1, 0, 1])
    assert evenly_spaced(labels, 3).tolist() == [1, 6, 0, 4, 7]
    assert evenly_spaced(labels[:0], 3).tolist() == []


def test_given_parameters_stay_fixed() -> None:
    grid = grid_for_samples(ParameterGrid(power=(0.25,)), 5000)
    assert (grid.power, grid.n_components) == ((0.25,), (128,))
    assert grid_for_samples(ParameterGrid(), 5).power == ParameterGrid().power
