"""Scenarios: how classes and labels are distributed over the tasks of a stream."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from camp.core.errors import CampError
from camp.data.datasets import dataset_info

SCENARIO_PRESETS: dict[str, dict[str, Any]] = {
    # Generalized continual category discovery: known and novel classes in each of several disjoint tasks.
    "gccd": {"novel_fraction": 0.2, "labelled_fraction": 0.5},
    # Class-incremental learning: everything is labelled.
    "cil": {"novel_fraction": 0.0, "labelled_fraction": 1.0},
    # Self-supervised continual learning: nothing is labelled.
    "ssl-cl": {"novel_fraction": 1.0, "labelled_fraction": 0.0},
    # Semi-supervised continual learning: no novel classes.
    "semi-cl": {"novel_fraction": 0.0, "labelled_fraction": 0.5},
    # Generalized category discovery: one task.
    "gcd": {"tasks": 1, "novel_fraction": 0.2, "labelled_fraction": 0.5},
    # Incremental GCD: GCD, then stages with unlabelled images of new and old classes, and with the
    # unlabelled images of the stage before, now with their labels.
    "igcd": {
        "first_novel_fraction": 0.2,
        "novel_fraction": 1.0,
        "labelled_fraction": 0.5,
        "recurring_fraction": 0.25,
        "reveal": True,
    },
    # Continual GCD: a large labelled task, then a single step of unlabelled old and new classes.
    "cgcd": {
        "tasks": 2,
        "first_fraction": 0.8,
        "first_novel_fraction": 0.0,
        "novel_fraction": 1.0,
        "labelled_fraction": 1.0,
        "recurring_fraction": 0.2,
    },
}
"""Fields of `Scenario` for each setting in the table of the paper's supplement."""


@dataclass(frozen=True)
class Scenario:
    """Distribution of classes and labels over tasks."""

    tasks: int = 5
    """Number of tasks N."""
    novel_fraction: float = 0.2
    """Fraction of classes that have no labels in their first task; they are the last classes of each task."""
    labelled_fraction: float = 0.5
    """Fraction of the images of a known class that are labelled."""
    labelling: Literal["bernoulli", "exact"] = "bernoulli"
    """Label each image with that probability (authors' code), or that fraction of each class."""
    order: Literal["paper", "seed", "given"] = "paper"
    """Class order: the published one, shuffled with the seed, or that of the data set."""
    tell_k: bool = True
    """Whether methods are given the numbers of novel categories and of all categories."""
    images_per_class: int | None = None
    """Maximum number of train images per class, the same images for every seed; None for all."""
    imbalance: float | Literal["random"] | None = None
    """Long tail of the train images: number of images of the largest class over that of the smallest, with an
    exponential profile over a random class order; `random`: classes keep a random number; None: no long tail."""
    test_per_class: int | None = None
    """Maximum number of test images per class; None for all."""
    classes: int | None = None
    """Number of classes, the first in the class order; None for all."""
    first_fraction: float | None = None
    """Fraction of classes in the first task; None for tasks of equal size."""
    first_novel_fraction: float | None = None
    """`novel_fraction` of the first task; None for the same as in the other tasks."""
    recurring_fraction: float = 0.0
    """Fraction of each class that appears unlabelled in the tasks after its first one."""
    reveal: bool = False
    """Whether the unlabelled images of a task are added, with their labels, to the next one."""

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise CampError(f"A stream has at least one task, not {self.tasks}.")
        for name in ("novel_fraction", "labelled_fraction", "first_novel_fraction"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise CampError(f"{name} must lie in 0..1, not {value}.")
        if not 0 <= self.recurring_fraction < 1:
            raise CampError(
                f"recurring_fraction must be 0 or more and below 1, not {self.recurring_fraction}."
            )
        if self.first_fraction is not None and not 0 < self.first_fraction < 1:
            raise CampError(f"first_fraction must lie between 0 and 1, not {self.first_fraction}.")
        for name, allowed in (("labelling", ("bernoulli", "exact")), ("order", ("paper", "seed", "given"))):
            if getattr(self, name) not in allowed:
                raise CampError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}.")
        for name in ("images_per_class", "test_per_class"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise CampError(f"{name} must be at least 1, or None for all images, not {value}.")
        if isinstance(self.imbalance, str):
            if self.imbalance != "random":
                raise CampError(f'imbalance is a ratio or "random", not "{self.imbalance}".')
        elif self.imbalance is not None and not self.imbalance >= 1:
            raise CampError(f"imbalance is a ratio of sizes, at least 1, not {self.imbalance}.")
        if self.classes is not None and self.classes < self.tasks:
            raise CampError(
                f"{self.classes} classes cannot be divided into {self.tasks} tasks; use fewer tasks."
            )
        if self.labelled_fraction == 0 and min(self.novel_fraction, self.first_novel) < 1:
            raise CampError("Known classes need labels: with labelled_fraction 0 set novel_fraction to 1.")
        if self.tasks == 1:
            later = ("first_fraction", "first_novel_fraction", "recurring_fraction", "reveal")
            given = [name for name in later if getattr(self, name)]
            if given:
                raise CampError(f"{given[0]} concerns later tasks, but there is only one task: leave it out.")

    @property
    def all_labelled(self) -> bool:
        """Whether every image is labelled (class-incremental learning)."""
        novel = max(self.novel_fraction, self.first_novel)
        return self.labelled_fraction == 1 and not novel and not self.recurring_fraction

    @property
    def first_novel(self) -> float:
        """Fraction of novel classes in the first task."""
        return self.novel_fraction if self.first_novel_fraction is None else self.first_novel_fraction


def make_scenario(dataset: str, preset: str = "gccd", **changes: Any) -> Scenario:
    """Return the scenario `preset` with the paper's settings for `dataset`, changed by `changes`.

    >>> make_scenario("domainnet").tasks, make_scenario("cub200", "cil", tasks=10).novel_fraction
    (6, 0.0)
    """
    info = dataset_info(dataset)
    if preset not in SCENARIO_PRESETS:
        raise CampError(f"There is no scenario {preset!r}; known are {', '.join(SCENARIO_PRESETS)}.")
    known = [setting.name for setting in dataclasses.fields(Scenario)]
    for name in changes:
        if name not in known:
            raise CampError(f"A scenario has no setting {name!r}; it has {', '.join(known)}.")
    return Scenario(**{"tasks": info.tasks, "order": info.order, **SCENARIO_PRESETS[preset], **changes})
