"""Joint: every task is trained together with all images of the tasks before.

    L = L_CE          over all classes so far, on all images so far

Not a continual method but the upper bound of every table. The network continues from task to task, so after the last
task it has been trained on the whole data set, and on early classes the longest.
"""

import sys

import torch.nn.functional as F
from torch import Tensor

from camp.methods.base import BuildContext
from camp.methods.cil.base import IncrementalMethod, IncrementalObjective
from camp.methods.cil.settings import IncrementalSettings
from camp.methods.trainer import Plan


class JointObjective(IncrementalObjective):
    """Cross-entropy over all classes."""

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:
        """Return L_CE of features z (1, B, D)."""
        return {"loss": F.cross_entropy(self.classifier(z[0]), labels)}


def make_joint(context: BuildContext, settings: IncrementalSettings) -> IncrementalMethod:
    """Make Joint, whose exemplar memory keeps every image."""
    return IncrementalMethod(context, settings.training, JointObjective, exemplars=sys.maxsize)
