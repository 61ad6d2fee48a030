"""Prototypes of old classes, which PASS, IL2A and SSRE replay: mean and spread of the features of each class.

They are measured once, on the clean views of the task that brings the class, and not adapted afterwards: distillation
keeps the features where the prototypes are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from camp.core.progress import Progress
from camp.methods.base import BuildContext
from camp.methods.cil.base import ClassRange, IncrementalMethod, IncrementalObjective, check_pixels
from camp.methods.cil.settings import PrototypeSettings
from camp.methods.components import Callback, TaskRun
from camp.methods.trainer import clean_features
from camp.nn.backbones.batch_norm import freeze_statistics, use_batch_statistics


@dataclass(frozen=True)
class ClassPrototypes:
    """Prototypes of the classes 0 .. K - 1, by label."""

    means: Tensor
    """(K, D)"""
    radius: Tensor
    """() r; r^2 is the mean of trace(Sigma_y) / D over the classes of the first task."""
    covariances: Tensor | None = None
    """(K, D, D) Sigma_y, where they are asked for; 0 for a class of one image."""

    def __len__(self) -> int:
        return len(self.means)

    def draw_classes(self, count: int, draw: torch.Generator) -> Tensor:
        """Draw labels (count,) of old classes uniformly."""
        return torch.randint(len(self), (count,), generator=draw)

    def noisy(self, classes: Tensor, noise: Tensor) -> Tensor:
        """Return mu_y + r * noise (n, D) for `classes` (n,) and `noise` (n, D) from N(0, I)."""
        return self.means[classes] + self.radius * noise

    def like(self, parameter: Tensor) -> "ClassPrototypes":
        """Return the prototypes on the device and in the type of a parameter."""
        return ClassPrototypes(**{name: value.to(parameter) for name, value in self.state().items()})

    def state(self) -> dict[str, Tensor]:
        """Return the tensors by name, as `ClassPrototypes` takes them."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def concat(self, other: "ClassPrototypes") -> "ClassPrototypes":
        """Append the classes of `other`; the radius stays that of the first task."""
        means = torch.cat([self.means, other.means])
        if self.covariances is None or other.covariances is None:
            return replace(self, means=means)
        return replace(self, means=means, covariances=torch.cat([self.covariances, other.covariances]))


def measured(features: Tensor, labels: Tensor, covariances: bool) -> ClassPrototypes:
    """Measure the prototypes of the classes in `labels` (n,), in ascending order, from features (n, D)."""
    groups = [features[labels == label] for label in labels.unique()]
    # A single image has no variance.
    variances = [group.var(dim=0).mean() for group in groups if len(group) > 1]
    return ClassPrototypes(
        means=torch.stack([group.mean(dim=0) for group in groups]),
        radius=torch.stack(variances).mean().sqrt() if variances else features.new_zeros(()),
        covariances=torch.stack([_covariance(group) for group in groups]) if covariances else None,
    )


def _covariance(group: Tensor) -> Tensor:
    """Return the covariance (D, D) of features (n, D)."""
    centred = group - group.mean(dim=0)
    return centred.T @ centred / max(1, len(group) - 1)


class PrototypeObjective(IncrementalObjective):
    """A loss that keeps features near those of the old network, and the classifier right about old prototypes.

    L = L_CE + lambda_f L_F + lambda_p L_P        from the second task on,  L_CE in the first
    """

    compares = True

    def __init__(
        self,
        sizes: ClassRange,
        generator: torch.Generator,
        settings: PrototypeSettings,
        prototypes: ClassPrototypes | None,
    ) -> None:
        """Make the heads; `prototypes` are those of the classes 0 .. old - 1, None in the first task."""
        super().__init__(sizes, generator)
        # Plain attributes: the persistent heads must not contain them again.
        self.settings, self.prototypes = settings, prototypes

    def total(self, ce: Tensor, fd: Tensor, prototype: Tensor) -> dict[str, Tensor]:
        """Return the terms and L."""
        s = self.settings
        loss = ce + s.feature_weight * fd + s.prototype_weight * prototype
        return {"ce": ce, "fd": fd, "prototype": prototype, "loss": loss}


class PrototypeMemory(Callback):
    """Remembers the prototypes of the classes of each task."""

    name = "prototypes"

    def __init__(self, covariances: bool = False) -> None:
        """Keep covariances too if asked for."""
        self.covariances = covariances
        self.prototypes: ClassPrototypes | None = None

    def on(self, network: nn.Module) -> ClassPrototypes | None:
        """Return the prototypes on the device and in the type of a network; None in the first task."""
        return None if self.prototypes is None else self.prototypes.like(next(network.parameters()))

    def after_task(self, run: TaskRun, progress: Progress) -> None:
        """Measure the classes of the task."""
        features = clean_features(run.tip, run.task.views, progress)
        new = measured(features, run.task.labels, self.covariances)
        self.prototypes = new if self.prototypes is None else self.prototypes.concat(new)

    def state(self) -> dict[str, Tensor]:
        """Return the prototypes."""
        return {} if self.prototypes is None else self.prototypes.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Continue from `state`."""
        self.prototypes = ClassPrototypes(**tensors) if tensors else None


NormStatistics = Literal["own", "shared", "frozen"]
"""Statistics by which batch norms normalise from the second task on: the network in training those of the batch and the
old network its running ones (`own`), both those of the batch (`shared`), or both those of the first task (`frozen`)."""


class NormMode(Callback):
    """Sets the mode of the batch norms of both networks from the second task on.

    With `shared` and `frozen` statistics the network is the same function as the old one at the beginning of a task; with
    its `own` the distance of their features has a part that no change of the weights removes.
    """

    def __init__(self, statistics: NormStatistics) -> None:
        self.statistics = statistics
        self.hook: RemovableHandle | None = None

    def before_training(self, run: TaskRun) -> None:
        """Set the modes; the old tip was copied before."""
        if run.old_tip is None:
            return
        if self.statistics == "frozen":
            self.hook = run.tip.register_forward_pre_hook(freeze_statistics)
        elif self.statistics == "shared":
            use_batch_statistics(run.old_tip)

    def after_training(self, run: TaskRun, progress: Progress) -> None:
        """Leave the network as it was."""
        if self.hook is not None:
            self.hook.remove()
            self.hook = None


def prototype_replay(
    context: BuildContext,
    settings: PrototypeSettings,
    name: str,
    objective: type[PrototypeObjective],
    *,
    covariances: bool = False,
    callbacks: Sequence[Callback] = (),
) -> IncrementalMethod:
    """Make a method that replays prototypes, on pixels."""
    check_pixels(context.backbone, name)
    memory = PrototypeMemory(covariances)
    return IncrementalMethod(
        context,
        settings.training,
        lambda sizes, generator: objective(sizes, generator, settings, memory.on(context.backbone.tip)),
        callbacks=[*callbacks, memory],
    )
