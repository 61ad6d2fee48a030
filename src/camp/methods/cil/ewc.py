"""EWC: elastic weight consolidation (Kirkpatrick et al., PNAS 2017), online: one F for all tasks so far.

    L = L_CE + lambda / 2 sum_i F_i (theta_i - theta*_i)^2
    F <- a F + (1 - a) F_t,    F_t = 1/n sum_(x, y) ( d log p(y | x) / d theta )^2     over the pictures of the task

L_CE and p are over the classes of the task; theta are the parameters of the network without the classifier. The
numbers go back to FACIL, which the paper ran: a = 1/2 and lambda 5000. But FACIL squares the mean gradient of a batch
of 64 where the equation has the gradient of a picture, and the mean of 64 independent ones has a 64th of the square: the
same strength is lambda = 5000 / 64 here. It also takes the strongest answer in place of the label in F_t; here it is
the label, the empirical Fisher information.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.methods.cil.base import IncrementalMethod, IncrementalObjective, IncrementalSettings
from camp.methods.cil.fine_tune import FineTuneObjective
from camp.methods.consolidation import Consolidating, Consolidation, diagonal_fisher
from camp.methods.settings import check_share
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class EwcSettings(IncrementalSettings):
    """Those of every classifier, and of the consolidation."""

    ewc: float = 78.0
    """lambda, the weight of the penalty; FACIL's 5000 is for an F that is 64 times smaller."""
    fisher_kept: float = 0.5
    """a, how much of the earlier tasks' F is kept when a task's own is merged in."""

    def __post_init__(self) -> None:
        check_share("fisher_kept", self.fisher_kept)
        if not self.ewc >= 0:
            raise CampError(f"ewc, the weight of the penalty, can not be negative, and {self.ewc} is.")


class Ewc(Consolidating, IncrementalMethod):
    """Fine-tuning with the penalty."""

    def __init__(self, backbone: Backbone, settings: EwcSettings, seed: int, device: torch.device) -> None:
        super().__init__(backbone, settings.training, seed, device)
        self.settings = settings
        self.consolidation = Consolidation(settings.ewc)

    def _objective(self, old: int, known: int, generator: torch.Generator) -> IncrementalObjective:
        return FineTuneObjective(self.dim, old, known, generator)

    def _penalty(self) -> Callable[[], Tensor] | None:
        return self.consolidation.penalty(self.tip, self._old_tip)

    def _trained(self, progress: Progress) -> None:
        """Merge the task's Fisher information into that of earlier ones."""
        task, objective = self._current(), self._training().objective
        assert isinstance(objective, FineTuneObjective)
        labels = task.labels.to(self.device) - objective.old
        new = diagonal_fisher(self.tip, objective.new_logits, task.views, labels, progress)
        keep = self.settings.fisher_kept
        self.consolidation.gather(new, keep, 1 - keep)


def make_ewc(backbone: Backbone, settings: EwcSettings, seed: int, device: torch.device) -> Ewc:
    """EWC."""
    return Ewc(backbone, settings, seed, device)
