"""The training step of the contrastive methods: two views of images of the task and of as many labelled ones."""

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from camp.core import distributed
from camp.methods.distillation import Distiller
from camp.methods.trainer import Objective, StepBatch, Trainer, TrainingData, TrainingStep
from camp.nn.losses import distilled


class TwoViewObjective(Objective):
    """A loss of two views of each image."""

    @abstractmethod
    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return the terms of the loss by name, with `loss` among them.

        z (2, B, D) are the features of two views of B images: first `num_task_images` of the task, treated as
        unlabelled, then labelled ones. The former number is 0 where every image has a label, so that the B images
        serve as both (see `unlabelled`).
        """


def unlabelled(x: Tensor, num_task_images: int) -> Tensor:
    """Select the images of x (2, B, ...) that are treated as unlabelled: the first ones, or all of them if 0."""
    return x[:, :num_task_images] if num_task_images else x


class TwoViewStep(TrainingStep):
    """An objective on two views, and a distiller from the second task on."""

    def __init__(self, objective: TwoViewObjective, distiller: Distiller | None = None) -> None:
        super().__init__(objective)
        self.distiller = distiller

    def modules(self) -> dict[str, nn.Module]:
        """Return the objective and the distiller."""
        return super().modules() | ({} if self.distiller is None else {"distiller": self.distiller.network})

    def batches(self, data: TrainingData, batch_size: int, draw: torch.Generator) -> Iterator[StepBatch]:
        """Draw images of the task, and as many labelled ones; one batch serves as both if all are labelled."""
        apart = not data.all_labelled
        labelled = cycle(data.labelled, batch_size, draw)
        images = data.num_task_images if apart else len(data.labels)
        for task_rows in torch.randperm(images, generator=draw).split(batch_size):
            rows = torch.cat([task_rows, next(labelled)]) if apart else task_rows
            ids = data.views.draw(rows, 2, draw)
            mine = distributed.shard(len(rows))
            views = data.views.augmented(rows[mine], ids[:, mine])
            yield StepBatch(rows, len(task_rows) if apart else 0, ids, views)

    def terms(self, trainer: Trainer, batch: StepBatch, epoch: int) -> dict[str, Tensor]:
        """Return the terms of the objective, and L_KD."""
        z = trainer.features(trainer.tip, batch, copies=2)
        labels = trainer.labels(batch.rows[batch.num_task_images :])
        terms: dict[str, Tensor] = self.objective(z, batch.num_task_images, labels, epoch)
        if self.distiller is not None:
            terms["kd"] = self.distiller.loss(z, batch)
            terms["loss"] = distilled(terms["loss"], terms["kd"], self.distiller.settings.alpha)
        return terms


def cycle(rows: Tensor, size: int, draw: torch.Generator) -> Iterator[Tensor]:
    """Yield batches of `rows`, shuffled again whenever all have been drawn; empty ones if there are no rows."""
    while True:
        if not len(rows):
            yield rows
            continue
        yield from rows[torch.randperm(len(rows), generator=draw)].split(size)
