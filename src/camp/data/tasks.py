"""A task as a method sees it, and its ground truth, which only evaluation is given."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from camp.data.views import Views


@dataclass(frozen=True)
class Task:
    """The images of task t, T^t = T_L^t + T_U^t, in random order.

    Labels number the known classes 0, 1, ... in the order in which they are first labelled in the
    stream. Classes that are never labelled have no number.
    """

    index: int
    """Task index t, from 0."""
    views: Views
    """Views of the n images."""
    labels: Tensor
    """Labels (n,) int64: the known class, or UNLABELLED."""
    n_novel: int | None
    """Number of novel categories among the unlabelled images, or None if it must be estimated."""
    total: int | None
    """Number of categories K of the whole stream, or None if it is unknown."""
    returning: bool = False
    """Whether some of the unlabelled images may belong to categories of earlier tasks."""

    def __len__(self) -> int:
        return len(self.views)


@dataclass(frozen=True)
class TaskTruth:
    """Ground truth of a task, for evaluation; classes are indices in the class order of the stream."""

    index: int
    known: tuple[int, ...]
    """Classes with labelled images in this task."""
    novel: tuple[int, ...]
    """Classes that appear for the first time and have no labelled images."""
    train_classes: np.ndarray
    """True classes (n,) of the images, in the order of `Task.views`."""
    train_keys: tuple[str, ...]
    test_views: Views
    test_classes: np.ndarray
    """True classes (m,) of the test images."""
    test_keys: tuple[str, ...]
    class_of_label: tuple[int, ...]
    """Class of each label up to this task."""
    class_names: tuple[str, ...]
    """Names of all classes of the stream."""
