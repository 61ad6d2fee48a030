"""Exemplars: a few labelled pictures of every known class, kept for ever and replayed with their labels."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from camp.core.seeds import generator
from camp.data.tasks import Task
from camp.data.views import Views


@dataclass(frozen=True)
class Memory:
    """Pictures of earlier tasks and their known classes."""

    per_class: int
    views: Views | None = None
    labels: Tensor | None = None
    """(m,)"""

    def __len__(self) -> int:
        return 0 if self.labels is None else len(self.labels)

    def with_task(self, task: Task, seed: int) -> "Memory":
        """Add `per_class` random labelled pictures of each known class of a task."""
        chosen = []
        for label in task.labels[task.labels >= 0].unique().tolist():
            rows = (task.labels == label).nonzero()[:, 0]
            order = torch.randperm(len(rows), generator=generator(seed, "exemplars", task.index, label))
            chosen.append(rows[order[: self.per_class]])
        if not self.per_class or not chosen:
            return self
        rows = torch.cat(chosen)
        return self.joined(task.views.subset(rows), task.labels[rows])

    def joined(self, views: Views, labels: Tensor) -> "Memory":
        """The memory with more pictures, (m,) with their labels, behind those it has."""
        if not len(labels):
            return self
        if self.views is not None and self.labels is not None:
            views, labels = self.views.joined(views), torch.cat([self.labels, labels])
        return replace(self, views=views, labels=labels)

    def beside(self, task: Task) -> tuple[Views, Tensor]:
        """Views and labels of the task's pictures, followed by the exemplars."""
        if self.views is None or self.labels is None:
            return task.views, task.labels
        return task.views.joined(self.views), torch.cat([task.labels, self.labels])

    def state(self) -> dict[str, Tensor]:
        """Fingerprints and labels."""
        if self.views is None or self.labels is None:
            return {}
        return {"memory.digests": self.views.digests(), "memory.labels": self.labels}

    def restored(self, tensors: dict[str, Tensor], views: Views) -> "Memory":
        """The memory of `state`, its pictures found again in the bank of `views`."""
        if "memory.digests" not in tensors:
            return self
        return replace(self, views=views.restored(tensors["memory.digests"]), labels=tensors["memory.labels"])
