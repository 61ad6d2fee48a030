"""The losses of SimGCD (Wen et al., ICCV 2023), which CAMP and IGCD train with as well.

L_SSL = L_SimCLR + L_pseudo          on every picture of the step
L_SL  = L_SupCon + L_CE              on the labelled ones
L     = (1 - beta) L_SSL + beta L_SL
"""

import torch
from torch import Tensor

from camp.methods.heads import Prototypes, camp_projector
from camp.methods.settings import SimgcdLosses
from camp.methods.trainer import Objective
from camp.nn.losses import (
    balanced,
    cross_entropy,
    mean_entropy,
    pseudo_label,
    simclr,
    supcon,
    teacher_temperature,
)


class SimgcdObjective(Objective):
    """(1 - beta) L_SSL + beta L_SL, with the projector g and K prototypes."""

    def __init__(
        self,
        settings: SimgcdLosses,
        dim: int,
        prototypes: int,
        generator: torch.Generator,
        *,
        supervised: bool = True,
        self_supervised: bool = True,
        lasting: bool = False,
    ) -> None:
        super().__init__()
        self.settings, self.lasting = settings, lasting
        self.supervised, self.self_supervised = supervised, self_supervised
        self.projector = camp_projector(dim, settings.projector_width, generator)
        self.prototypes = Prototypes(dim, prototypes, generator)

    def forward(self, z: Tensor, own: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """z (2, B, D); the pictures from `own` on have `labels`. The first ones count as unlabelled."""
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
            terms["supcon"] = supcon(h[:, own:], labels, s.supcon_temperature)
            terms["ce"] = cross_entropy(logits[:, own:], labels)
            l_sl = terms["supcon"] + terms["ce"]
        terms["loss"] = balanced(l_ssl, l_sl, s.beta)
        return terms

    def logits(self, z: Tensor) -> Tensor:
        """(..., D) -> cosines with the prototypes that take part."""
        return self.prototypes(z)
