"""What PASS, IL2A and SSRE remember of old classes: where each lay among the features, and how far it spread.

They are measured once, on the clean views of the task that brought the class, and never moved again: it is
distillation that keeps the features where the prototypes are.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.data.views import Views
from camp.methods.base import State
from camp.methods.cil.base import IncrementalMethod, IncrementalObjective, IncrementalSettings
from camp.methods.settings import check_positive
from camp.methods.tip_method import part_of
from camp.methods.trainer import clean_features
from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class PrototypeSettings(IncrementalSettings):
    """What the methods share that keep prototypes; the defaults are those of PASS and IL2A."""

    temperature: float = 0.1
    """Divides the logits in training."""
    feature_weight: float = 10.0
    """lambda_f, the weight of feature distillation."""
    prototype_weight: float = 10.0
    """lambda_p, the weight of the loss of old prototypes."""

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        for name in ("feature_weight", "prototype_weight"):
            if not getattr(self, name) >= 0:
                raise CampError(f"{name} can not be negative, and {getattr(self, name)} is.")


@dataclass(frozen=True)
class Prototypes:
    """The classes 0 .. K - 1, by label."""

    means: Tensor
    """(K, D)"""
    radius: Tensor
    """() r, where r^2 is the mean variance of an entry of a feature within a class: trace(Sigma_y) / D, over
    the classes of the first task."""
    covariances: Tensor | None = None
    """(K, D, D) Sigma_y, for those who ask for them; 0 for a class of one picture."""

    def __len__(self) -> int:
        return len(self.means)

    def draw_classes(self, count: int, draw: torch.Generator) -> Tensor:
        """Labels (count,) of old classes, drawn uniformly."""
        return torch.randint(len(self), (count,), generator=draw)

    def noisy(self, classes: Tensor, noise: Tensor) -> Tensor:
        """mu_y + r * noise, (n, D) for `classes` (n,) and `noise` (n, D), which is drawn from N(0, I)."""
        return self.means[classes] + self.radius * noise

    def beside(self, network: Tensor) -> "Prototypes":
        """The same on the device and in the type of a network's parameter."""
        return Prototypes(**{name: value.to(network) for name, value in self.state().items()})

    def state(self) -> dict[str, Tensor]:
        """What `Prototypes(**state)` is made of."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def joined(self, other: "Prototypes") -> "Prototypes":
        """These classes, and behind them those of `other`; the radius stays that of the first task."""
        means = torch.cat([self.means, other.means])
        if self.covariances is None or other.covariances is None:
            return replace(self, means=means)
        return replace(self, means=means, covariances=torch.cat([self.covariances, other.covariances]))


def measured(features: Tensor, labels: Tensor, covariances: bool) -> Prototypes:
    """The prototypes of the classes in `labels` (n,), in ascending order, from their features (n, D)."""
    groups = [features[labels == label] for label in labels.unique()]
    # A single picture spreads nowhere, and says nothing about how far others do.
    variances = [group.var(dim=0).mean() for group in groups if len(group) > 1]
    return Prototypes(
        means=torch.stack([group.mean(dim=0) for group in groups]),
        radius=torch.stack(variances).mean().sqrt() if variances else features.new_zeros(()),
        covariances=torch.stack([_covariance(group) for group in groups]) if covariances else None,
    )


def _covariance(group: Tensor) -> Tensor:
    """(D, D) of features (n, D)."""
    centred = group - group.mean(dim=0)
    return centred.T @ centred / max(1, len(group) - 1)


class PrototypeObjective(IncrementalObjective):
    """A loss that keeps the features near the old network's, and the classifier right about old prototypes.

    L = L_CE + lambda_f L_F + lambda_p L_P        from the second task on,  L_CE in the first
    """

    compares = True

    def __init__(
        self,
        dim: int,
        old: int,
        known: int,
        generator: torch.Generator,
        settings: PrototypeSettings,
        prototypes: Prototypes | None,
    ) -> None:
        """`prototypes` are those of the classes 0 .. old - 1, None in the first task."""
        super().__init__(dim, old, known, generator)
        # Plain attributes: heads that last must not hold them a second time.
        self.settings, self.prototypes = settings, prototypes

    def total(self, ce: Tensor, fd: Tensor, prototype: Tensor) -> dict[str, Tensor]:
        """The terms and L."""
        s = self.settings
        loss = ce + s.feature_weight * fd + s.prototype_weight * prototype
        return {"ce": ce, "fd": fd, "prototype": prototype, "loss": loss}


class PrototypeMethod(IncrementalMethod):
    """A classifier and the prototypes of the classes that it has learned."""

    covariances = False
    """Whether they come with their covariances."""

    def __init__(
        self, backbone: Backbone, settings: PrototypeSettings, seed: int, device: torch.device
    ) -> None:
        super().__init__(backbone, settings.training, seed, device)
        self.settings = settings
        self.prototypes: Prototypes | None = None

    def _old_prototypes(self) -> Prototypes | None:
        """What an objective is told of old classes: their prototypes beside the tip, None in the first task."""
        return None if self.prototypes is None else self.prototypes.beside(next(self.tip.parameters()))

    def _conclude(self, progress: Progress) -> None:
        """Also measure the classes of the task."""
        super()._conclude(progress)
        task = self._current()
        new = measured(clean_features(self.tip, task.views, progress), task.labels, self.covariances)
        self.prototypes = new if self.prototypes is None else self.prototypes.joined(new)

    def state(self) -> State:
        """Also the prototypes."""
        state = super().state()
        if self.prototypes is not None:
            state.tensors |= {f"prototypes.{k}": v for k, v in self.prototypes.state().items()}
        return state

    def _restore(self, state: State, views: Views) -> None:
        tensors = part_of(state.tensors, "prototypes.")
        self.prototypes = Prototypes(**tensors) if tensors else None


def check_pixels(backbone: Backbone, method: str) -> None:
    """Refuse a backbone whose tip takes anything but the pixels of pictures."""
    if backbone.trunk is not None or backbone.fields[0].name != "pixels":
        raise CampError(
            f"{method} works on pictures through a network that is trained as a whole, and {backbone.name} is "
            f"not one: use --backbone resnet18, resnet18-slim or conv-tiny."
        )
