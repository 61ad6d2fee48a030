"""MetaGCD: learning to continually learn in generalized category discovery (Wu et al., ICCV 2023).

    L_in  = (1 - w) L_SimCLR + w L_SNCL              without labels: how novel classes are learned
    L_out = (1 - beta) L_SimCLR + beta L_SupCon      with labels: what was learned, and what must be kept

An episode simulates S sessions with the labelled images at hand, those of the task and the exemplars. The classes of
the task are split at random into S + 1 parts: the first counts as old, like all classes of earlier tasks, and session s
adds one of the others, without labels, among images of old classes. The network adapts to one session after the other,
and is evaluated after each on all classes up to it:

    theta_s = theta_{s-1} - a grad L_in(theta_{s-1}; session s),      theta_0 = theta
    L_meta(theta) = sum_s L_out(theta_s; all classes up to session s)

The gradient of L_meta is taken through the inner updates, with second derivatives of L_in. Then come semi-supervised
k-means and the nearest centroid.

Differences from the paper: there, a model meta-trained on labelled classes adapts to later sessions, which have no labels,
by L_in alone. Here every task brings labels, and each step of AdamW minimises

    L = L_in(theta; images of the task) + L_meta(theta)

The authors' code computes the gradient of L_out at parameters that have been set back to theta in place, so neither at
theta_s nor through the inner updates; here it is the gradient of the equation above. Their sessions have ten epochs at a
rate of 1e-4; here a session is one step with a = 0.1 (docs/results.md, "Defaults chosen by measurement").
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from camp.core.errors import CampError
from camp.data.views import Batch
from camp.methods.base import BuildContext
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.heads import gcd_projector
from camp.methods.settings import SupConSettings, check_exemplars, check_positive, check_share
from camp.methods.trainer import Objective, StepBatch, Trainer, TrainingData, TrainingStep
from camp.methods.two_views import TwoViewObjective
from camp.nn.losses import balanced, simclr, soft_neighbourhood, supcon

Parameters = dict[str, Tensor]
Session = tuple[Batch, Batch, Tensor]
"""Views of the images that arrive, views of images of all classes so far, and labels of the latter."""


@dataclass(frozen=True)
class MetaGcdSettings(SupConSettings):
    """MetaGCD under the protocol of the other methods."""

    neighbour_weight: float = 0.5
    """w, the weight of the soft neighbourhood loss in L_in, from 0 to 1."""
    neighbour_threshold: float = 0.85
    """Smallest cosine of two images that count as neighbours."""
    sessions: int = 2
    """S, the number of simulated sessions of an episode."""
    inner_steps: int = 1
    """Number of gradient steps of the adaptation to a session."""
    inner_rate: float = 0.1
    """a, the learning rate of the adaptation to a session."""
    first_order: bool = False
    """Leave out the second derivatives of L_in, which is faster, but not the gradient of L_meta."""
    exemplars: int = 0
    """Number of labelled images of each known class that are kept for later tasks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("neighbour_weight", self.neighbour_weight)
        if not -1 <= self.neighbour_threshold <= 1:
            raise CampError(
                f"neighbour_threshold is a cosine between -1 and 1, and {self.neighbour_threshold} is not."
            )
        if self.sessions < 1 or self.inner_steps < 1:
            raise CampError("An episode needs at least one session, and a session at least one inner step.")
        check_positive("inner_rate", self.inner_rate)
        check_exemplars(self.exemplars)


class MetaGcdObjective(TwoViewObjective):
    """L_in on images treated as unlabelled and L_out on labelled ones, with one persistent projection head."""

    persistent = True

    def __init__(self, settings: MetaGcdSettings, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.settings = settings
        self.projector = gcd_projector(dim, settings.projector_width, generator)

    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return L_in, L_out and their sum for features z (2, B, D)."""
        s = self.settings
        h = self.projector(z)
        h_in, h_out = h[:, :num_task_images], h[:, num_task_images:]
        l_sncl = soft_neighbourhood(h_in, s.neighbour_threshold, s.supcon_temperature)
        l_supcon = supcon(h_out, labels, s.supcon_temperature)
        l_in = balanced(simclr(h_in, s.simclr_temperature), l_sncl, s.neighbour_weight)
        l_out = balanced(simclr(h_out, s.simclr_temperature), l_supcon, s.beta)
        return {"in": l_in, "out": l_out, "loss": l_in + l_out}


class Learner(nn.Module):
    """theta: tip and heads as one network from views to the loss, which can be evaluated at other parameters."""

    def __init__(self, tip: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.tip, self.objective = tip, objective

    def forward(self, batch: Batch, labels: Tensor | None) -> Tensor:
        """Return L_in of the images whose two views are in `batch`, or L_out if there are `labels` (B,)."""
        z = self.tip(batch).unflatten(0, (2, -1))
        if labels is None:
            none = torch.empty(0, dtype=torch.long, device=z.device)
            l_in: Tensor = self.objective(z, z.shape[1], none, 0)["in"]
            return l_in
        l_out: Tensor = self.objective(z, 0, labels, 0)["out"]
        return l_out

    def loss(self, theta: Parameters, batch: Batch, labels: Tensor | None = None) -> Tensor:
        """Return L_in or L_out at the parameters theta."""
        loss: Tensor = functional_call(self, theta, (batch, labels))
        return loss

    def meta_loss(self, theta: Parameters, sessions: list[Session], settings: MetaGcdSettings) -> Tensor:
        """Return L_meta(theta); 0 without sessions."""
        total = torch.zeros((), device=next(iter(theta.values())).device)
        for arriving, seen, labels in sessions:
            for _ in range(settings.inner_steps):
                theta = self.adapted(theta, arriving, settings)
            total = total + self.loss(theta, seen, labels)
        return total

    def adapted(self, theta: Parameters, arriving: Batch, settings: MetaGcdSettings) -> Parameters:
        """Return theta - a grad L_in(theta), which can itself be differentiated unless `first_order`."""
        # Torch's fused attention has no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            loss = self.loss(theta, arriving)
        gradients = torch.autograd.grad(
            loss, list(theta.values()), create_graph=not settings.first_order, materialize_grads=True
        )
        return {name: p - settings.inner_rate * g for (name, p), g in zip(theta.items(), gradients)}


class EpisodeStep(TrainingStep):
    """Episodes, besides the loss of the images of the task."""

    sharded = False  # the inner steps are a chain, and each is differentiated through the ones before

    def __init__(self, objective: Objective, settings: MetaGcdSettings) -> None:
        super().__init__(objective)
        self.settings = settings

    def batches(self, data: TrainingData, batch_size: int, draw: torch.Generator) -> Iterator[StepBatch]:
        """Draw images of the task, followed by those of an episode."""
        sessions = self.settings.sessions
        for task_rows in torch.randperm(data.num_task_images, generator=draw).split(batch_size):
            size = max(1, batch_size // sessions)
            simulated = episode(data.labels, data.num_task_images, sessions, size, draw)
            rows = torch.cat([task_rows, simulated.flatten()])
            ids = data.views.draw(rows, 2, draw)
            yield StepBatch(rows, len(task_rows), ids, data.views.augmented(rows, ids))

    def terms(self, trainer: Trainer, batch: StepBatch, epoch: int) -> dict[str, Tensor]:
        """Return L_in of the images of the task, L_meta and their sum."""
        learner = Learner(trainer.tip, self.objective)
        theta: Parameters = {name: p for name, p in learner.named_parameters() if p.requires_grad}
        first, count = batch.num_task_images, len(batch.rows)
        size = (count - first) // (2 * self.settings.sessions)
        sessions: list[Session] = []
        if size:
            for start in range(first, count, 2 * size):
                middle, end = start + size, start + 2 * size
                arriving = views_between(batch.views, count, start, middle)
                seen = views_between(batch.views, count, middle, end)
                sessions.append((arriving, seen, trainer.labels(batch.rows[middle:end])))
        l_task = learner.loss(theta, views_between(batch.views, count, 0, first))
        l_meta = learner.meta_loss(theta, sessions, self.settings)
        return {"in": l_task, "meta": l_meta, "loss": l_task + l_meta}


def episode(labels: Tensor, num_task_images: int, sessions: int, size: int, draw: torch.Generator) -> Tensor:
    """Draw labelled images for S = `sessions` sessions of `size` images, or as many as are labelled.

    `labels` (n + m,) are those of the n images of the task, then of the exemplars. Images are repeated only where
    the classes have too few.

    Returns:
        Rows (S, 2, size): [s, 0] arrive in session s, half of them of its new classes and half of old ones;
        [s, 1] are of all classes so far, for L_out.
    """
    new_classes, replayed = labels[:num_task_images].unique(), labels[num_task_images:].unique()
    new_classes = new_classes[new_classes >= 0]
    shuffled = new_classes[torch.randperm(len(new_classes), generator=draw)]
    first, *brought = shuffled.tensor_split(sessions + 1)
    old = torch.cat([first, replayed[~torch.isin(replayed, new_classes)]])
    count = min(size, int((labels >= 0).sum()))
    if count == 0:
        return torch.empty(sessions, 2, 0, dtype=torch.long)

    def drawn(classes: Tensor, many: int) -> Tensor:
        """Draw `many` rows of `classes`, none twice before all came once."""
        rows = torch.isin(labels, classes).nonzero()[:, 0]
        rounds = range(0, many, max(1, len(rows)))
        shuffled = [rows[torch.randperm(len(rows), generator=draw)] for _ in rounds]
        return torch.cat([rows[:0], *shuffled])[:many]

    sampled, seen = [], old
    for new in brought:
        seen = torch.cat([seen, new])
        half = count - count // 2 if len(new) else 0
        arriving = torch.cat([drawn(new, half), drawn(old, count - half)])
        sampled += [arriving, drawn(seen, count)]
    return torch.stack(sampled).view(sessions, 2, count)


def views_between(batch: Batch, count: int, start: int, stop: int) -> Batch:
    """Select both views of the images `start` .. `stop` - 1 of a batch of `count`."""
    return {name: x.unflatten(0, (2, count))[:, start:stop].flatten(0, 1) for name, x in batch.items()}


def make_metagcd(context: BuildContext, settings: MetaGcdSettings) -> CentroidMethod:
    """Make MetaGCD: its objective and exemplars, trained by episodes."""
    parts = Composition(
        objective=lambda sizes, generator: MetaGcdObjective(settings, sizes.dim, generator),
        training=settings.training,
        discovery=settings.discovery,
        step=lambda objective, distiller: EpisodeStep(objective, settings),
        exemplars=settings.exemplars,
    )
    return CentroidMethod(context, parts)
