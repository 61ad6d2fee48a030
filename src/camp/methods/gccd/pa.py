"""PA: proxy anchors (Kim et al., ICCV 2023), as the paper's supplement sets them up for GCCD.

    L_PA = 1/|P+| sum_{p in P+} log(1 + sum_{z in Z_p+} e^{-mu (s(z, p) - delta)})
         + 1/|P|  sum_{p in P}  log(1 + sum_{z in Z_p-} e^{ mu (s(z, p) + delta)})    on the labelled images
    L    = (1 - alpha) L_PA + alpha L_FD,   L_FD = |F^t(x) - F^{t-1}(x)|^2             on the images of the task

with mu = 32, delta = 0.1 and s the cosine, then semi-supervised k-means and the nearest centroid. Each known class has
a proxy. Proxies are persistent: a task adds those of its new classes and continues to train the old ones, of which
exemplars are replayed. Their learning rate is a hundred times that of the tip, and each entry of the gradient is
clipped instead of its norm.

The paper's code computes the loss on one weakly augmented view of each labelled image; here it is computed on the two
views that every method is given, as 2B embeddings.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from camp.methods.base import BuildContext
from camp.methods.distillation import Distillation
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.settings import (
    Discovery,
    MethodSettings,
    Training,
    check_exemplars,
    check_not_negative,
    check_positive,
    check_share,
)
from camp.methods.two_views import TwoViewObjective
from camp.nn.losses import proxy_anchor


@dataclass(frozen=True)
class PaSettings(MethodSettings):
    """Proxy anchors with the hyperparameters of the paper's code."""

    alpha: float = 0.5
    """Weight of feature distillation, from 0 to 1."""
    scale: float = 32.0
    """mu, the scale of the loss; larger values give more weight to hard images."""
    margin: float = 0.1
    """delta, the margin of the cosines."""
    proxy_rate: float = 100.0
    """Learning rate of the proxies as a multiple of the tip's."""
    exemplars: int = 20
    """Number of labelled images of each known class that are kept for later tasks."""
    training: Training = field(default_factory=lambda: Training(learning_rate=1e-4, batch_size=256))
    discovery: Discovery = field(default_factory=Discovery)

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_positive("scale", self.scale)
        check_not_negative("margin, the margin of the cosines,", self.margin)
        check_positive("proxy_rate", self.proxy_rate)
        check_exemplars(self.exemplars)


class PaObjective(TwoViewObjective):
    """L_PA on the labelled images, with a proxy for each known class so far."""

    persistent = True

    def __init__(self, settings: PaSettings, dim: int, known: int, generator: torch.Generator) -> None:
        super().__init__()
        self.settings, self.rate = settings, settings.proxy_rate
        self.proxies = nn.Parameter(torch.randn(known, dim, generator=generator))

    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return L_PA of features z (2, B, D)."""
        s = self.settings
        l_pa = proxy_anchor(z[:, num_task_images:], labels, self.proxies, s.scale, s.margin)
        return {"pa": l_pa, "loss": l_pa}


def make_pa(context: BuildContext, settings: PaSettings) -> CentroidMethod:
    """Make PA: proxies, feature distillation and exemplars."""
    parts = Composition(
        objective=lambda sizes, generator: PaObjective(settings, sizes.dim, sizes.known, generator),
        training=settings.training,
        discovery=settings.discovery,
        distiller="fd",
        distillation=Distillation(settings.alpha, "mse", data="task", views="sum"),
        exemplars=settings.exemplars,
        clipping="value",
    )
    return CentroidMethod(context, parts)
