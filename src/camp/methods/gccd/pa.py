"""PA: proxy anchors (Kim et al., ICCV 2023), as the paper's supplement sets them up for GCCD.

    L_PA = 1/|P+| sum_{p in P+} log(1 + sum_{z in Z_p+} e^{-mu (s(z, p) - delta)})
         + 1/|P|  sum_{p in P}  log(1 + sum_{z in Z_p-} e^{ mu (s(z, p) + delta)})    on the labelled images
    L    = (1 - alpha) L_PA + alpha L_FD,   L_FD = |F^t(x) - F^{t-1}(x)|^2             on the images of the task

with mu = 32, delta = 0.1 and s the cosine, then semi-supervised k-means and the nearest centroid.
Each known class has a proxy. Proxies are persistent: a task adds those of its new classes and
continues to train the old ones, of which exemplars are replayed. Their learning rate is a hundred
times that of the tip, and each entry of the gradient is clipped instead of its norm.

L_PA is computed on the two augmented views that every method is given, as 2B embeddings. In the
paper's code it is on one view with weak augmentation (a shift of at most 16 of 224 pixels, weak
colour jitter, a flip), which a bank does not hold. `labelled_views = "clean"` uses one view without
augmentation: of what a bank holds, that is the least augmented.

From the paper's code, which in turn has mu, delta, the learning rates and AdamW from Kim et al. (
github.com/Hy2MK/CGCD): everything but the views, and the last learning rate of the proxies, which
here is a thousandth of their largest, and there a thousandth of the tip's. Of Kim et al. the
paper's code keeps the proxies and their loss, with feature distillation; it separates no old from
new images, and has neither affinity propagation nor features sampled around proxies.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from camp.core import distributed
from camp.methods.base import BuildContext
from camp.methods.distillation import Distillation
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.gccd.settings import PaSettings
from camp.methods.trainer import StepBatch, Trainer, TrainingData
from camp.methods.two_views import TwoViewObjective, TwoViewStep, cycle
from camp.nn.losses import distilled, proxy_anchor


class PaObjective(TwoViewObjective):
    """L_PA on the labelled images, with a proxy for each known class so far."""

    persistent = True

    def __init__(self, settings: PaSettings, dim: int, known: int, generator: torch.Generator) -> None:
        super().__init__()
        self.settings, self.rate = settings, settings.proxy_rate
        self.proxies = nn.Parameter(torch.randn(known, dim, generator=generator))

    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return L_PA of features z (V, B, D) of V views."""
        s = self.settings
        l_pa = proxy_anchor(z[:, num_task_images:], labels, self.proxies, s.scale, s.margin)
        return {"pa": l_pa, "loss": l_pa}


@dataclass(frozen=True)
class CleanLabelledBatch(StepBatch):
    """Two augmented views of images of the task, and the clean view of labelled images."""

    labelled: StepBatch = field(kw_only=True)


class CleanLabelledStep(TwoViewStep):
    """L_PA on the clean view of labelled images, distillation on two augmented views of images of the task."""

    def batches(self, data: TrainingData, batch_size: int, draw: torch.Generator) -> Iterator[StepBatch]:
        """Draw images of the task, and as many labelled ones; the same images if all are labelled."""
        labelled = cycle(data.labelled, batch_size, draw)
        images = len(data.labels) if data.all_labelled else data.num_task_images
        for rows in torch.randperm(images, generator=draw).split(batch_size):
            ids, mine = data.views.draw(rows, 2, draw), distributed.shard(len(rows))
            known = rows if data.all_labelled else next(labelled)
            clean = data.views.clean(known[distributed.shard(len(known))])
            yield CleanLabelledBatch(
                rows,
                0,
                ids,
                data.views.augmented(rows[mine], ids[:, mine]),
                labelled=StepBatch(known, 0, torch.zeros(1, len(known), dtype=torch.long), clean),
            )

    def terms(self, trainer: Trainer, batch: StepBatch, epoch: int) -> dict[str, Tensor]:
        """Return L_PA, and L_KD from the second task on."""
        assert isinstance(batch, CleanLabelledBatch)
        z = trainer.features(trainer.tip, batch.labelled, copies=1)
        terms: dict[str, Tensor] = self.objective(z, 0, trainer.labels(batch.labelled.rows), epoch)
        if self.distiller is not None:
            terms["kd"] = self.distiller.loss(trainer.features(trainer.tip, batch, copies=2), batch)
            terms["loss"] = distilled(terms["loss"], terms["kd"], self.distiller.settings.alpha)
        return terms


def make_pa(context: BuildContext, settings: PaSettings) -> CentroidMethod:
    """Make PA: proxies, feature distillation and exemplars."""
    parts = Composition(
        objective=lambda sizes, generator: PaObjective(settings, sizes.dim, sizes.known, generator),
        training=settings.training,
        discovery=settings.discovery,
        step=CleanLabelledStep if settings.labelled_views == "clean" else TwoViewStep,
        distiller="fd",
        distillation=Distillation(settings.alpha, "mse", data="task", views="sum"),
        exemplars=settings.exemplars,
        clipping="value",
    )
    return CentroidMethod(context, parts)
