"""PA: proxy anchors (Kim et al., ICCV 2023), as the paper's supplement sets them up for GCCD.

    L_PA = 1/|P+| sum_{p in P+} log(1 + sum_{z in Z_p+} e^{-mu (s(z, p) - delta)})
         + 1/|P|  sum_{p in P}  log(1 + sum_{z in Z_p-} e^{ mu (s(z, p) + delta)})    on the labelled pictures
    L    = (1 - alpha) L_PA + alpha L_FD,   L_FD = |F^t(x) - F^{t-1}(x)|^2             on the task's pictures

with mu = 32, delta = 0.1 and s the cosine, then semi-supervised k-means and the nearest centroid. Only known
classes have proxies. They last: each task draws those of its new classes and goes on with the old ones, which
exemplars keep in place. Proxies learn a hundred times faster than the tip, and each entry of the gradient is
bounded, not its norm.

The reference shows the loss one weakly augmented view of each labelled picture. Here it is shown the two
views that every method is shown, as 2B embeddings: the bank holds no third kind of view, and as the sum
stands in a logarithm the second view adds at most log 2 to a term.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from camp.core.errors import CampError
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.settings import Discovery, MethodSettings, Training, check_exemplars, check_positive, check_share
from camp.methods.trainer import Distillation, Objective
from camp.nn.backbones.base import Backbone
from camp.nn.losses import proxy_anchor


@dataclass(frozen=True)
class PaSettings(MethodSettings):
    """PA as the reference trains it."""

    alpha: float = 0.5
    """Weight of feature distillation."""
    scale: float = 32.0
    """mu, which sharpens the loss towards the hardest pictures of a proxy."""
    margin: float = 0.1
    """delta, by which cosines should be better than needed."""
    proxy_rate: float = 100.0
    """Learning rate of the proxies as a multiple of the tip's."""
    exemplars: int = 20
    """Labelled pictures of each known class kept for later tasks."""
    training: Training = field(default_factory=lambda: Training(learning_rate=1e-4, batch_size=256))
    discovery: Discovery = field(default_factory=Discovery)

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_positive("scale", self.scale)
        if self.margin < 0:
            raise CampError(
                f"margin widens the gap between classes and can not be negative, and {self.margin} is."
            )
        check_positive("proxy_rate", self.proxy_rate)
        check_exemplars(self.exemplars)


class PaObjective(Objective):
    """L_PA on the labelled pictures, with a proxy for each known class so far."""

    lasting = True

    def __init__(self, settings: PaSettings, dim: int, known: int, generator: torch.Generator) -> None:
        super().__init__()
        self.settings, self.rate = settings, settings.proxy_rate
        self.proxies = nn.Parameter(torch.randn(known, dim, generator=generator))

    def forward(self, z: Tensor, own: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """z (2, B, D); the pictures from `own` on have `labels`."""
        s = self.settings
        l_pa = proxy_anchor(z[:, own:], labels, self.proxies, s.scale, s.margin)
        return {"pa": l_pa, "loss": l_pa}


def make_pa(backbone: Backbone, settings: PaSettings, seed: int, device: torch.device) -> CentroidMethod:
    """PA as a composition: proxies, feature distillation, exemplars."""
    parts = Composition(
        objective=lambda sizes, generator: PaObjective(settings, sizes.dim, sizes.known, generator),
        training=settings.training,
        discovery=settings.discovery,
        distiller="fd",
        distillation=Distillation(settings.alpha, "mse", data="task", views="sum"),
        exemplars=settings.exemplars,
        clipping="value",
    )
    return CentroidMethod(backbone, parts, seed, device)
