"""MetaGCD: learning to continually learn in generalized category discovery (Wu et al., ICCV 2023).

    L_GCD = (1 - beta) L_SimCLR + beta L_SupCon      the first task, offline
    L_in  = (1 - w) L_SimCLR + w L_SNCL              later tasks, without labels: how novel classes are learned
    L_out = (1 - w) L_SimCLR + w L_SupCon            with labels: what was learned, and what must be kept

The first task is trained like GCD, with one projection head for both losses, and meta-training with
its labelled images follows. Later tasks continue with this head, and SGD at a low learning rate
minimises L_in on the images of a step, labelled ones and exemplars among them, without labels.

An episode of meta-training simulates S sessions. The labelled classes are split at random into
S + 1 parts: the first counts as old, and session s adds one of the others, without labels, among
images of old classes. The network adapts to one session after the other, and is evaluated after
each on all classes up to it:

    theta_s = theta_{s-1} - a grad L_in(theta_{s-1}; session s),      theta_0 = theta
    L_meta(theta) = sum_s L_out(theta_s; all classes up to session s)

The gradient of L_meta is taken through the inner updates, with second derivatives of L_in.
Semi-supervised k-means and the nearest centroid follow.

From the authors' code: one projection head that lasts; the order of offline training, meta-training
and sessions; SGD with momentum 0.9 and weight decay 5e-5 after the offline training, at 1e-4 for
inner steps and sessions and at 1e-5 for the outer update; w = 0.5; the threshold of neighbours;
four sessions; 400 outer gradients (there 20 episodes of 4 sessions with 5 updates each, here an
episode of 4 sessions for each of 100 epochs).

Differences from it:

- Offline training is GCD's of this project, with AdamW and beta = 0.35; there it is SGD at 0.1 with
  0.5, and 50 epochs.
- Labels. There only the offline data have any. Here every task brings labels; those of later tasks
  are used by semi-supervised k-means alone.
- The head is GCD's, with 128 outputs, instead of DINO's with 65,536; views are those of every
  method.
- The outer update. There, the gradient of L_out is taken at parameters that have been set back to
  theta in place, so neither at theta_s nor through the inner updates, and each session starts from
  theta; here it is the gradient of the equation above.
- An inner update is one step on one batch; there it is ten epochs.
- Learning rates of sessions follow the schedule of every method, with warm-up and cosine annealing,
  instead of being constant.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from camp.core import distributed
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.views import Batch
from camp.methods.base import BuildContext
from camp.methods.components import Callback, TaskRun
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.gccd.settings import MetaGcdSettings
from camp.methods.heads import gcd_projector
from camp.methods.settings import Training
from camp.methods.trainer import Trainer
from camp.methods.two_views import TwoViewObjective, unlabelled
from camp.nn.losses import balanced, simclr, soft_neighbourhood, supcon

Parameters = dict[str, Tensor]
Session = tuple[Batch, Batch, Tensor]
"""Views of the images that arrive, views of images of all classes so far, and labels of the latter."""

_MOMENTUM, _WEIGHT_DECAY = 0.9, 5e-5
"""Of SGD after the offline training."""


class MetaGcdObjective(TwoViewObjective):
    """L_GCD in the first task and L_in in later ones, with one persistent projection head."""

    persistent = True

    def __init__(
        self, settings: MetaGcdSettings, dim: int, generator: torch.Generator, *, offline: bool
    ) -> None:
        super().__init__()
        self.settings, self.offline = settings, offline
        self.projector = gcd_projector(dim, settings.projector_width, generator)

    def forward(self, z: Tensor, num_task_images: int, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        """Return the terms of the loss for features z (2, B, D)."""
        s = self.settings
        if not self.offline:
            return self.l_in(z)
        h = self.projector(z)
        l_simclr = simclr(unlabelled(h, num_task_images), s.simclr_temperature)
        l_supcon = supcon(h[:, num_task_images:], labels, s.supcon_temperature)
        return {"simclr": l_simclr, "supcon": l_supcon, "loss": balanced(l_simclr, l_supcon, s.beta)}

    def l_in(self, z: Tensor) -> dict[str, Tensor]:
        """Return the terms of L_in for features z (2, B, D)."""
        s, h = self.settings, self.projector(z)
        l_simclr = simclr(h, s.simclr_temperature)
        l_sncl = soft_neighbourhood(h, s.neighbour_threshold, s.supcon_temperature)
        return {"simclr": l_simclr, "sncl": l_sncl, "loss": balanced(l_simclr, l_sncl, s.neighbour_weight)}

    def l_out(self, z: Tensor, labels: Tensor) -> Tensor:
        """Return L_out for features z (2, B, D) of images with labels (B,)."""
        s, h = self.settings, self.projector(z)
        l_supcon = supcon(h, labels, s.supcon_temperature)
        return balanced(simclr(h, s.simclr_temperature), l_supcon, s.neighbour_weight)


class Learner(nn.Module):
    """theta: tip and heads as one network from views to the loss, which can be evaluated at other parameters."""

    def __init__(self, tip: nn.Module, objective: MetaGcdObjective) -> None:
        super().__init__()
        self.tip, self.objective = tip, objective

    def forward(self, batch: Batch, labels: Tensor | None) -> Tensor:
        """Return L_in of the images whose two views are in `batch`, or L_out if there are `labels` (B,)."""
        z = self.tip(batch).unflatten(0, (2, -1))
        return self.objective.l_in(z)["loss"] if labels is None else self.objective.l_out(z, labels)

    def parameters_by_name(self) -> Parameters:
        """Return theta, the parameters that are trained."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

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


class MetaTraining(Callback):
    """Episodes with the labelled images of the first task, after its training."""

    def __init__(self, settings: MetaGcdSettings) -> None:
        self.settings = settings

    def after_training(self, run: TaskRun, progress: Progress) -> None:
        """Take a step of SGD along the gradient of L_meta for each episode; nothing after later tasks."""
        if run.old_tip is not None:
            return
        trainer, s = run.trainer, self.settings
        assert trainer is not None
        assert isinstance(trainer.step.objective, MetaGcdObjective)
        learner = Learner(run.tip, trainer.step.objective).train()
        theta = learner.parameters_by_name()
        optimizer = torch.optim.SGD(
            theta.values(), lr=s.outer_rate, momentum=_MOMENTUM, weight_decay=_WEIGHT_DECAY
        )
        draw = generator(run.seed, "episodes", run.task.index)
        with progress.track("Meta-training", s.num_episodes) as bar:
            for _ in range(s.num_episodes):
                sessions = simulated_sessions(trainer, s.sessions, draw)
                if not sessions:
                    return
                optimizer.zero_grad(set_to_none=True)
                learner.meta_loss(theta, sessions, s).backward()
                distributed.reduce_gradients([], theta.values())
                optimizer.step()
                bar.advance()


def simulated_sessions(trainer: Trainer, sessions: int, draw: torch.Generator) -> list[Session]:
    """Draw the sessions of an episode and two views of their images; none if no image is labelled."""
    data = trainer.data
    rows = episode(data.labels, sessions, trainer.settings.batch_size, draw)
    drawn: list[Session] = []
    for arriving, seen in rows if rows.shape[-1] else []:
        views = [data.views.augmented(part, data.views.draw(part, 2, draw)) for part in (arriving, seen)]
        drawn.append((views[0], views[1], trainer.labels(seen)))
    return drawn


def episode(labels: Tensor, sessions: int, size: int, draw: torch.Generator) -> Tensor:
    """Draw labelled images for S = `sessions` sessions of `size` images, or as many as are labelled.

    `labels` (n,) are UNLABELLED where there is none. Images are repeated only where the classes have too few.

    Returns:
        Rows (S, 2, size): [s, 0] arrive in session s, half of them of its new classes and half of old ones;
        [s, 1] are of all classes so far, for L_out.
    """
    classes = labels[labels >= 0].unique()
    old, *brought = classes[torch.randperm(len(classes), generator=draw)].tensor_split(sessions + 1)
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


def make_metagcd(context: BuildContext, settings: MetaGcdSettings) -> CentroidMethod:
    """Make MetaGCD: its objective and exemplars, and meta-training after the first task."""
    parts = Composition(
        objective=lambda sizes, generator: MetaGcdObjective(
            settings, sizes.dim, generator, offline=sizes.task == 0
        ),
        training=settings.training,
        later_training=_session_training(settings),
        discovery=settings.discovery,
        exemplars=settings.exemplars,
        callbacks=[MetaTraining(settings)],
    )
    return CentroidMethod(context, parts)


def _session_training(settings: MetaGcdSettings) -> Training:
    """Return the training of the tasks after the first."""
    return replace(
        settings.training,
        optimizer="sgd",
        learning_rate=settings.session_rate,
        momentum=_MOMENTUM,
        weight_decay=_WEIGHT_DECAY,
    )
