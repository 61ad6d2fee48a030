"""The interface of a method: what the run loop calls, and what evaluation reads."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.data.tasks import Task
from camp.data.views import Batch, Views
from camp.discovery.base import DiscoveryResult
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class BuildContext:
    """What every method is made with, besides its settings."""

    backbone: Backbone
    seed: int
    device: torch.device


@dataclass(frozen=True)
class LearnedCategory:
    """A category that a method has learned; its id never changes and is never reused."""

    id: int
    task: int
    """Index of the task in which it was learned or discovered."""
    label: int | None
    """Label of the known class it represents, or None if it was discovered."""
    size: int
    """Number of training images of its last task that belong to it."""


@dataclass(frozen=True)
class CentroidDrift:
    """Centroids of earlier tasks before and after the last adaptation."""

    stored: Tensor
    """(K, D) in the feature space of the task before."""
    adapted: Tensor
    """(K, D) in the present feature space."""


@dataclass(frozen=True)
class MethodState:
    """Everything a method needs to continue: tensors for a safetensors file, categories for JSON."""

    tensors: dict[str, Tensor]
    categories: list[LearnedCategory]


class Method(Protocol):
    """A continual learner: it receives tasks and answers with categories, without files or true labels.

    The life of a task is `start_task`, `epochs` times `train_epoch`, `finish_task`. `state` may be called
    between any two of these calls, and `load_state` continues from there with the same numbers.

    Training can be shared between runs: `trained_state`, taken after the last epoch of a task, holds all that
    training has changed and that `finish_task` reads. `load_trained_state`, called after `start_task`, stands
    in for the epochs; `MethodSettings.after_training` says which runs train alike.
    """

    categories: list[LearnedCategory]
    """Ordered by the positions that `predict` returns."""
    centroids: Tensor | None
    """(K, D) centroids of the categories, for methods that have them."""
    drift: CentroidDrift | None
    """Effect of the last task on earlier centroids."""
    epochs: int
    """Number of training epochs of a task."""
    trains: bool
    """Whether it reads augmented views; one that trains nothing needs the clean view of each image alone."""
    discovery: DiscoveryResult | None
    """Categories of the last task as they were discovered; None for methods that discover nothing."""

    def start_task(self, task: Task, progress: Progress) -> None:
        """Prepare the training of a task."""

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """Train for one epoch (phase 1) and return the mean of each term of the loss."""

    def finish_task(self, progress: Progress) -> None:
        """Discover categories and adapt those of earlier tasks (phases 2 and 3)."""

    def features(self, batch: Batch) -> Tensor:
        """Return the features (n, D) of a batch of views under the present model."""

    def predict(
        self, features: Tensor, allowed: Tensor | None = None, centroids: Tensor | None = None
    ) -> Tensor:
        """Return positions (n,) in `categories` of features (n, D), of those in `allowed` alone if given.

        `centroids` (K, D) replace those of the method; methods without centroids ignore them.
        """

    def assigned(self) -> Tensor:
        """Return the position in `categories` (n,) of each training image of the last task."""

    def trained_state(self) -> dict[str, Tensor]:
        """Return what training has changed and what comes after training depends on."""

    def load_trained_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over the `trained_state` of another run in place of training."""

    def state(self) -> MethodState:
        """Return all that is remembered, inside a task too."""

    def load_state(self, state: MethodState, task: Task | None, views: Views) -> None:
        """Continue from `state` in a task, or between tasks if it is None.

        `views` are any views of the bank, by which remembered images are found again.
        """
