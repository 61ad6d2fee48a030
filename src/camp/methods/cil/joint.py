"""Joint: every task is learned together with all pictures of the tasks before.

    L = L_CE          over all classes so far, on all pictures so far

Not a continual method but the upper end of every table: nothing is forgotten because nothing is given away. The
network goes on from task to task, so after the last one it has seen the whole data set, and early classes most.
"""

import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.methods.cil.base import IncrementalMethod, IncrementalObjective, IncrementalSettings, Plan
from camp.methods.exemplars import Memory
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class JointSettings(IncrementalSettings):
    """Those of every classifier."""


class JointObjective(IncrementalObjective):
    """Cross-entropy over all classes."""

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:  # type: ignore[override]
        """z (1, B, D)."""
        return {"loss": F.cross_entropy(self.classifier(z[0]), labels)}


class Joint(IncrementalMethod):
    """A classifier with a memory of everything."""

    def __init__(self, backbone: Backbone, settings: JointSettings, seed: int, device: torch.device) -> None:
        super().__init__(backbone, settings.training, seed, device)
        self.memory = Memory(sys.maxsize)

    def _objective(self, old: int, known: int, generator: torch.Generator) -> IncrementalObjective:
        return JointObjective(self.dim, old, known, generator)


def make_joint(backbone: Backbone, settings: JointSettings, seed: int, device: torch.device) -> Joint:
    """Joint."""
    return Joint(backbone, settings, seed, device)
