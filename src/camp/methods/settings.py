"""Settings that methods share, one frozen dataclass for each concern; free of torch for the command line."""

from dataclasses import dataclass, field
from typing import Literal, Self

from camp.core.errors import CampError


def check_share(name: str, value: float | None) -> None:
    """Refuse a weight outside [0, 1]."""
    if value is not None and not 0 <= value <= 1:
        raise CampError(f"{name} is a share between 0 and 1, not {value}.")


def check_positive(name: str, value: float) -> None:
    """Refuse a value that is not positive."""
    if not value > 0:
        raise CampError(f"{name} must be above 0, and {value} is not.")


def check_not_negative(name: str, value: float) -> None:
    """Refuse a negative value."""
    if not value >= 0:
        raise CampError(f"{name} cannot be negative, and {value} is.")


def check_exemplars(value: int, least: int = 0) -> None:
    """Refuse fewer exemplars than a method needs."""
    check_not_negative("The number of exemplars", value)
    if value < least:
        raise CampError(
            f"This method classifies by its exemplars and needs at least {least} of each category."
        )


@dataclass(frozen=True)
class MethodSettings:
    """Settings of a method; each method has a frozen dataclass of its own."""

    def after_training(self) -> tuple[str, ...] | None:
        """Return the names of the settings that act after training only; None if training cannot be shared.

        Two runs of a method that differ in these settings alone train the same network to the last digit,
        provided that the number of novel categories is given and not estimated.
        """
        return None

    def for_labelled_tasks(self) -> Self:
        """Return the settings with the defaults for streams in which every image is labelled."""
        return self


@dataclass(frozen=True)
class Training:
    """Training of the tip on a task (phase 1)."""

    epochs: int = 100
    """Number of training epochs of a task."""
    batch_size: int = 128
    """Number of images of the task in a training step, to which as many labelled images are added."""
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    """Optimiser; `adam` adds the weight decay to the gradient, `adamw` applies it apart."""
    learning_rate: float = 1e-3
    """Largest learning rate, with linear warm-up and cosine annealing."""
    momentum: float = 0.9
    """Momentum of SGD."""
    warmup_steps: int = 100
    """Number of steps of linear warm-up, at most a tenth of all steps."""
    clip: float | None = 1.0
    """Gradient clipping: largest global norm of the gradient (method pa: largest absolute entry); None: no clipping."""
    weight_decay: float = 0.0
    """Weight decay."""
    arithmetic: Literal["auto", "full", "mixed"] = "auto"
    """Arithmetic of training: `full` is float32; `mixed` runs the network in bfloat16 and keeps weights and losses in
    float32; `auto` is `mixed` on GPUs with bfloat16."""

    def __post_init__(self) -> None:
        check_not_negative("The number of epochs", self.epochs)
        if self.batch_size < 2:
            raise CampError(
                f"Contrastive losses compare images, so a batch needs at least 2, not {self.batch_size}."
            )
        check_positive("The learning rate", self.learning_rate)
        if not 0 <= self.momentum < 1:
            raise CampError(f"The momentum of SGD is at least 0 and below 1, not {self.momentum}.")
        if self.clip is not None:
            check_positive("clip, the bound of the gradient,", self.clip)
        if self.warmup_steps < 0 or self.weight_decay < 0:
            raise CampError("The number of warm-up steps and the weight decay cannot be negative.")


@dataclass(frozen=True)
class IncrementalTraining(Training):
    """Training of the network on a task of class-incremental learning, with a choice of schedules."""

    schedule: Literal["cosine", "step", "plateau"] = "cosine"
    """Learning-rate schedule. `cosine`: linear warm-up per step, then cosine annealing per epoch. `step`: divided by
    `lr_factor` at regular intervals. `plateau`: divided by `lr_factor` when the loss on held-out images has stopped
    falling, the best weights are kept. The latter two have no warm-up."""
    lr_factor: float = 10.0
    """Schedules `step` and `plateau`: number by which the learning rate is divided."""
    lr_step: float = 0.45
    """Schedule `step`: length of an interval, as a share of the epochs."""
    lr_patience: float = 0.025
    """Schedule `plateau`: number of epochs without improvement before the learning rate falls, as a share of the epochs
    (at least 2 epochs)."""
    lr_min: float = 1e-4
    """Schedule `plateau`: training of a task ends when the learning rate falls below this."""
    held_out: float = 0.1
    """Schedule `plateau`: share of the images of each class that are held out for the loss on which it depends. Without
    them (classes of fewer than 6 images, methods pass and il2a) it is the mean training loss of the epoch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lr_factor > 1:
            raise CampError(
                f"The learning rate is divided by lr_factor, which must be above 1, not {self.lr_factor}."
            )
        check_positive("lr_step, the interval of the schedule,", self.lr_step)
        check_not_negative("lr_patience", self.lr_patience)
        check_not_negative("lr_min, the learning rate at which training ends,", self.lr_min)
        check_share("held_out", self.held_out)


@dataclass(frozen=True)
class Discovery:
    """Discovery of categories (phase 2)."""

    n_init: int = 100
    """Number of runs of semi-supervised k-means, of which the one with the lowest inertia is kept."""
    max_iterations: int = 200
    """Largest number of iterations of a run of k-means."""
    metric: Literal["l2", "cosine"] = "l2"
    """Metric of the nearest-centroid classifier."""
    max_novel: int | None = None
    """Largest number of novel categories to consider when it is estimated; by default the number of known
    categories, and at least 10."""

    def __post_init__(self) -> None:
        if self.n_init < 1 or self.max_iterations < 1:
            raise CampError("Clustering needs at least one run and one iteration.")
        if self.max_novel is not None and self.max_novel < 1:
            raise CampError(f"max_novel counts categories and must be at least 1, not {self.max_novel}.")


@dataclass(frozen=True)
class ContrastiveSettings(MethodSettings):
    """Settings of the methods that train with SimCLR and a supervised loss, and discover categories."""

    beta: float = 0.35
    """Weight of the supervised losses against the self-supervised ones, from 0 to 1."""
    simclr_temperature: float = 1.0
    """Temperature of SimCLR (as in the paper's code; the paper gives that of SupCon for both)."""
    projector_width: int = 2048
    """Number of hidden units of the projection heads."""
    training: Training = field(default_factory=Training)
    discovery: Discovery = field(default_factory=Discovery)

    def __post_init__(self) -> None:
        check_share("beta", self.beta)
        check_positive("simclr_temperature", self.simclr_temperature)
        check_positive("projector_width", self.projector_width)


@dataclass(frozen=True)
class SupConSettings(ContrastiveSettings):
    """The same, with SupCon as the supervised loss."""

    supcon_temperature: float = 0.07
    """Temperature of SupCon."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("supcon_temperature", self.supcon_temperature)


@dataclass(frozen=True)
class SimgcdLosses(SupConSettings):
    """The same, with SimGCD's losses on prototypes."""

    entropy_weight: float = 2.0
    """epsilon, the weight of the mean-entropy regularisation."""
