"""Feature batches of Gaussian classes for the tests of discoverers."""

import torch

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
