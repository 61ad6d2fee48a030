"""LwF: Learning without Forgetting (Li and Hoiem, TPAMI 2018).

    L = L_CE + lambda L_KD,    L_KD = - sum_k q_k log p_k,   p, q = softmax(logits / 2) over the old classes

L_CE is over the classes of the task; q is the prediction of the network of the task before for the same image, p that
of the present one. As in FACIL, which the paper ran, there is no factor of temperature squared, and the outputs of old
classes are frozen: the gradient of L_KD reaches the network alone. FACIL adds 1e-5 / K to each p_k, which changes L_KD
where p_k is that small only.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.methods.base import BuildContext
from camp.methods.cil.base import ClassRange, IncrementalMethod, IncrementalObjective
from camp.methods.cil.settings import LwfSettings
from camp.methods.trainer import Plan
from camp.nn.losses import logit_distillation


class LwfObjective(IncrementalObjective):
    """Cross-entropy on the new classes, distillation on the old ones, whose outputs are frozen."""

    compares = True

    def __init__(self, settings: LwfSettings, sizes: ClassRange, generator: torch.Generator) -> None:
        super().__init__(sizes, generator)
        self.settings = settings

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:
        """Return L_CE, L_KD and L of features z and z_old (1, B, D)."""
        l_ce = self.new_cross_entropy(z[0], labels)
        if z_old is None:
            return {"loss": l_ce}
        l_kd = logit_distillation(
            self._old_logits(z[0]), self._old_logits(z_old[0]), self.settings.temperature
        )
        return {"ce": l_ce, "kd": l_kd, "loss": l_ce + self.settings.lwf * l_kd}

    def _old_logits(self, z: Tensor) -> Tensor:
        """Return the logits (B, old) of the classes of earlier tasks, without a gradient of the classifier."""
        weight, bias = self.classifier.weight.detach(), self.classifier.bias.detach()
        return F.linear(z, weight[: self.old], bias[: self.old])


def make_lwf(context: BuildContext, settings: LwfSettings) -> IncrementalMethod:
    """Make LwF."""
    return IncrementalMethod(
        context, settings.training, lambda sizes, generator: LwfObjective(settings, sizes, generator)
    )
