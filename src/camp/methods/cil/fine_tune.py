"""Fine-tune: the network is trained on each task in turn.

    L = L_CE          over the classes of the task

Nothing is done against forgetting: the lower bound of every table.
"""

from torch import Tensor

from camp.methods.base import BuildContext
from camp.methods.cil.base import IncrementalMethod, IncrementalObjective
from camp.methods.cil.settings import IncrementalSettings
from camp.methods.trainer import Plan


class FineTuneObjective(IncrementalObjective):
    """Cross-entropy over the classes of the task."""

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:
        """Return L_CE of features z (1, B, D)."""
        return {"loss": self.new_cross_entropy(z[0], labels)}


def make_fine_tune(context: BuildContext, settings: IncrementalSettings) -> IncrementalMethod:
    """Make Fine-tune."""
    return IncrementalMethod(context, settings.training, FineTuneObjective)
