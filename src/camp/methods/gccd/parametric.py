"""What SimGCD and IGCD share: a prototype for each category, whose row is the position of the category."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.data.tasks import Task
from camp.discovery.base import Discoverer, FeatureBatch, KnownCategories, NumberEstimate
from camp.methods.base import LearnedCategory
from camp.methods.components import TaskRun
from camp.methods.settings import Training
from camp.methods.trainer import Trainer, TrainingData, clean_features
from camp.methods.two_views import TwoViewObjective, TwoViewStep


@dataclass(frozen=True)
class PrototypeRows:
    """The rows of the prototypes: earlier categories keep theirs, new classes and then novel categories follow."""

    row_of_label: dict[int, int]
    task_labels: tuple[int, ...]
    """Labels of the task, sorted."""
    first_novel: int
    """Row of the first novel category of the task."""
    n_novel: int

    @classmethod
    def of_task(cls, categories: Sequence[LearnedCategory], task: Task) -> "PrototypeRows":
        """Return the rows of earlier categories and of those of a task whose number of novel ones is given."""
        assert task.n_novel is not None
        rows = {c.label: row for row, c in enumerate(categories) if c.label is not None}
        labels = task.labels[task.labels != UNLABELLED].unique().tolist()
        new = [label for label in labels if label not in rows]
        rows |= {label: len(categories) + i for i, label in enumerate(new)}
        return cls(rows, tuple(labels), len(categories) + len(new), task.n_novel)

    @property
    def total(self) -> int:
        """Number of prototypes."""
        return self.first_novel + self.n_novel

    def of(self, labels: Tensor) -> Tensor:
        """Return the rows (n,) of labels (n,); UNLABELLED stays."""
        rows = [self.row_of_label.get(label, UNLABELLED) for label in labels.tolist()]
        return torch.tensor(rows, dtype=torch.long)

    def of_task_categories(self) -> Tensor:
        """Return the rows (k,) of the categories of the task: its labels, sorted, then the novel ones."""
        novel = torch.arange(self.first_novel, self.total)
        return torch.cat([self.of(torch.tensor(self.task_labels)), novel])


def with_number(run: TaskRun, discoverer: Discoverer, progress: Progress) -> NumberEstimate | None:
    """Decide on the number of novel categories before training, since every category needs its prototype.

    Returns:
        The estimate, or None if the number was given. `run.task` has the number in either case.
    """
    task, estimate = run.task, None
    if task.n_novel is None:
        features = clean_features(run.tip, task.views, progress)
        estimate = discoverer.estimate(feature_batch(run, features), progress)
        run.task = replace(task, n_novel=estimate.n_novel)
    if not bool((task.labels != UNLABELLED).any()) and not run.task.n_novel:
        raise CampError("There is nothing to find: no image is labelled and no novel category is expected.")
    return estimate


def feature_batch(run: TaskRun, features: Tensor) -> FeatureBatch:
    """Return the features (n, D) of a task as a discoverer takes them."""
    none = KnownCategories.empty(features.shape[1])
    return FeatureBatch(features, run.task.labels, run.task.n_novel, none, run.seed, run.task.index)


def parametric_trainer(
    run: TaskRun, objective: TwoViewObjective, data: TrainingData, settings: Training
) -> Trainer:
    """Make a trainer without distillation."""
    seeds = (run.seed, run.task.index)
    step = TwoViewStep(objective)
    return Trainer(tip=run.tip, step=step, data=data, settings=settings, device=run.device, seeds=seeds)


def current_prototypes(run: TaskRun) -> Tensor:
    """Return the prototypes (K, D) of the training under way."""
    assert run.trainer is not None
    prototypes: Tensor = run.trainer.step.objective.state_dict()["prototypes.weight"]
    return prototypes.cpu()
