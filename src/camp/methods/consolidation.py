"""Elastic weight consolidation of a tip: which parameters mattered, and what it costs to move them.

    L_EWC = lambda / 2 sum_i F_i (theta_i - theta*_i)^2

theta* is what the parameters were after the task before, and F the diagonal of the Fisher information, gathered over
the tasks so far.
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from camp.core import distributed
from camp.core.progress import Progress
from camp.data.views import Views
from camp.methods.base import State
from camp.methods.tip_method import TipMethod, part_of
from camp.nn.losses import elastic

Classifier = Callable[[Tensor], Tensor]


class Consolidation:
    """lambda and F."""

    def __init__(self, strength: float) -> None:
        self.strength = strength
        self.fisher: dict[str, Tensor] = {}

    def penalty(self, tip: nn.Module, old_tip: nn.Module | None) -> Callable[[], Tensor] | None:
        """L_EWC of `tip` in training against `old_tip`; None before there is anything to hold on to."""
        if not self.fisher or old_tip is None:
            return None
        now, then = dict(tip.named_parameters()), dict(old_tip.named_parameters())
        return lambda: self.strength * elastic(now, then, self.fisher)

    def gather(self, new: Mapping[str, Tensor], keep: float = 1.0, take: float = 1.0) -> None:
        """F <- keep F + take F_new; the first task's F is taken whole."""
        new = dict(
            sorted(new.items())
        )  # as a checkpoint gives them back: the penalty's sum depends on the order
        if self.fisher:
            new = {name: keep * self.fisher[name] + take * value for name, value in new.items()}
        self.fisher = new

    def state(self) -> dict[str, Tensor]:
        """F by parameter; theta* is the tip itself, or the old tip inside a task."""
        return {f"fisher.{name}": value for name, value in self.fisher.items()}

    def restore(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Take up `state`."""
        self.fisher = {k: v.to(device) for k, v in part_of(tensors, "fisher.").items()}


class Consolidating(TipMethod):
    """A method that holds its tip where it mattered; mixed into one that trains and classifies in its own way."""

    consolidation: Consolidation

    def state(self) -> State:
        """Also the Fisher information."""
        state = super().state()
        state.tensors |= self.consolidation.state()
        return state

    def _restore(self, state: State, views: Views) -> None:
        self.consolidation.restore(state.tensors, self.device)


def diagonal_fisher(
    tip: nn.Module, classifier: Classifier, views: Views, labels: Tensor, progress: Progress
) -> dict[str, Tensor]:
    """1/n sum_i (d log p(y_i | x_i) / d theta)^2 for each trainable parameter theta of the tip, by its name.

    The gradients are those of single pictures, clean views: the square of a sum would be another thing. Several
    processes share the pictures.
    """
    tip.eval()
    parameters = {name: p for name, p in tip.named_parameters() if p.requires_grad}
    sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
    mine = torch.arange(len(views))[distributed.shard(len(views))]
    with progress.track("Fisher information", len(mine)) as bar:
        for row in mine.split(1):
            loss = F.cross_entropy(classifier(tip(views.clean(row))), labels[row])
            for total, gradient in zip(sums.values(), torch.autograd.grad(loss, list(parameters.values()))):
                total.addcmul_(gradient, gradient)
            bar.advance()
    return {name: distributed.all_reduce_sum(total) / len(views) for name, total in sums.items()}
