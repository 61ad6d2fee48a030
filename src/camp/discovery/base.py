"""Interface of category discovery: from known categories and a batch to categories of the batch."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.core.types import UNLABELLED


@dataclass(frozen=True)
class NumberEstimate:
    """An estimated number of novel categories."""

    n_novel: int
    curve: tuple[tuple[int, float], ...]
    """(k, score) of every candidate number of categories k (known and novel), sorted by k."""
    standard_error: float | None = None
    """Standard error of `n_novel`, where it is known."""


@dataclass(frozen=True)
class KnownCategories:
    """Categories of earlier batches: the features that are remembered of their images, or their centroids."""

    features: Tensor
    """(m, D) features in the present feature space."""
    labels: Tensor
    """(m,) int64 label of the category of each."""
    counts: Tensor
    """(m,) number of images of which each feature is the mean; 1 for the feature of an image."""

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of_images(cls, features: Tensor, labels: Tensor) -> Self:
        """Categories by the features (m, D) of single images with labels (m,)."""
        return cls(features, labels, torch.ones(len(labels)))

    @classmethod
    def empty(cls, dim: int) -> Self:
        """No category, for features of length `dim`."""
        return cls.of_images(torch.empty(0, dim), torch.empty(0, dtype=torch.int64))

    def subset(self, rows: Tensor) -> Self:
        """The features `rows` alone, which are indices or a mask (m,)."""
        return replace(self, features=self.features[rows], labels=self.labels[rows], counts=self.counts[rows])

    def project(self, axes: Tensor) -> Self:
        """The categories with features x A, for `axes` A (D, r)."""
        return replace(self, features=self.features @ axes)


@dataclass(frozen=True)
class FeatureBatch:
    """The features in which categories are to be discovered."""

    features: Tensor
    """(n, D)"""
    labels: Tensor
    """(n,) int64 label of the known class, or UNLABELLED."""
    n_novel: int | None
    """Number of novel categories among the unlabelled images, or None to estimate it."""
    known: KnownCategories
    """Categories of earlier batches that may occur among the unlabelled images."""
    seed: int
    """Random seed of the run."""
    index: int
    """Number of the batch, counted from 0; seed and index name every random draw."""
    returning: bool = False
    """Whether unlabelled images may be of any known category, so that the numbers of labelled images tell nothing about
    those of unlabelled ones."""

    def subset(self, rows: Tensor) -> Self:
        """The images `rows` alone."""
        return replace(self, features=self.features[rows], labels=self.labels[rows])

    @property
    def n_unlabelled(self) -> int:
        """Number of images without a label."""
        return int((self.labels == UNLABELLED).sum())

    def number(self, estimate: Callable[[], NumberEstimate]) -> tuple[int, NumberEstimate | None]:
        """Number of novel categories, and its estimate where it is not given."""
        if self.n_novel is not None:
            return self.n_novel, None
        estimated = estimate()
        return estimated.n_novel, estimated


@dataclass(frozen=True)
class DiscoveryResult:
    """Known and novel categories of a batch."""

    labels: tuple[int | None, ...]
    """Label of each of the k categories; None for a novel one. Known categories come first."""
    assignments: Tensor
    """(n,) int64 category of each image, 0 .. k - 1."""
    centroids: Tensor
    """(k, D) mean feature of each category, in the space of the features."""
    estimate: NumberEstimate | None
    """How the number of novel categories was estimated; None where it was given."""
    inertia: float | None = None
    """Sum of squared distances to the centroids in the space that was clustered."""
    parameters: dict[str, float | None] = field(default_factory=dict)
    """Hyperparameters that were chosen on the batch, by name, for the report."""

    @property
    def n_novel(self) -> int:
        """Number of novel categories."""
        return sum(label is None for label in self.labels)


class Discoverer(Protocol):
    """Finds the categories of a batch; may keep statistics of earlier batches, never their images."""

    def discover(self, batch: FeatureBatch, progress: Progress) -> DiscoveryResult:
        """Find known and novel categories of `batch`, and remember what later batches need."""

    def estimate(self, batch: FeatureBatch, progress: Progress) -> NumberEstimate:
        """Estimate the number of novel categories of `batch` before training; changes nothing."""

    def state(self) -> dict[str, Tensor]:
        """Statistics of earlier batches, for a checkpoint."""

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from `state`."""
