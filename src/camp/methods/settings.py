"""Settings that methods share, a frozen dataclass a concern; free of torch for the command line."""

from dataclasses import dataclass, field
from typing import Literal, Self

from camp.core.errors import CampError


def check_share(name: str, value: float | None) -> None:
    """Refuse a weight outside [0, 1]."""
    if value is not None and not 0 <= value <= 1:
        raise CampError(f"{name} is a share between 0 and 1, not {value}.")


def check_positive(name: str, value: float) -> None:
    """Refuse what must be above 0 and is not."""
    if not value > 0:
        raise CampError(f"{name} must be above 0, and {value} is not.")


def check_exemplars(value: int, least: int = 0) -> None:
    """Refuse fewer exemplars than a method needs."""
    if value < 0:
        raise CampError(f"The number of exemplars can not be negative, and {value} is.")
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
    """How the tip is trained in a task (phase 1)."""

    epochs: int = 100
    """Passes over the task's pictures."""
    batch_size: int = 128
    """Pictures of the task in a step, and as many labelled ones beside them; two views each."""
    learning_rate: float = 1e-3
    """Of AdamW, before warm-up and cosine annealing."""
    warmup_steps: int = 100
    """Steps of linear warm-up, but never more than a tenth of all steps."""
    clip: float = 1.0
    """Greatest global norm of the gradient (PA: greatest entry)."""
    weight_decay: float = 0.0
    """Of AdamW; the reference has a flag for it and never uses it."""
    arithmetic: Literal["auto", "full", "mixed"] = "auto"
    """`mixed` runs the network in bfloat16 and keeps weights and losses in float32; `auto` does so on GPUs that
    have bfloat16."""

    def __post_init__(self) -> None:
        if self.epochs < 0:
            raise CampError(f"The number of epochs can not be negative, and {self.epochs} is.")
        if self.batch_size < 2:
            raise CampError(
                f"Contrastive losses compare pictures, so a batch needs at least 2, not {self.batch_size}."
            )
        check_positive("The learning rate", self.learning_rate)
        check_positive("clip, the bound of the gradient,", self.clip)
        if self.warmup_steps < 0 or self.weight_decay < 0:
            raise CampError("The steps of warm-up and the weight decay can not be negative.")


@dataclass(frozen=True)
class Discovery:
    """How categories are found (phase 2)."""

    n_init: int = 100
    """Runs of semi-supervised k-means, of which the one with the least inertia is kept."""
    max_iterations: int = 200
    """Iterations of a run at most."""
    metric: Literal["l2", "cosine"] = "l2"
    """Distance to the nearest centroid."""
    max_novel: int | None = None
    """Greatest number of novel categories considered when it is estimated; by default as many as known ones,
    and at least 10."""

    def __post_init__(self) -> None:
        if self.n_init < 1 or self.max_iterations < 1:
            raise CampError("Clustering needs at least one run and one iteration.")
        if self.max_novel is not None and self.max_novel < 1:
            raise CampError(f"max_novel counts categories and must be at least 1, not {self.max_novel}.")


@dataclass(frozen=True)
class ContrastiveSettings(MethodSettings):
    """What methods share that learn by SimCLR beside a supervised loss, and then discover."""

    beta: float = 0.35
    """Weight of the supervised against the self-supervised loss."""
    simclr_temperature: float = 1.0
    """Of SimCLR (the reference's; the paper shares SupCon's)."""
    projector_width: int = 2048
    """Hidden units of a projector."""
    training: Training = field(default_factory=Training)
    discovery: Discovery = field(default_factory=Discovery)

    def __post_init__(self) -> None:
        check_share("beta", self.beta)
        check_positive("simclr_temperature", self.simclr_temperature)
        check_positive("projector_width", self.projector_width)


@dataclass(frozen=True)
class SupConSettings(ContrastiveSettings):
    """The same with SupCon."""

    supcon_temperature: float = 0.07
    """Of SupCon."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("supcon_temperature", self.supcon_temperature)


@dataclass(frozen=True)
class SimgcdLosses(SupConSettings):
    """The same with SimGCD's losses on prototypes."""

    entropy_weight: float = 2.0
    """epsilon, the weight of the mean-entropy term."""
