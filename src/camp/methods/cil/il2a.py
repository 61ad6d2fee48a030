"""IL2A: class augmentation and semantic augmentation (Zhu et al., NeurIPS 2021).

    L = L_CE + lambda_f L_F + lambda_p L_P

    L_CE   cross-entropy of the images, and of mixtures l x + (1 - l) x' of two classes of the task, l in 0.4 .. 0.6;
           each of the C (C - 1) / 2 pairs of classes is a class of its own, whose outputs are removed after the task
    L_F    ( sum_i |F^t(x_i) - F^{t-1}(x_i)|^2 )^1/2, as in PASS, mixtures too
    L_P    cross-entropy of old classes as N(mu_y, Sigma_y), in closed form: `semantic_augmentation`

with all logits divided by the temperature, those of L_P over the real classes so far.

The hyperparameters are those of Impression2805/IL2A and PyCIL, which agree: each image is mixed four times with an image
of a random permutation of the batch, l is drawn from Beta(20, 20) and set to 1/2 outside of 0.4 .. 0.6. Differences: L_P
is the mean over all old classes, of which they draw as many as there are images (the same expectation, without the noise);
a mixture of images of the same class is left out of L, as there, but still goes through the network, so that it counts
in the statistics of batch norms; and they keep the old network in evaluation mode while the present one is in training
mode, so that L_F also measures how far the statistics of a batch are from the running ones, which with long features is
most of it. Here both networks normalise by the statistics of the batch (`--norms own` is theirs).
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from camp.data.views import Batch, Views
from camp.methods.base import BuildContext
from camp.methods.cil.base import IncrementalMethod
from camp.methods.cil.prototypes import NormMode, PrototypeObjective, prototype_replay
from camp.methods.cil.settings import Il2aSettings
from camp.methods.trainer import Plan
from camp.nn.losses import semantic_augmentation

_BETA = 20.0
"""Both parameters of the beta distribution of l."""
_EVEN = 0.1
"""Greatest distance of l from 1/2."""


class Il2aObjective(PrototypeObjective):
    """Outputs for the classes so far, followed by those for pairs of classes of this task."""

    settings: Il2aSettings

    def copies(self) -> int:
        """Return the number of an image and its mixtures."""
        return 1 + self.settings.mixtures

    def rows(self) -> int:
        """Return the number of classes so far and of pairs of classes of this task."""
        new = self.known - self.old
        return self.known + new * (new - 1) // 2

    def heads(self) -> dict[str, Tensor]:
        """Return the outputs of real classes; those of pairs are removed after the task."""
        return {name: value[: self.known] for name, value in super().heads().items()}

    def plan(self, labels: Tensor, draw: torch.Generator) -> Plan:
        """Draw `partners` (B, M), positions in the batch, and `shares` (B, M), the weight l of the image itself."""
        count, mixtures = len(labels), self.settings.mixtures
        partners = [torch.randperm(count, generator=draw) for _ in range(mixtures)]
        # torch draws from a beta distribution with its global generator only.
        beta = np.random.default_rng(int(torch.randint(2**62, (), generator=draw)))
        shares = torch.from_numpy(beta.beta(_BETA, _BETA, (count, mixtures))).float()
        even = (shares - 0.5).abs() <= _EVEN
        return {"partners": torch.stack(partners, dim=1), "shares": shares.where(even, 0.5)}

    def look(self, views: Views, rows: Tensor, ids: Tensor, plan: Plan, mine: slice) -> Batch:
        """Return an augmented view of each image, then its mixtures with views of its partners."""
        partners = plan["partners"][mine].T.flatten()  # (M * m,)
        shares = plan["shares"][mine].T.flatten()[:, None, None, None]
        own = torch.arange(len(rows))[mine]
        # Each view is made once, however many mixtures it is part of.
        seen, at = torch.cat([own, partners]).unique(return_inverse=True)
        pixels = views.augmented(rows[seen], ids[:, seen])["pixels"]
        at = at.to(pixels.device)
        x, other = pixels[at[: len(own)]], pixels[at[len(own) :]]
        mixed = other.lerp(x.repeat(self.settings.mixtures, 1, 1, 1), shares.to(pixels))
        return {"pixels": torch.cat([x, mixed])}

    def targets(self, labels: Tensor, partners: Tensor) -> Tensor:
        """Return the outputs (1 + M, B) of images with `labels` (B,) and `partners` (B, M).

        -1 for a mixture of images of the same class, which has none.
        """
        pairs = torch.stack([labels.expand(partners.shape[1], -1), labels[partners.T]]) - self.old
        small, large = pairs.amin(dim=0), pairs.amax(dim=0)  # (M, B)
        mixed = self.known + large * (large - 1) // 2 + small
        return torch.cat([labels[None], mixed.where(small != large, -1)])

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:
        """Return L and its terms for features z (1 + M, B, D) of images and mixtures."""
        s, targets = self.settings, self.targets(labels, plan["partners"])
        kept = targets >= 0
        l_ce = F.cross_entropy(self.classifier(z[kept]) / s.temperature, targets[kept])
        if self.prototypes is None or z_old is None:
            return {"ce": l_ce, "loss": l_ce}
        assert self.prototypes.covariances is not None
        l_p = semantic_augmentation(
            self.prototypes.means,
            self.prototypes.covariances,
            torch.arange(len(self.prototypes), device=z.device),
            self.classifier.weight[: self.known],
            self.classifier.bias[: self.known],
            s.semantic_strength,
            s.temperature,
        )
        return self.total(l_ce, torch.dist(z[kept], z_old[kept]), l_p)


def make_il2a(context: BuildContext, settings: Il2aSettings) -> IncrementalMethod:
    """Make IL2A, on pixels."""
    return prototype_replay(
        context, settings, "IL2A", Il2aObjective, covariances=True, callbacks=[NormMode(settings.norms)]
    )
