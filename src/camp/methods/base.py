"""What the run loop asks of a method, and what evaluation reads from it."""

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from camp.core.progress import Progress
from camp.data.tasks import Task
from camp.data.views import Batch, Views


@dataclass(frozen=True)
class Category:
    """A category the method knows; its id never changes and is never used again."""

    id: int
    task: int
    """The task it was learned or discovered in."""
    label: int | None
    """The known class it stands for, or None if it was discovered."""
    size: int
    """Pictures of its task that it was made from."""


@dataclass(frozen=True)
class Drift:
    """Centroids of earlier tasks before and after the last adaptation."""

    stored: Tensor
    """(K, D) as they were kept, in the old feature space."""
    adapted: Tensor
    """(K, D) carried into the new one."""


@dataclass
class State:
    """Everything a method needs to go on: tensors for a safetensors file, the rest for JSON."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]


class Method(Protocol):
    """A method is given tasks and answers with categories. It sees neither files nor true labels."""

    categories: list[Category]
    """In the order of the numbers that `predict` gives."""
    centroids: Tensor | None
    """(K, D) of the categories, for methods that have them."""
    drift: Drift | None
    """What the last task did to earlier centroids."""
    epochs: int
    """Epochs a task takes."""
    found: dict[str, Any]
    """Facts about the last discovery: novel categories used, the curve of the estimate."""

    def start_task(self, task: Task, progress: Progress) -> None:
        """Get ready for a task."""

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """One epoch of phase 1; returns the mean of each part of the loss."""

    def finish_task(self, progress: Progress) -> None:
        """Discover, adapt, remember: phases 2 and 3."""

    def features(self, batch: Batch) -> Tensor:
        """(n, D) features of views, by the present model."""

    def predict(self, features: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(n,) positions in `categories`, of those in `allowed` alone if given."""

    def assigned(self) -> Tensor:
        """(n,) position in `categories` of each picture of the last task, as clustering put it."""

    def trained_state(self) -> dict[str, Tensor]:
        """Return what training has changed and what comes after training depends on."""

    def load_trained_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over the `trained_state` of another run in place of training."""

    def state(self) -> State:
        """All there is to remember, inside a task too."""

    def load(self, state: State, task: Task | None, views: Views) -> None:
        """Go on from `state`; `task` is the one under way, `views` any views of the bank."""
