"""The mixture of known and novel categories."""

import pytest
import torch
import torch.nn.functional as F
from small_batches import gaussians, half_labelled

from camp.core.types import UNLABELLED
from camp.discovery.category_mixture import (
    MixtureData,
    MixtureParameters,
    _transport,
    discover_by_mixture,
    fit_mixtures,
)
from camp.discovery.category_statistics import Statistics
from camp.discovery.class_sizes import ClassSizes
from camp.discovery.hungarian import cluster_accuracy


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def task() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Unit features, labels and classes: five known classes and three novel ones."""
    features, truth = gaussians(list(range(8)), 20, seed=1)
    return F.normalize(features, dim=1), half_labelled(truth, 5), truth


@pytest.mark.parametrize("equal_widths", [True, False])
def test_known_and_novel_classes_are_found(task, equal_widths):
    points, labels, truth = task
    parameters = MixtureParameters(0.5, equal_widths=equal_widths)
    weights = discover_by_mixture(MixtureData.of_batch(points, labels), 3, parameters, draw()).weights
    assert weights.shape == (160, 8)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(160))
    categories = weights.argmax(dim=1)
    labelled = labels != UNLABELLED
    assert torch.equal(weights[labelled], F.one_hot(labels[labelled], 8).float())
    assert (categories[truth < 5] == truth[truth < 5]).float().mean() > 0.95
    assert cluster_accuracy(categories, truth) > 0.95


def test_classes_of_unequal_sizes_are_found():
    features, truth = gaussians(list(range(8)), 60, seed=2)
    kept = torch.arange(len(truth)) % 60 < torch.tensor([60, 30, 15, 8, 40, 50, 20, 6])[truth]
    points, truth = F.normalize(features[kept], dim=1), truth[kept]
    labels = half_labelled(truth, 5)
    categories = discover_by_mixture(
        MixtureData.of_batch(points, labels), 3, MixtureParameters(0.5), draw()
    ).weights.argmax(dim=1)
    assert cluster_accuracy(categories, truth) > 0.95


def test_superfluous_categories_are_removed_first(task):
    points, labels, truth = task
    fits = {
        fit.n_novel: fit.weights.argmax(dim=1)
        for fit in fit_mixtures(
            MixtureData.of_batch(points, labels), range(6, -1, -1), MixtureParameters(0.5), draw()
        )
    }
    assert list(fits) == [6, 5, 4, 3, 2, 1, 0]
    assert cluster_accuracy(fits[3], truth) > 0.95
    # With two, one novel class has lost its category, and the others keep theirs.
    novel = [fits[2][truth == label].mode() for label in (5, 6, 7)]
    assert len({int(mode.values) for mode in novel if mode.values >= 5}) == 2
    assert bool((fits[0] < 5).all())


@pytest.mark.parametrize("n_novel", [0, 4])
def test_without_unlabelled_images_or_novel_categories(task, n_novel):
    points, _, truth = task
    labels = truth if not n_novel else truth.where(truth < 7, UNLABELLED)[:147]
    n_unlabelled = int((labels == UNLABELLED).sum())
    weights = discover_by_mixture(
        MixtureData.of_batch(points[: len(labels)], labels), n_novel, MixtureParameters(0.5), draw()
    ).weights
    assert weights.shape == (len(labels), len(labels[labels != UNLABELLED].unique()) + n_novel)
    assert n_unlabelled in (0, 7)
    assert bool(weights.isfinite().all())


def test_without_the_prior_sizes_are_free():
    """Two novel classes, of which one is much larger: equal weights do not divide it."""
    features, truth = gaussians(list(range(6)), 40, seed=4)
    kept = (truth != 5) | (torch.arange(len(truth)) % 40 < 5)
    points, truth = F.normalize(features[kept], dim=1), truth[kept]
    parameters = MixtureParameters(0.5, size_prior=False)
    categories = discover_by_mixture(
        MixtureData.of_batch(points, half_labelled(truth, 4)), 2, parameters, draw()
    ).weights.argmax(dim=1)
    assert cluster_accuracy(categories, truth) > 0.95


def objective(costs: torch.Tensor, q: torch.Tensor, expected: torch.Tensor, dispersion: float) -> float:
    """The objective of the module's docstring, with the costs -t log p."""
    assigned, rho = q.sum(dim=0), max(1 / dispersion - 1, 0)
    penalty = rho * (assigned * (assigned / expected).log() - assigned)
    return float((q * (q.log() + costs - expected.log())).sum() + penalty.sum())


@pytest.mark.parametrize("dispersion", [0.1, 0.6, 5.0])
def test_the_weights_minimise_the_objective(dispersion):
    """No small change of the assignments lowers it."""
    generator = draw(3)
    costs = 3 * torch.rand(30, 4, generator=generator, dtype=torch.float64)
    expected = torch.tensor([12.0, 9.0, 6.0, 3.0], dtype=torch.float64)
    sizes = ClassSizes(expected, torch.full((4,), dispersion, dtype=torch.float64))
    weights, offsets = _transport(-costs, torch.zeros(4, dtype=torch.float64), sizes)
    for _ in range(50):
        weights, offsets = _transport(-costs, offsets, sizes)
    least = objective(costs, weights, expected, dispersion)
    for _ in range(20):
        other = weights * torch.exp(0.05 * torch.randn(30, 4, generator=generator, dtype=torch.float64))
        other = other / other.sum(dim=1, keepdim=True)
        assert objective(costs, other, expected, dispersion) > least - 1e-9
    held = float((weights.sum(dim=0) - expected).abs().max())
    assert held < 0.5 if dispersion == 0.1 else held > 0.5


def test_images_of_remembered_categories_are_recognised_without_any_label():
    earlier, of_earlier = gaussians(list(range(5)), 30, seed=3)
    features, truth = gaussians(list(range(8)), 20, seed=4)
    means = torch.stack([F.normalize(earlier[of_earlier == k], dim=1).mean(dim=0) for k in range(5)])
    spread = 30 * float((1 - means.square().sum(dim=1)).sum())
    points, labels = F.normalize(features, dim=1), torch.full((160,), UNLABELLED)
    names = torch.tensor([2, 4, 6, 8, 10])
    data = MixtureData(points, labels, means, names, torch.full((5,), 30.0), spread, returning=True)
    assert torch.equal(data.known_classes(), names)
    categories = discover_by_mixture(data, 3, MixtureParameters(0.5), draw()).weights.argmax(dim=1)
    assert (categories[truth < 5] == truth[truth < 5]).float().mean() > 0.95
    assert bool((categories[truth >= 5] >= 5).float().mean() > 0.95)
    assert cluster_accuracy(categories, truth) > 0.95


def test_labelled_and_remembered_images_of_a_class_are_one_category():
    points, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]), torch.tensor([7, 3, UNLABELLED])
    data = MixtureData(
        points, labels, torch.tensor([[3.0, 0.0]]), torch.tensor([7]), torch.tensor([4.0]), known_spread=0.0
    )
    evidence, index, weights = data.evidence()
    known = Statistics.of_classes(evidence, index, 2, weights)
    assert known.counts.tolist() == [1.0, 5.0]
    assert known.sums.tolist() == [[0.0, 1.0], [13.0, 0.0]]
