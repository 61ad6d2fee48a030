"""Exemplar memory: a few images of each class, kept for later tasks and replayed with their labels."""

import torch
from torch import Tensor

from camp.core.seeds import generator
from camp.data.tasks import Task
from camp.data.views import Views


class ExemplarMemory:
    """Images of earlier tasks and their labels."""

    def __init__(self, per_class: int) -> None:
        """Keep `per_class` random images of each known class of a task."""
        self.per_class = per_class
        self.views: Views | None = None
        self.labels: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.labels is None else len(self.labels)

    def add_task(self, task: Task, seed: int) -> None:
        """Add random labelled images of each known class of a task."""
        if not self.per_class:
            return
        chosen = []
        for label in task.labels[task.labels >= 0].unique().tolist():
            rows = (task.labels == label).nonzero()[:, 0]
            order = torch.randperm(len(rows), generator=generator(seed, "exemplars", task.index, label))
            chosen.append(rows[order[: self.per_class]])
        if chosen:
            rows = torch.cat(chosen)
            self.add(task.views.subset(rows), task.labels[rows])

    def add(self, views: Views, labels: Tensor) -> None:
        """Add images with their labels (m,)."""
        if len(labels):
            self.views, self.labels = self.behind(views, labels, first=False)

    def behind(self, views: Views, labels: Tensor, first: bool = True) -> tuple[Views, Tensor]:
        """Join images and the exemplars; the images come `first`, or else the exemplars."""
        if self.views is None or self.labels is None:
            return views, labels
        if first:
            return views.concat(self.views), torch.cat([labels, self.labels])
        return self.views.concat(views), torch.cat([self.labels, labels])

    def state(self) -> dict[str, Tensor]:
        """Return the fingerprints and labels of the images."""
        if self.views is None or self.labels is None:
            return {}
        return {"digests": self.views.digests(), "labels": self.labels}

    def load_state(self, tensors: dict[str, Tensor], views: Views) -> None:
        """Continue from `state`; the images are found again in the bank of `views`."""
        self.views = views.from_digests(tensors["digests"]) if tensors else None
        self.labels = tensors.get("labels")
