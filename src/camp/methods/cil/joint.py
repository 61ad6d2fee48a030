"""Joint: every task is trained together with all images of the tasks before.

    L = L_CE          over all classes so far, on all images so far

Not a continual method but the upper bound of every table. The network continues from task to task, so after the last
task it has been trained on the whole data set, and on early classes the longest.
"""

import sys
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from camp.methods.base import BuildContext
from camp.methods.cil.base import (
    IncrementalComponents,
    IncrementalMethod,
    IncrementalObjective,
    IncrementalSettings,
)
from camp.methods.trainer import Plan


@dataclass(frozen=True)
class JointSettings(IncrementalSettings):
    """Settings of training alone."""


class JointObjective(IncrementalObjective):
    """Cross-entropy over all classes."""

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:
        """Return L_CE of features z (1, B, D)."""
        return {"loss": F.cross_entropy(self.classifier(z[0]), labels)}


def make_joint(context: BuildContext, settings: JointSettings) -> IncrementalMethod:
    """Make Joint, whose exemplar memory keeps every image."""
    parts = IncrementalComponents(JointObjective, settings.training, exemplars=sys.maxsize)
    return IncrementalMethod(context, parts)
