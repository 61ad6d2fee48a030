"""Make the tasks of a stream from a split."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from camp.core.errors import CampError
from camp.core.seeds import numpy_generator
from camp.core.types import UNLABELLED
from camp.data.datasets.base import Dataset
from camp.data.split import Split
from camp.data.tasks import Task, TaskTruth
from camp.data.views import Views


def make_task(
    split: Split, dataset: Dataset, index: int, open_views: Callable[[Sequence[str]], Views]
) -> tuple[Task, TaskTruth]:
    """Return task `index` (from 0) as a method sees it, and the ground truth for evaluation.

    `open_views(keys)` returns the views of images.
    """
    if dataset.name != split.dataset:
        raise CampError(f"The split is of {split.dataset}, but the data set is {dataset.name}.")
    if not 0 <= index < len(split.tasks):
        raise CampError(f"The stream has tasks 0..{len(split.tasks) - 1}, not {index}.")
    task = split.tasks[index]
    # In the order in which classes are first labelled.
    class_of_label = tuple(dict.fromkeys(known for t in split.tasks[: index + 1] for known in t.known))
    label_of_class = {label: number for number, label in enumerate(class_of_label)}

    # Keys are often sorted by class, so the task must not keep their order.
    keys = sorted({*task.labelled, *task.unlabelled})
    order = numpy_generator(split.seed, "task", index).permutation(len(keys))
    keys = [keys[row] for row in order]
    labelled = set(task.labelled)
    labels = [label_of_class[split.class_of[key]] if key in labelled else UNLABELLED for key in keys]

    tell = split.scenario.tell_k
    task_seen = Task(
        index=index,
        views=open_views(keys),
        labels=torch.tensor(labels, dtype=torch.int64),
        n_novel=len(task.novel) if tell else None,
        total=len(split.classes) if tell else None,
        returning=index > 0 and split.scenario.recurring_fraction > 0,
    )
    truth = TaskTruth(
        index=index,
        known=task.known,
        novel=task.novel,
        train_classes=np.array([split.class_of[key] for key in keys], dtype=np.int64),
        train_keys=tuple(keys),
        test_views=open_views(task.test),
        test_classes=np.array([split.class_of[key] for key in task.test], dtype=np.int64),
        test_keys=task.test,
        class_of_label=class_of_label,
        class_names=split.classes,
    )
    return task_seen, truth
