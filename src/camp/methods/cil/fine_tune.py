"""Fine-tune: the network goes on with each task as if there had been none before.

    L = L_CE          over the classes of the task

Nothing is done against forgetting: the lower end of every table.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from camp.methods.cil.base import IncrementalMethod, IncrementalObjective, IncrementalSettings, Plan
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class FineTuneSettings(IncrementalSettings):
    """Those of every classifier."""


class FineTuneObjective(IncrementalObjective):
    """Cross-entropy and nothing else."""

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:  # type: ignore[override]
        """z (1, B, D)."""
        return {"loss": self.new_cross_entropy(z[0], labels)}


class FineTune(IncrementalMethod):
    """A classifier without a memory."""

    def _objective(self, old: int, known: int, generator: torch.Generator) -> IncrementalObjective:
        return FineTuneObjective(self.dim, old, known, generator)


def make_fine_tune(
    backbone: Backbone, settings: FineTuneSettings, seed: int, device: torch.device
) -> FineTune:
    """Fine-tune."""
    return FineTune(backbone, settings.training, seed, device)
