"""A task as a method sees it, and the truth about it, which only evaluation is given."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from camp.data.views import Views


@dataclass(frozen=True)
class Task:
    """One batch of pictures T^t = T_L^t + T_U^t, in an order that says nothing about their classes.

    Labels are numbers of known classes, counted over the stream in the order in which they first come with a
    label: 0, 1, ... Classes that never carry a label have no number.
    """

    index: int
    """t, counted from 0."""
    views: Views
    """The n pictures."""
    labels: Tensor
    """(n,) int64: the known class, or UNLABELLED."""
    n_novel: int | None
    """Number of novel categories among the unlabelled pictures, or None if it is to be estimated."""
    total: int | None
    """K, the number of categories of the whole stream (the reference's prototypes), or None if not told."""

    def __len__(self) -> int:
        return len(self.views)


@dataclass(frozen=True)
class TaskTruth:
    """What evaluation knows about a task. Classes are positions in the stream's class order."""

    index: int
    known: tuple[int, ...]
    """Classes with labelled pictures in this task."""
    novel: tuple[int, ...]
    """Classes without."""
    train_classes: np.ndarray
    """(n,) true class of the task's pictures, in the order of `Task.views`."""
    train_keys: tuple[str, ...]
    test_views: Views
    test_classes: np.ndarray
    """(m,) true class of the test pictures."""
    test_keys: tuple[str, ...]
    class_of_label: tuple[int, ...]
    """The class behind each known-class number handed out so far, this task included."""
    class_names: tuple[str, ...]
    """Names of all classes of the stream."""
