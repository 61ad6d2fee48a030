"""Feature batches of Gaussian classes for the tests of discoverers."""

import torch
import torch.nn.functional as F

from camp.core.types import UNLABELLED
from camp.discovery.base import FeatureBatch, KnownCategories

DIM = 48


def gaussians(classes: list[int], per_class: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and classes; a class has the same mean in every batch."""
    means = 3 * torch.randn(16, DIM, generator=torch.Generator().manual_seed(9))
    truth = torch.tensor(classes).repeat_interleave(per_class)
    noise = torch.randn(len(truth), DIM, generator=torch.Generator().manual_seed(seed))
    return means[truth] + noise, truth


def half_labelled(truth: torch.Tensor, n_known: int) -> torch.Tensor:
    """Labels of every second image of the classes below `n_known`."""
    return torch.where((truth < n_known) & (torch.arange(len(truth)) % 2 == 0), truth, UNLABELLED)


def batch(
    features: torch.Tensor,
    labels: torch.Tensor,
    n_novel: int | None,
    known: KnownCategories | None = None,
    index: int = 0,
) -> FeatureBatch:
    """A batch with seed 0."""
    known = known or KnownCategories.empty(features.shape[1])
    return FeatureBatch(features, labels, n_novel, known, seed=0, index=index)


def classes(known: int, novel: int, per_class: int, nuisance: float, seed: int = 0):
    """Unit features of classes whose means differ in ten directions, with variation in four others that all share."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.arange(known + novel).repeat_interleave(per_class)
    x = torch.zeros(len(truth), 40)
    x[:, :10] = torch.randn(known + novel, 10, generator=draw)[truth]
    x[:, 10:14] = nuisance * torch.randn(len(truth), 4, generator=draw)
    x += 0.15 * torch.randn(len(truth), 40, generator=draw)
    labels = truth.where((truth < known) & (torch.rand(len(truth), generator=draw) < 0.5), UNLABELLED)
    return F.normalize(x, dim=1), labels, truth
