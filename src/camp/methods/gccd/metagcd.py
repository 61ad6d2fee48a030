"""MetaGCD: learning to continually learn in generalized category discovery (Wu et al., ICCV 2023).

    L_in  = (1 - w) L_SimCLR + w L_SNCL              without labels: how novel classes are learned
    L_out = (1 - beta) L_SimCLR + beta L_SupCon      with labels: what was learned, and what must be kept

An episode simulates S sessions with the labelled pictures at hand, the task's and the exemplars. The task's
classes are cut at random into S + 1 parts: the first is taken for old, as are all classes of earlier tasks,
and session s brings one of the others, unlabelled, among pictures of old classes. The network adapts to the
sessions one after another, and is judged after each on all classes up to it:

    theta_s = theta_{s-1} - a grad L_in(theta_{s-1}; session s),      theta_0 = theta
    L_meta(theta) = sum_s L_out(theta_s; all classes up to session s)

The gradient of L_meta goes through the inner updates, second derivatives of L_in among it. Then come
semi-supervised k-means and the nearest centroid.

What is not as published. There, a model meta-trained on labelled classes adapts to later sessions, which have
no labels, by L_in alone. Here every task brings labels, and each step of AdamW goes down

    L = L_in(theta; pictures of the task) + L_meta(theta)

with both at once: on CUB-200 (10 epochs, seed 0) that gives 44.0 % of all, 49.5 known, 22.0 novel; episodes in
the first half of the epochs and L_in alone in the second, the published order, gave 34.9 / 39.2 / 17.6 (by a
setting that is gone). The
authors' code computes the gradient of L_out at parameters that have been put back to theta in place, and so
neither at theta_s nor through the inner updates; here it is the gradient of the equation above. A session
there is ten epochs at a rate of 1e-4; one step of it would change nothing that could be differentiated, so a
is 0.1, at which L_in and, from the second epoch on, L_out fall with an inner step (at 0.5 L_out rises).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from camp.core.errors import CampError
from camp.core.seeds import generator
from camp.data.views import Batch
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.heads import gcd_projector
from camp.methods.settings import SupConSettings, check_exemplars, check_positive, check_share
from camp.methods.trainer import Objective, Phase1
from camp.nn.backbones.base import Backbone
from camp.nn.losses import balanced, simclr, soft_neighbourhood, supcon

Parameters = dict[str, Tensor]
Session = tuple[Batch, Batch, Tensor]
"""Views of the pictures that arrive, views of pictures of all classes so far, and labels of the latter."""


@dataclass(frozen=True)
class MetaGcdSettings(SupConSettings):
    """MetaGCD under the protocol of the other methods."""

    neighbour_weight: float = 0.5
    """w, the weight of the soft neighbourhood loss in L_in."""
    neighbour_threshold: float = 0.85
    """Cosine from which on two pictures are neighbours."""
    sessions: int = 2
    """S, simulated sessions of an episode."""
    inner_steps: int = 1
    """Steps of adaptation to a session."""
    inner_rate: float = 0.1
    """a, the learning rate of these steps."""
    first_order: bool = False
    """Leave out the second derivatives of L_in; quicker, and no longer the gradient of L_meta."""
    exemplars: int = 0
    """Labelled pictures of each known class kept for later tasks."""

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


class MetaGcdObjective(Objective):
    """L_in on pictures taken as unlabelled, L_out on labelled ones, with one head that goes on from task to task.

    Neighbours are found without labels in the space that labels have shaped.
    """

    lasting = True

    def __init__(self, settings: MetaGcdSettings, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.settings = settings
        self.projector = gcd_projector(dim, settings.projector_width, generator)

    def forward(self, z: Tensor, own: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """z (2, B, D); the pictures from `own` on have `labels`."""
        s = self.settings
        h = self.projector(z)
        h_in, h_out = h[:, :own], h[:, own:]
        l_sncl = soft_neighbourhood(h_in, s.neighbour_threshold, s.supcon_temperature)
        l_supcon = supcon(h_out, labels, s.supcon_temperature)
        l_in = balanced(simclr(h_in, s.simclr_temperature), l_sncl, s.neighbour_weight)
        l_out = balanced(simclr(h_out, s.simclr_temperature), l_supcon, s.beta)
        return {"in": l_in, "out": l_out, "loss": l_in + l_out}


class Learner(nn.Module):
    """theta: tip and heads as one network, from views to the loss, so that it can be run at other parameters."""

    def __init__(self, tip: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.tip, self.objective = tip, objective

    def forward(self, batch: Batch, labels: Tensor | None) -> Tensor:
        """L_in of the pictures whose two views are in `batch`, or L_out if there are `labels` (B,)."""
        z = self.tip(batch).unflatten(0, (2, -1))
        if labels is None:
            return self.objective(z, z.shape[1], torch.empty(0, dtype=torch.long, device=z.device), 0)["in"]
        return self.objective(z, 0, labels, 0)["out"]


class MetaPhase1(Phase1):
    """Phase 1 by episodes, beside what the task itself teaches."""

    dealt = False  # its steps are chained, and each differentiates through the ones before

    def __init__(self, *, meta: MetaGcdSettings, **parts: Any) -> None:
        super().__init__(**parts)
        self.meta = meta
        self.learner = Learner(self.tip, self.objective)

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, int, Tensor, Batch]]:
        """(rows, own, ids, batch) of each step: pictures of the task, then those of an episode."""
        draw = generator(0, *self.draws, "epoch", epoch)
        sessions, size = self.meta.sessions, self.settings.batch_size
        for own in torch.randperm(self.own, generator=draw).split(size):
            simulated = episode(self.labels, self.own, sessions, max(1, size // sessions), draw)
            rows = torch.cat([own, simulated.flatten()])
            ids = self.views.draw(rows, 2, draw)
            yield rows, len(own), ids, self.views.augmented(rows, ids)

    def _step(self, rows: Tensor, own: int, ids: Tensor, batch: Batch, epoch: int) -> dict[str, Tensor]:
        theta: Parameters = {name: p for name, p in self.learner.named_parameters() if p.requires_grad}
        count, size = len(rows), (len(rows) - own) // (2 * self.meta.sessions)
        sessions: list[Session] = []
        if size:
            for start in range(own, count, 2 * size):
                middle, end = start + size, start + 2 * size
                arriving, seen = pictures(batch, count, start, middle), pictures(batch, count, middle, end)
                sessions.append((arriving, seen, self.labels[rows[middle:end]].to(self.device)))
        l_task, l_meta = self._loss(theta, pictures(batch, count, 0, own)), self.meta_loss(theta, sessions)
        loss = l_task + l_meta
        self._descend(loss)
        return {"in": l_task, "meta": l_meta, "loss": loss}

    def meta_loss(self, theta: Parameters, sessions: list[Session]) -> Tensor:
        """L_meta(theta); 0 without sessions."""
        total = torch.zeros((), device=self.device)
        for arriving, seen, labels in sessions:
            for _ in range(self.meta.inner_steps):
                theta = self._adapted(theta, arriving)
            total = total + self._loss(theta, seen, labels)
        return total

    def _adapted(self, theta: Parameters, arriving: Batch) -> Parameters:
        """theta - a grad L_in(theta), which can itself be differentiated unless `first_order`."""
        second_order = not self.meta.first_order
        # Torch's fused attention has no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            loss = self._loss(theta, arriving)
        gradients = torch.autograd.grad(
            loss, list(theta.values()), create_graph=second_order, materialize_grads=True
        )
        return {name: p - self.meta.inner_rate * g for (name, p), g in zip(theta.items(), gradients)}

    def _loss(self, theta: Parameters, batch: Batch, labels: Tensor | None = None) -> Tensor:
        return functional_call(self.learner, theta, (batch, labels))


def episode(labels: Tensor, own: int, sessions: int, size: int, draw: torch.Generator) -> Tensor:
    """Rows (S, 2, m) of the labelled pictures of an episode: [s, 0] arrive in session s, [s, 1] are for L_out.

    `labels` (n,) are those of the task's `own` pictures, -1 where unknown, and of the exemplars behind them.
    What arrives is half of the session's new classes and half of the old ones; L_out gets all classes so far.
    m is `size`, or the number of labelled pictures if that is less; 0 if there are none. A picture comes
    again within m only where its classes have too few.
    """
    fresh, kept = labels[:own].unique(), labels[own:].unique()
    fresh = fresh[fresh >= 0]
    first, *brought = fresh[torch.randperm(len(fresh), generator=draw)].tensor_split(sessions + 1)
    old = torch.cat([first, kept[~torch.isin(kept, fresh)]])
    count = min(size, int((labels >= 0).sum()))
    if count == 0:
        return torch.empty(sessions, 2, 0, dtype=torch.long)

    def drawn(classes: Tensor, many: int) -> Tensor:
        """`many` rows of `classes`, none twice before all came once."""
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


def pictures(batch: Batch, count: int, start: int, stop: int) -> Batch:
    """Both views of the pictures `start` .. `stop` - 1 of a batch of `count`."""
    return {name: x.unflatten(0, (2, count))[:, start:stop].flatten(0, 1) for name, x in batch.items()}


class MetaGcd(CentroidMethod):
    """A centroid method whose phase 1 goes by episodes."""

    def __init__(
        self,
        backbone: Backbone,
        parts: Composition,
        settings: MetaGcdSettings,
        seed: int,
        device: torch.device,
    ) -> None:
        super().__init__(backbone, parts, seed, device)
        self.settings = settings

    def _phase(self, **parts: Any) -> Phase1:
        return MetaPhase1(meta=self.settings, **parts)


def make_metagcd(backbone: Backbone, settings: MetaGcdSettings, seed: int, device: torch.device) -> MetaGcd:
    """MetaGCD as a composition: its objective and exemplars, trained by episodes."""
    parts = Composition(
        objective=lambda sizes, generator: MetaGcdObjective(settings, sizes.dim, generator),
        training=settings.training,
        discovery=settings.discovery,
        exemplars=settings.exemplars,
    )
    return MetaGcd(backbone, parts, settings, seed, device)
