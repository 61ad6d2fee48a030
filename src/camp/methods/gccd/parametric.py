"""What SimGCD and IGCD share: a prototype for each category, whose row is the position of the category."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.types import UNLABELLED
from camp.data.tasks import Task
from camp.discovery.base import FeatureBatch, KnownCategories, NumberEstimate
from camp.methods.base import BuildContext, LearnedCategory
from camp.methods.components import TaskRun
from camp.methods.gccd.centroid_method import kmeans_discoverer
from camp.methods.settings import SimgcdLosses
from camp.methods.tip_method import TipMethod
from camp.methods.trainer import clean_features


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


class ParametricMethod(TipMethod):
    """A method with prototypes, of which there must be one for each category before training."""

    def __init__(self, context: BuildContext, settings: SimgcdLosses) -> None:
        super().__init__(context, settings.training)
        self.discoverer = kmeans_discoverer(settings.discovery)
        self._estimate: NumberEstimate | None = None

    def _decide_number(self, run: TaskRun, progress: Progress) -> PrototypeRows:
        """Estimate the number of novel categories where it is not given; returns the rows of the task."""
        task, self._estimate = run.task, None
        if task.n_novel is None:
            features = clean_features(run.tip, task.views, progress)
            self._estimate = self.discoverer.estimate(feature_batch(run, features), progress)
            run.task = replace(task, n_novel=self._estimate.n_novel)
        if not bool((task.labels != UNLABELLED).any()) and not run.task.n_novel:
            raise CampError(
                "There is nothing to find: no image is labelled and no novel category is expected."
            )
        return PrototypeRows.of_task(self.categories, run.task)

    def _prototypes(self, run: TaskRun) -> Tensor:
        """Return the prototypes (K, D) of the training under way."""
        assert run.trainer is not None
        prototypes: Tensor = run.trainer.step.objective.state_dict()["prototypes.weight"]
        return prototypes.cpu()


def feature_batch(run: TaskRun, features: Tensor) -> FeatureBatch:
    """Return the features (n, D) of a task as a discoverer takes them."""
    none = KnownCategories.empty(features.shape[1])
    return FeatureBatch(features, run.task.labels, run.task.n_novel, none, run.seed, run.task.index)
