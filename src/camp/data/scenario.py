"""Scenarios: how classes and labels are dealt to tasks, as the paper's settings have it."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from camp.core.errors import CampError
from camp.data.datasets import dataset_info

PRESETS: dict[str, dict[str, Any]] = {
    # Known and novel classes in each of a number of disjoint tasks.
    "gccd": {"novel_fraction": 0.2, "labelled_fraction": 0.5},
    # Class-incremental learning: everything is labelled.
    "cil": {"novel_fraction": 0.0, "labelled_fraction": 1.0},
    # Self-supervised continual learning: nothing is.
    "ssl-cl": {"novel_fraction": 1.0, "labelled_fraction": 0.0},
    # Semi-supervised continual learning: no novel classes.
    "semi-cl": {"novel_fraction": 0.0, "labelled_fraction": 0.5},
    # Generalized category discovery: one task.
    "gcd": {"tasks": 1, "novel_fraction": 0.2, "labelled_fraction": 0.5},
    # Incremental GCD: the first stage is GCD; each later one brings new classes without labels, more pictures
    # of the old ones, and with their labels the pictures that came without in the stage before.
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
"""The rows of the supplement's table of settings."""


@dataclass(frozen=True)
class Scenario:
    """How classes and labels are dealt to tasks."""

    tasks: int = 5
    """N, the number of tasks."""
    novel_fraction: float = 0.2
    """Share of the classes that never carry a label when they first come; the last ones of each task."""
    labelled_fraction: float = 0.5
    """Share of the pictures of a known class that carry their label."""
    labelling: Literal["bernoulli", "exact"] = "bernoulli"
    """Each picture by the toss of a coin, as in the reference, or exactly that share of each class."""
    order: Literal["paper", "seed", "given"] = "paper"
    """Class order: the published one, shuffled by the seed, or that of the data set."""
    tell_k: bool = True
    """Whether a method is told how many novel categories a task and how many categories the stream has."""
    images_per_class: int | None = None
    """A cap on the train pictures of a class, for small machines: the same pictures for every seed."""
    test_per_class: int | None = None
    """The same for test pictures."""
    classes: int | None = None
    """Only so many classes, the first of the order; None for all."""
    first_fraction: float | None = None
    """Share of the classes in the first task; None makes all tasks alike."""
    first_novel_fraction: float | None = None
    """`novel_fraction` of the first task, where it differs."""
    recurring_fraction: float = 0.0
    """Share of each class that is kept back and comes without labels in the tasks after its first."""
    reveal: bool = False
    """Whether the unlabelled pictures of a task come again, with their labels, in the next one."""

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
                raise CampError(f"{name} must be at least 1, or None for all pictures, not {value}.")
        if self.classes is not None and self.classes < self.tasks:
            raise CampError(f"{self.classes} classes cannot be cut into {self.tasks} tasks; use fewer tasks.")
        if self.labelled_fraction == 0 and min(self.novel_fraction, self.first_novel) < 1:
            raise CampError("Known classes need labels: with labelled_fraction 0 set novel_fraction to 1.")
        if self.tasks == 1:
            later = ("first_fraction", "first_novel_fraction", "recurring_fraction", "reveal")
            given = [name for name in later if getattr(self, name)]
            if given:
                raise CampError(f"{given[0]} speaks of later tasks, but there is only one: leave it out.")

    @property
    def all_labelled(self) -> bool:
        """Whether every picture carries its label: class-incremental learning."""
        novel = max(self.novel_fraction, self.first_novel)
        return self.labelled_fraction == 1 and not novel and not self.recurring_fraction

    @property
    def first_novel(self) -> float:
        """The novel fraction of the first task."""
        return self.novel_fraction if self.first_novel_fraction is None else self.first_novel_fraction


def scenario_for(dataset: str, preset: str = "gccd", **changes: Any) -> Scenario:
    """The scenario `preset` with the paper's numbers for the data set called `dataset`, and `changes`.

    >>> scenario_for("domainnet").tasks, scenario_for("cub200", "cil", tasks=10).novel_fraction
    (6, 0.0)
    """
    info = dataset_info(dataset)
    if preset not in PRESETS:
        raise CampError(f"There is no scenario {preset!r}; known are {', '.join(PRESETS)}.")
    known = [setting.name for setting in dataclasses.fields(Scenario)]
    for name in changes:
        if name not in known:
            raise CampError(f"A scenario has no setting {name!r}; it has {', '.join(known)}.")
    return Scenario(**{"tasks": info.tasks, "order": info.order, **PRESETS[preset], **changes})
