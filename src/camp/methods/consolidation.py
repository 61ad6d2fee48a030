"""Elastic weight consolidation of the tip (Kirkpatrick et al., PNAS 2017).

    L_EWC = lambda / 2 sum_i F_i (theta_i - theta*_i)^2
    F    <- a F + b F_t                  after each task t; F is 0 before the first

theta* are the parameters after the task before, and F_t the diagonal of the Fisher information on the labelled
images of a task.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.core import distributed
from camp.core.devices import to_device
from camp.core.progress import Progress
from camp.data.views import Views
from camp.methods.components import Callback, TaskRun
from camp.methods.trainer import Objective, Penalty
from camp.nn.losses import elastic

Classifier = Callable[[Tensor], Tensor]


class ElasticWeightConsolidation(Callback):
    """The penalty on moving parameters that mattered for earlier tasks, and the memory of F."""

    name = "fisher"

    def __init__(
        self,
        strength: float,
        classifier: Callable[[Objective], tuple[Classifier, int]],
        decay: float = 1.0,
        weight: float = 1.0,
    ) -> None:
        """Make the component for lambda = `strength`, a = `decay` and b = `weight`.

        `classifier` returns that of an objective (features to logits) and the label of its first output.
        """
        self.strength, self.classifier, self.decay, self.weight = strength, classifier, decay, weight
        self.fisher: dict[str, Tensor] = {}

    def penalty(self, run: TaskRun) -> Penalty | None:
        """Return L_EWC of the tip; None before there is anything to consolidate."""
        if not self.fisher or run.old_tip is None:
            return None
        fisher = {name: value.to(run.device) for name, value in self.fisher.items()}
        now, then = dict(run.tip.named_parameters()), dict(run.old_tip.named_parameters())
        return lambda: self.strength * elastic(now, then, fisher)

    def after_training(self, run: TaskRun, progress: Progress) -> None:
        """Add the Fisher information of the labelled images of the task."""
        assert run.trainer is not None
        rows = (run.task.labels >= 0).nonzero()[:, 0]
        if not len(rows):
            return
        classifier, first = self.classifier(run.trainer.step.objective)
        labels = run.task.labels[rows] - first
        self.add(diagonal_fisher(run.tip, classifier, run.task.views.subset(rows), labels, progress))

    def add(self, new: dict[str, Tensor]) -> None:
        """F <- a F + b F_t, from F = 0."""
        # In the order in which a checkpoint returns them: the sum of the penalty depends on it.
        new = {name: self.weight * value for name, value in sorted(new.items())}
        if self.fisher:
            new = {name: self.decay * self.fisher[name].to(value) + value for name, value in new.items()}
        self.fisher = new

    def state(self) -> dict[str, Tensor]:
        """Return F by parameter; theta* is the tip itself, or the old tip inside a task."""
        return self.fisher

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Continue from `state`."""
        self.fisher = tensors


def diagonal_fisher(
    tip: nn.Module, classifier: Classifier, views: Views, labels: Tensor, progress: Progress
) -> dict[str, Tensor]:
    """Compute 1/n sum_i (d log p(y_i | x_i) / d theta)^2 of each trainable parameter theta of the tip.

    The gradients are those of single images, clean views: the square of a sum would be something else. Several
    processes share the images. `labels` (n,) are on the CPU.
    """
    tip.eval()
    parameters = {name: p for name, p in tip.named_parameters() if p.requires_grad}
    sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
    mine = torch.arange(len(views))[distributed.shard(len(views))]
    with progress.track("Fisher information", len(mine)) as bar:
        for row in mine.split(1):
            logits = classifier(tip(views.clean(row)))
            loss = F.cross_entropy(logits, to_device(labels[row], logits.device))
            for total, gradient in zip(sums.values(), torch.autograd.grad(loss, list(parameters.values()))):
                total.addcmul_(gradient, gradient)
            bar.advance()
    return {name: distributed.all_reduce_sum(total) / len(views) for name, total in sums.items()}
