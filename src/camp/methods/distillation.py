"""Distillation of features: the model in training must still be able to predict the features of the one before.

L    = (1 - alpha) L_objective + alpha L_KD      from the second task on,  L_objective in the first
L_KD = d(phi(F^t(x)), F^{t-1}(x))                with d the squared Euclidean or the cosine distance
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from camp.core import distributed
from camp.core.devices import to_device
from camp.core.progress import Progress
from camp.data.views import Batch, Views
from camp.methods.trainer import FORWARD_BATCH, StepBatch, gathered
from camp.nn.losses import projected_distillation

_TABLE_BYTES = 2**30
"""Old features of all views are kept in memory up to this size, and computed in each step beyond it."""


@dataclass(frozen=True)
class Distillation:
    """L_KD and its weight."""

    alpha: float
    kind: Literal["mse", "cosine"]
    data: Literal["all", "task"]
    """Images of a step that it is computed on: all of them, or without the labelled batch."""
    views: Literal["mean", "sum"]
    """Mean over all views, or the sum of the two views' means (twice as strong)."""


class OldFeatures:
    """F^{t-1}(x) of augmented views. The old tip never changes, so with a bank they are computed once."""

    def __init__(self, tip: nn.Module, views: Views, dim: int, progress: Progress) -> None:
        self.tip, self.dim = tip, dim
        self.table: Tensor | None = None
        count = views.augmentations
        if count is None or len(views) * count * dim * 4 > _TABLE_BYTES:
            return
        with progress.track("Old features", len(views) * count // distributed.world_size()) as bar:

            def of(rows: Tensor) -> Tensor:
                table = torch.empty(len(rows), count, dim)
                for part in torch.arange(len(rows)).split(FORWARD_BATCH):
                    for v in range(count):
                        batch = views.augmented(rows[part], torch.full((1, len(part)), v))
                        table[part, v] = self._forward(batch).cpu()
                        bar.advance(len(part))
                return table

            self.table = distributed.map_sharded(len(views), of)

    def __call__(self, rows: Tensor, ids: Tensor, batch: Batch) -> Tensor:
        """Return the features (count, B, D) of the views `ids` (count, B) of images `rows` (B,).

        `batch` is the trunk's output for this process's share of them.
        """
        if self.table is not None:
            return self.table[rows, ids]
        return gathered(self._forward(batch), len(ids), len(rows))

    @torch.no_grad()
    def _forward(self, batch: Batch) -> Tensor:
        z: Tensor = self.tip(batch)
        return z


class Distiller:
    """The projection phi from the new feature space to the old one, and the loss it is trained with."""

    def __init__(self, network: nn.Module, old: OldFeatures, settings: Distillation) -> None:
        self.network, self.old, self.settings = network.train(), old, settings

    def loss(self, z: Tensor, batch: StepBatch) -> Tensor:
        """Return L_KD of the features z (2, B, D) of a step."""
        z_old = to_device(self.old(batch.rows, batch.ids, batch.views), z.device)
        if self.settings.data == "task" and batch.num_task_images:
            z, z_old = z[:, : batch.num_task_images], z_old[:, : batch.num_task_images]
        predicted = self.network(z.flatten(0, 1))
        loss = projected_distillation(predicted, z_old.flatten(0, 1), kind=self.settings.kind)
        return 2 * loss if self.settings.views == "sum" else loss
