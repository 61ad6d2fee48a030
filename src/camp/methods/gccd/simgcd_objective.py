"""The losses of SimGCD (Wen et al., ICCV 2023), which CAMP and IGCD use as well.

L_SSL = L_SimCLR + L_pseudo          on every image of the step
L_SL  = L_SupCon + L_CE              on the labelled ones
L     = (1 - beta) L_SSL + beta L_SL
"""

import torch
from torch import Tensor

from camp.methods.heads import CosinePrototypes, camp_projector
from camp.methods.settings import SimgcdLosses
from camp.methods.two_views import TwoViewObjective
from camp.nn.losses import (
    balanced,
    cross_entropy,
    mean_entropy,
    pseudo_label,
    simclr,
    supcon,
    teacher_temperature,
)


class SimgcdObjective(TwoViewObjective):
    """SimGCD's loss, with a projection head and K prototypes."""

    def __init__(
        self,
        settings: SimgcdLosses,
        dim: int,
        prototypes: int,
        generator: torch.Generator,
        *,
        supervised: bool = True,
        self_supervised: bool = True,
        persistent: bool = False,
    ) -> None:
        super().__init__()
        self.settings, self.persistent = settings, persistent
        self.supervised, self.self_supervised = supervised, self_supervised
        self.projector = camp_projector(dim, settings.projector_width, generator)
        self.prototypes = CosinePrototypes(dim, prototypes, generator)

    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return the terms of the loss for features z (2, B, D); L_SSL is on all images."""
        s = self.settings
        h = self.projector(z)
        logits = self.logits(z)
        terms: dict[str, Tensor] = {}
        l_ssl = l_sl = z.new_zeros(())
        if self.self_supervised:
            terms["simclr"] = simclr(h, s.simclr_temperature)
            terms["pseudo"] = pseudo_label(logits, teacher_temperature(epoch))
            terms["entropy"] = mean_entropy(logits)
            l_ssl = terms["simclr"] + terms["pseudo"] + s.entropy_weight * terms["entropy"]
        if self.supervised:
            terms["supcon"] = supcon(h[:, num_task_images:], labels, s.supcon_temperature)
            terms["ce"] = cross_entropy(logits[:, num_task_images:], labels)
            l_sl = terms["supcon"] + terms["ce"]
        terms["loss"] = balanced(l_ssl, l_sl, s.beta)
        return terms

    def logits(self, z: Tensor) -> Tensor:
        """Return the cosines (..., K) of features (..., D) with the prototypes."""
        logits: Tensor = self.prototypes(z)
        return logits
