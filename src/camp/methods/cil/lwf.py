"""LwF: Learning without Forgetting (Li and Hoiem, TPAMI 2018).

    L = L_CE + lambda L_KD,    L_KD = - sum_k q_k log p_k,   p, q = softmax(logits / 2) over the old classes

L_CE is over the classes of the task; q is what the network of the task before says to the same picture, p what it
says now. There is no factor of temperature squared, as in FACIL, which the paper ran.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.errors import CampError
from camp.methods.cil.base import IncrementalMethod, IncrementalObjective, IncrementalSettings, Plan
from camp.methods.settings import check_positive
from camp.nn.backbones.base import Backbone
from camp.nn.losses import logit_distillation


@dataclass(frozen=True)
class LwfSettings(IncrementalSettings):
    """Those of every classifier, and of the distillation."""

    lwf: float = 1.0
    """lambda, the weight of distillation."""
    temperature: float = 2.0
    """Of distillation; larger ones tell more about the classes that were not chosen."""

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        if not self.lwf >= 0:
            raise CampError(f"lwf, the weight of distillation, can not be negative, and {self.lwf} is.")


class LwfObjective(IncrementalObjective):
    """Cross-entropy on the new classes, distillation on the old ones."""

    compares = True
    old_weight: Tensor
    old_bias: Tensor

    def __init__(
        self, settings: LwfSettings, dim: int, old: int, known: int, generator: torch.Generator
    ) -> None:
        super().__init__(dim, old, known, generator)
        self.settings = settings
        # The classifier as it was: found again in the heads of the task before, so not part of the state.
        self.register_buffer("old_weight", torch.empty(0, dim), persistent=False)
        self.register_buffer("old_bias", torch.empty(0), persistent=False)

    @torch.no_grad()
    def inherit(self, heads: dict[str, Tensor]) -> None:
        """Also keep the classifier of the task before."""
        super().inherit(heads)
        self.old_weight = heads["classifier.weight"].to(self.classifier.weight.device)
        self.old_bias = heads["classifier.bias"].to(self.classifier.bias.device)

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:  # type: ignore[override]
        """z and z_old (1, B, D)."""
        l_ce = self.new_cross_entropy(z[0], labels)
        if z_old is None:
            return {"loss": l_ce}
        now = F.linear(z[0], self.classifier.weight[: self.old], self.classifier.bias[: self.old])
        before = F.linear(z_old[0], self.old_weight, self.old_bias)
        l_kd = logit_distillation(now, before, self.settings.temperature)
        return {"ce": l_ce, "kd": l_kd, "loss": l_ce + self.settings.lwf * l_kd}


class Lwf(IncrementalMethod):
    """A classifier that keeps its old answers."""

    def __init__(self, backbone: Backbone, settings: LwfSettings, seed: int, device: torch.device) -> None:
        super().__init__(backbone, settings.training, seed, device)
        self.settings = settings

    def _objective(self, old: int, known: int, generator: torch.Generator) -> IncrementalObjective:
        return LwfObjective(self.settings, self.dim, old, known, generator)


def make_lwf(backbone: Backbone, settings: LwfSettings, seed: int, device: torch.device) -> Lwf:
    """LwF."""
    return Lwf(backbone, settings, seed, device)
