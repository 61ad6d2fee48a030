"""PASS: prototype augmentation and self-supervision (Zhu et al., CVPR 2021).

    L = L_CE + lambda_f L_F + lambda_p L_P

    L_CE   cross-entropy of every view in its four rotations; class y rotated r times is class 4 y + r
    L_F    ( sum_i |F^t(x_i) - F^{t-1}(x_i)|^2 )^1/2, distance from the features of the old network, all rotations
    L_P    cross-entropy of old prototypes with noise, mu_y + r e with e ~ N(0, I), as class 4 y

with all logits divided by the temperature, and over the outputs of all classes so far. An image is classified without
rotation, by the outputs 4 y alone: neither the original nor PyCIL averages over rotations.

Where the original (Impression2805/CVPR21_PASS) and PyCIL, whose results the paper gives, differ: a step has as many
prototypes as images, as in the original, where PyCIL has K_old / K_new times as many (of which the mean is taken); and
r is measured in the first task, where PyCIL measures it again after each. Both take L_F as one norm over the whole
batch, which grows with the root of its size; so does this module, to keep the meaning of lambda_f.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.data.rotation import TURNS, quarter_turns
from camp.data.views import Batch, Views
from camp.methods.base import BuildContext
from camp.methods.cil.base import IncrementalMethod
from camp.methods.cil.prototypes import PrototypeObjective, prototype_replay
from camp.methods.cil.settings import PassSettings
from camp.methods.trainer import Plan


class PassObjective(PrototypeObjective):
    """Four outputs for each class, one for each rotation."""

    outputs = TURNS

    def copies(self) -> int:
        """Return the number of rotations."""
        return TURNS

    def plan(self, labels: Tensor, draw: torch.Generator) -> Plan:
        """Draw `classes` (B,) of prototypes and their `noise` (B, D), from the second task on."""
        if self.prototypes is None:
            return {}
        noise = torch.randn(len(labels), self.prototypes.means.shape[1], generator=draw)
        return {"classes": self.prototypes.draw_classes(len(labels), draw), "noise": noise}

    def look(self, views: Views, rows: Tensor, ids: Tensor, plan: Plan, mine: slice) -> Batch:
        """Return the four rotations of an augmented view of each image."""
        return {"pixels": quarter_turns(super().look(views, rows, ids, plan, mine)["pixels"])}

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:
        """Return L and its terms for features z (4, B, D) of the rotations."""
        turned = TURNS * labels + torch.arange(TURNS, device=labels.device)[:, None]  # (4, B)
        l_ce = self._cross_entropy(z.flatten(0, 1), turned.flatten())
        if self.prototypes is None or z_old is None:
            return {"ce": l_ce, "loss": l_ce}
        classes = plan["classes"]
        l_p = self._cross_entropy(self.prototypes.noisy(classes, plan["noise"]), TURNS * classes)
        return self.total(l_ce, torch.dist(z, z_old), l_p)

    def _cross_entropy(self, z: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of features (n, D) over all outputs."""
        return F.cross_entropy(self.classifier(z) / self.settings.temperature, targets)


def make_pass(context: BuildContext, settings: PassSettings) -> IncrementalMethod:
    """Make PASS, on pixels."""
    return prototype_replay(context, settings, "PASS", PassObjective)
