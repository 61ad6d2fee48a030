"""IL2A: class augmentation and semantic augmentation (Zhu et al., NeurIPS 2021).

    L = L_CE + lambda_f L_F + lambda_p L_P

    L_CE   cross-entropy of the pictures, and of mixtures l x + (1 - l) x' of two classes of the task, l in 0.4 .. 0.6;
           each pair of classes is a class of its own, C (C - 1) / 2 of them, whose outputs go when the task ends
    L_F    ( sum_i |F^t(x_i) - F^{t-1}(x_i)|^2 )^1/2, as in PASS, mixtures too
    L_P    cross-entropy of old classes as N(mu_y, Sigma_y), in closed form: `semantic_augmentation`

all logits over tau, those of L_P over the real classes so far. With classes between the classes the features of a
task say more than its labels ask for; covariances hold the borders of old classes where PASS has one radius for all.

The numbers are those of Impression2805/IL2A and PyCIL, which agree: each picture is mixed four times with one of a
random order of the batch, l is drawn from Beta(20, 20) and set to 1/2 outside of 0.4 .. 0.6. Where this differs: L_P
is the mean over all old classes, where they draw as many as there are pictures (the mean of their draws, without its
noise); and a mixture with a picture of the same class is left out of L, as there, but still goes through the network,
since a step has a fixed number of views, so that a batch norm counts it.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.data.views import Batch, Views
from camp.methods.cil.base import Plan
from camp.methods.cil.prototypes import PrototypeMethod, PrototypeObjective, PrototypeSettings, check_pixels
from camp.nn.backbones.base import Backbone
from camp.nn.losses import semantic_augmentation

_BETA = 20.0
"""Both parameters of the distribution of l."""
_EVEN = 0.1
"""How far l may be from 1/2."""


@dataclass(frozen=True)
class Il2aSettings(PrototypeSettings):
    """Those of every method with prototypes, and of both augmentations."""

    mixtures: int = 4
    """Mixtures made of each picture in a step."""
    semantic_strength: float = 2.5
    """lambda, by which covariances are multiplied."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mixtures < 1 or not self.semantic_strength >= 0:
            raise CampError("IL2A needs at least one mixture of each picture, and a strength of at least 0.")


class Il2aObjective(PrototypeObjective):
    """Outputs for the classes so far, and behind them for the pairs of this task's."""

    settings: Il2aSettings

    @property
    def copies(self) -> int:  # type: ignore[override]
        """The picture and its mixtures."""
        return 1 + self.settings.mixtures

    def rows(self) -> int:
        """Also for each pair of classes of this task."""
        new = self.known - self.old
        return self.known + new * (new - 1) // 2

    def plan(self, labels: Tensor, draw: torch.Generator) -> Plan:
        """`partners` (B, M), positions in the batch, and `shares` (B, M), how much of a mixture is the picture."""
        count, mixtures = len(labels), self.settings.mixtures
        partners = [torch.randperm(count, generator=draw) for _ in range(mixtures)]
        # torch draws from a Beta distribution by its global generator alone.
        beta = np.random.default_rng(int(torch.randint(2**62, (), generator=draw)))
        shares = torch.from_numpy(beta.beta(_BETA, _BETA, (count, mixtures))).float()
        even = (shares - 0.5).abs() <= _EVEN
        return {"partners": torch.stack(partners, dim=1), "shares": shares.where(even, 0.5)}

    def look(self, views: Views, rows: Tensor, ids: Tensor, plan: Plan, mine: slice) -> Batch:
        """An augmented view of each picture, then its mixtures with views of its partners."""
        partners = plan["partners"][mine].T.flatten()  # (M * m,)
        shares = plan["shares"][mine].T.flatten()[:, None, None, None]
        own = torch.arange(len(rows))[mine]
        # Partners of one another, and of many, are looked at once.
        seen, at = torch.cat([own, partners]).unique(return_inverse=True)
        pixels = views.augmented(rows[seen], ids[:, seen])["pixels"]
        at = at.to(pixels.device)
        x, other = pixels[at[: len(own)]], pixels[at[len(own) :]]
        mixed = other.lerp(x.repeat(self.settings.mixtures, 1, 1, 1), shares.to(pixels))
        return {"pixels": torch.cat([x, mixed])}

    def targets(self, labels: Tensor, partners: Tensor) -> Tensor:
        """(1 + M, B) outputs that stand for the views of pictures with `labels` (B,) and `partners` (B, M).

        -1 for a mixture that has none: of pictures of one class.
        """
        pairs = torch.stack([labels.expand(partners.shape[1], -1), labels[partners.T]]) - self.old
        small, large = pairs.amin(dim=0), pairs.amax(dim=0)  # (M, B)
        mixed = self.known + large * (large - 1) // 2 + small
        return torch.cat([labels[None], mixed.where(small != large, -1)])

    def forward(self, z: Tensor, labels: Tensor, plan: Plan, z_old: Tensor | None) -> dict[str, Tensor]:  # type: ignore[override]
        """z (1 + M, B, D), the pictures and their mixtures."""
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


class Il2a(PrototypeMethod):
    """A classifier of classes and, within a task, of pairs of classes; prototypes have covariances."""

    settings: Il2aSettings
    covariances = True

    def _objective(self, old: int, known: int, generator: torch.Generator) -> Il2aObjective:
        return Il2aObjective(self.dim, old, known, generator, self.settings, self._old_prototypes())

    def finish_task(self, progress: Progress) -> None:
        """As always; only outputs of real classes last."""
        super().finish_task(progress)
        self._heads = {name: value[: self._labels()] for name, value in self._heads.items()}


def make_il2a(backbone: Backbone, settings: Il2aSettings, seed: int, device: torch.device) -> Il2a:
    """IL2A."""
    check_pixels(backbone, "IL2A")
    return Il2a(backbone, settings, seed, device)
