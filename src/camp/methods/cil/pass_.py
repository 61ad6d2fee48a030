"""PASS: prototype augmentation and self-supervision (Zhu et al., CVPR 2021).

    L = L_CE + lambda_f L_F + lambda_p L_P

    L_CE   cross-entropy of every view in its four quarter turns; class y turned r times is class 4 y + r
    L_F    ( sum_i |F^t(x_i) - F^{t-1}(x_i)|^2 )^1/2, distance from the features of the old network, all turns
    L_P    cross-entropy of old prototypes with noise, mu_y + r e with e ~ N(0, I), as class 4 y

all logits over tau and over the outputs of all classes so far. Telling turns apart makes for features that later
tasks can use; the noisy prototypes hold the borders between classes that are no longer seen. A picture is answered
as it stands, by the outputs 4 y alone: neither the original nor PyCIL averages over turns.

Where the original (Impression2805/CVPR21_PASS) and PyCIL, whose results the paper gives, do not agree: a step has as
many prototypes as pictures, as in the original, where PyCIL has K_old / K_new times as many (their mean is taken, so
that this changes its noise alone); and r comes from the first task, where PyCIL measures it anew after each. Both
take L_F as one norm over the whole batch, which grows with the root of its size; so do we, for the sake of lambda_f.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.data.rotation import TURNS, quarter_turns
from camp.data.views import Batch, Views
from camp.methods.cil.base import Plan
from camp.methods.cil.prototypes import PrototypeMethod, PrototypeObjective, PrototypeSettings, check_pixels
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class PassSettings(PrototypeSettings):
    """Those of every method with prototypes."""


class PassObjective(PrototypeObjective):
    """Four outputs for each class, one for each turn."""

    outputs = TURNS
    copies = TURNS

    def plan(self, labels: Tensor, draw: torch.Generator) -> Plan:
        """`classes` (B,) of the prototypes of the step and their `noise` (B, D), from the second task on."""
        if self.prototypes is None:
            return {}
        noise = torch.randn(len(labels), self.prototypes.means.shape[1], generator=draw)
        return {"classes": self.prototypes.draw_classes(len(labels), draw), "noise": noise}

    def look(self, views: Views, rows: Tensor, ids: Tensor, plan: Plan, mine: slice) -> Batch:
        """The four turns of an augmented view of each picture."""
        return {"pixels": quarter_turns(super().look(views, rows, ids, plan, mine)["pixels"])}

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:  # type: ignore[override]
        """z (4, B, D), one row a turn."""
        turned = TURNS * labels + torch.arange(TURNS, device=labels.device)[:, None]  # (4, B)
        l_ce = self._cross_entropy(z.flatten(0, 1), turned.flatten())
        if self.prototypes is None or z_old is None:
            return {"ce": l_ce, "loss": l_ce}
        classes = plan["classes"]
        l_p = self._cross_entropy(self.prototypes.noisy(classes, plan["noise"]), TURNS * classes)
        return self.total(l_ce, torch.dist(z, z_old), l_p)

    def _cross_entropy(self, z: Tensor, targets: Tensor) -> Tensor:
        """Of features (n, D), over all outputs."""
        return F.cross_entropy(self.classifier(z) / self.settings.temperature, targets)


class Pass(PrototypeMethod):
    """A classifier of classes and turns, with noisy prototypes."""

    def _objective(self, old: int, known: int, generator: torch.Generator) -> PassObjective:
        return PassObjective(self.dim, old, known, generator, self.settings, self._old_prototypes())


def make_pass(backbone: Backbone, settings: PassSettings, seed: int, device: torch.device) -> Pass:
    """PASS."""
    check_pixels(backbone, "PASS")
    return Pass(backbone, settings, seed, device)
