"""Scenarios: how a data set is cut into tasks, and the cut itself, which can be written and given back."""

import dataclasses
import functools
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, Self

import numpy as np

from camp.errors import CampError
from camp.seeds import numpy_generator
from camp.streams.datasets import dataset_info
from camp.streams.datasets.base import Dataset

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
        if self.labelled_fraction == 0 and min(self.novel_fraction, self._first_novel) < 1:
            raise CampError("Known classes need labels: with labelled_fraction 0 set novel_fraction to 1.")
        if self.tasks == 1:
            later = ("first_fraction", "first_novel_fraction", "recurring_fraction", "reveal")
            given = [name for name in later if getattr(self, name)]
            if given:
                raise CampError(f"{given[0]} speaks of later tasks, but there is only one: leave it out.")

    @property
    def all_labelled(self) -> bool:
        """Whether every picture carries its label: class-incremental learning."""
        novel = max(self.novel_fraction, self._first_novel)
        return self.labelled_fraction == 1 and not novel and not self.recurring_fraction

    @property
    def _first_novel(self) -> float:
        return self.novel_fraction if self.first_novel_fraction is None else self.first_novel_fraction

    def cut(self, dataset: Dataset, seed: int) -> "Split":
        """Deal the pictures of `dataset` to tasks; the same seed always gives the same cut.

        Each draw is called by the name of its class, so that it depends on no other class or setting.
        """
        chunks = self._chunks(dataset, seed)
        stream = [label for chunk in chunks for label in chunk]
        position = {label: place for place, label in enumerate(stream)}
        train = _keys_by_class(dataset, ~dataset.is_test)
        test = _keys_by_class(dataset, dataset.is_test)
        piles = [_Pile() for _ in chunks]
        class_of: dict[str, int] = {}
        for task, (chunk, novel) in enumerate(zip(chunks, self._novel_counts(chunks))):
            for place, label in enumerate(chunk):
                name = dataset.classes[label]
                # A draw for each picture of the class: a cap or a share kept back changes no other label.
                draws = numpy_generator(seed, "labelled", name).random(len(train[label]))
                kept = _drawn(len(train[label]), self.images_per_class, "images", name)
                now, *later = self._dealt(kept, len(chunks) - task - 1, seed, name)
                labelled = self._labelled(draws, now) if place < len(chunk) - novel else set()
                for row in now:
                    (piles[task].labelled if row in labelled else piles[task].unlabelled).add(
                        train[label][row]
                    )
                for pile, rows in zip(piles[task + 1 :], later):
                    pile.unlabelled.update(train[label][row] for row in rows)
                tests = _drawn(len(test[label]), self.test_per_class, "test", name)
                piles[task].test.update(test[label][row] for row in tests)
                class_of.update(dict.fromkeys((train[label][row] for row in kept), position[label]))
                class_of.update(dict.fromkeys((test[label][row] for row in tests), position[label]))
        if self.reveal:
            for before, after in itertools.pairwise(piles):
                after.labelled |= before.unlabelled
        return Split(
            dataset=dataset.name,
            seed=seed,
            scenario=self,
            classes=tuple(dataset.classes[label] for label in stream),
            class_of=class_of,
            tasks=_tasks(piles, class_of),
        )

    def _chunks(self, dataset: Dataset, seed: int) -> list[list[int]]:
        """The classes of each task, as positions in `dataset.classes`."""
        count = len(dataset.classes)
        if self.tasks > count:
            raise CampError(f"{count} classes cannot be cut into {self.tasks} tasks; use fewer tasks.")
        if self.order == "paper" and dataset.domains is not None and self.first_fraction is None:
            return _domain_chunks(dataset.domains, self.tasks)
        order = self._order(dataset, seed)
        if self.first_fraction is None:
            return [chunk.tolist() for chunk in np.array_split(order, self.tasks)]
        first = min(max(round(count * self.first_fraction), 1), count - self.tasks + 1)
        return [chunk.tolist() for chunk in (order[:first], *np.array_split(order[first:], self.tasks - 1))]

    def _order(self, dataset: Dataset, seed: int) -> np.ndarray:
        """All classes (C,) in the order in which they come."""
        if self.order == "seed":
            return numpy_generator(seed, "order").permutation(len(dataset.classes))
        if self.order == "given" or dataset.domains is not None:
            return np.arange(len(dataset.classes))
        published = class_orders().get(dataset.name)
        if published is None:
            raise CampError(f"{dataset.name} has no published class order; use the order 'seed' or 'given'.")
        position = {name: label for label, name in enumerate(dataset.classes)}
        labels = [position.get(entry, -1) if isinstance(entry, str) else entry for entry in published]
        if sorted(labels) != list(range(len(dataset.classes))):
            raise CampError(
                f"The published class order of {dataset.name} names {len(published)} classes, but the data hold "
                f"{len(dataset.classes)}, or under other names; use the order 'seed' or 'given'."
            )
        return np.array(labels)

    def _novel_counts(self, chunks: Sequence[Sequence[int]]) -> list[int]:
        """How many classes of each task are novel."""
        total = sum(len(chunk) for chunk in chunks)
        counts = []
        for task, chunk in enumerate(chunks):
            fraction = self._first_novel if task == 0 else self.novel_fraction
            if fraction in (0, 1):
                count = int(fraction) * len(chunk)
            elif self.first_fraction is None:
                # The reference's rule. Rounding keeps 0.29 * 100 = 28.999... from losing a class.
                count = min(int(round(total * fraction, 9) // len(chunks)), len(chunk))
            else:
                count = int(round(len(chunk) * fraction, 9))
            if fraction > 0 and not count:
                raise CampError(
                    f"A novel fraction of {fraction} leaves no novel class in a task of {len(chunk)} of the "
                    f"{total} classes; use fewer tasks, a larger fraction, or 0."
                )
            counts.append(count)
        return counts

    def _dealt(self, kept: np.ndarray, later: int, seed: int, name: str) -> list[np.ndarray]:
        """Rows `kept` of a class for its own task and for each of the `later` ones."""
        back = int(round(self.recurring_fraction * len(kept), 9)) if later else 0
        back = min(back, len(kept) - 1)
        if not back:
            return [kept]
        shuffled = numpy_generator(seed, "recurring", name).permutation(kept)
        return [np.sort(shuffled[back:]), *np.array_split(shuffled[:back], later)]

    def _labelled(self, draws: np.ndarray, rows: np.ndarray) -> set[int]:
        """Those of `rows` that carry their label: the lowest of the uniform `draws`, and one in any case."""
        lowest = rows[np.argsort(draws[rows], kind="stable")]
        if self.labelling == "exact":
            count = round(self.labelled_fraction * len(rows))
        else:
            count = int((draws[rows] < self.labelled_fraction).sum())
        return set(lowest[: max(count, 1)].tolist())


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


@functools.cache
def class_orders() -> dict[str, list[int | str]]:
    """The published class orders by data set: label ids, or names for cub200."""
    text = resources.files("camp.streams").joinpath("class_orders.json").read_text(encoding="utf-8")
    orders: dict[str, list[int | str]] = json.loads(text)
    return orders


def _domain_chunks(domains: Sequence[str], tasks: int) -> list[list[int]]:
    """One domain a task; with more tasks a part of one, so that the domain changes from task to task."""
    members: dict[str, list[int]] = defaultdict(list)
    for label, domain in enumerate(domains):
        members[domain].append(label)
    if len(members) % tasks == 0:
        groups = np.array_split(np.array(list(members)), tasks)
        return [[label for domain in group for label in members[str(domain)]] for group in groups]
    rounds, rest = divmod(tasks, len(members))
    if rest or rounds > min(map(len, members.values())):
        raise CampError(
            f"{len(members)} domains cannot be cut into {tasks} tasks of one domain each; use a multiple of "
            f"{len(members)}, or the order 'seed'."
        )
    parts = {domain: np.array_split(labels, rounds) for domain, labels in members.items()}
    return [parts[domain][number].tolist() for number in range(rounds) for domain in members]


def _keys_by_class(dataset: Dataset, chosen: np.ndarray) -> list[list[str]]:
    """For each class its keys among the rows `chosen` (N,) bool, sorted."""
    keys: list[list[str]] = [[] for _ in dataset.classes]
    for row in np.flatnonzero(chosen):
        keys[dataset.labels[row]].append(dataset.keys[row])
    return keys


def _drawn(count: int, cap: int | None, *names: object) -> np.ndarray:
    """At most `cap` of the rows 0..count-1, in order; the same for every seed, so that all seeds share a bank."""
    if cap is None or cap >= count:
        return np.arange(count)
    return np.sort(numpy_generator(0, *names).permutation(count)[:cap])


@dataclass
class _Pile:
    """The keys of a task while they are dealt."""

    labelled: set[str] = field(default_factory=set)
    unlabelled: set[str] = field(default_factory=set)
    test: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class TaskSplit:
    """The pictures of one task. Classes are positions in the stream's class order; keys are sorted."""

    known: tuple[int, ...]
    """Classes with labelled pictures in this task."""
    novel: tuple[int, ...]
    """Classes that come for the first time, and without a label."""
    labelled: tuple[str, ...]
    unlabelled: tuple[str, ...]
    test: tuple[str, ...]
    """Test pictures of the classes that come for the first time."""


def _tasks(piles: Iterable[_Pile], class_of: Mapping[str, int]) -> tuple[TaskSplit, ...]:
    """What the piles make known and novel."""
    tasks = []
    seen: set[int] = set()
    for index, pile in enumerate(piles):
        known = {class_of[key] for key in pile.labelled}
        here = known | {class_of[key] for key in pile.unlabelled}
        if not here:
            raise CampError(f"Task {index} has no train pictures; use fewer tasks or check the data.")
        tasks.append(
            TaskSplit(
                known=tuple(sorted(known)),
                novel=tuple(sorted(here - known - seen)),
                labelled=tuple(sorted(pile.labelled)),
                unlabelled=tuple(sorted(pile.unlabelled)),
                # A class without a train picture cannot be learnt, so it is not asked for.
                test=tuple(sorted(key for key in pile.test if class_of[key] in here)),
            )
        )
        seen |= here
    return tuple(tasks)


@dataclass(frozen=True)
class Split:
    """A cut: which picture is labelled, unlabelled or for tests in which task. No method ever sees it."""

    dataset: str
    """Name of the data set."""
    seed: int
    scenario: Scenario
    classes: tuple[str, ...]
    """Names of all classes, in the order of the stream."""
    class_of: Mapping[str, int]
    """The true class of each key, as a position in `classes`."""
    tasks: tuple[TaskSplit, ...]

    def keys(self) -> tuple[str, ...]:
        """All pictures of the stream, train and test, each once, sorted."""
        return tuple(
            sorted({key for task in self.tasks for key in (*task.labelled, *task.unlabelled, *task.test)})
        )

    def without(self, keys: set[str]) -> "Split":
        """The same cut without some pictures, such as unreadable ones.

        A class that loses all its labelled pictures becomes novel; one that loses all train pictures is gone.
        """
        piles = [
            _Pile(set(task.labelled) - keys, set(task.unlabelled) - keys, set(task.test) - keys)
            for task in self.tasks
        ]
        return dataclasses.replace(self, tasks=_tasks(piles, self.class_of))._tidy()

    def _tidy(self) -> Self:
        """Without the classes of pictures that are in no task."""
        return dataclasses.replace(self, class_of={key: self.class_of[key] for key in self.keys()})

    def check(self, dataset: Dataset) -> None:
        """Refuse a split that does not belong to `dataset`."""
        if dataset.name != self.dataset:
            raise CampError(f"The split is about {self.dataset}, but the data set is {dataset.name}.")
        missing = [name for name in self.classes if name not in dataset.classes]
        if missing:
            raise CampError(f"The split names the class {missing[0]!r}, which {dataset.name} does not have.")
        rows = {key: row for row, key in enumerate(dataset.keys)}
        for key in self.keys():
            if key not in rows:
                raise CampError(
                    f"The split names {key}, which {dataset.name} does not have; was a file removed?"
                )
            name = dataset.classes[dataset.labels[rows[key]]]
            if name != self.classes[self.class_of[key]]:
                said = self.classes[self.class_of[key]]
                raise CampError(f"The split calls {key} {said!r}, but {dataset.name} says {name!r}.")
        tests = {key for task in self.tasks for key in task.test}
        earlier: set[str] = set()
        for index, task in enumerate(self.tasks):
            both = set(task.labelled) & set(task.unlabelled)
            if both:
                raise CampError(f"The split has {min(both)} labelled and unlabelled in task {index}.")
            for key in (*task.labelled, *task.unlabelled):
                if key in tests or dataset.is_test[rows[key]]:
                    raise CampError(f"The split trains on {key} in task {index}, which is a test picture.")
            again = earlier & {*task.unlabelled, *(() if self.scenario.reveal else task.labelled)}
            if again:
                raise CampError(f"The split has {min(again)} in task {index} and in an earlier one.")
            earlier |= {*task.labelled, *task.unlabelled}

    def to_json(self) -> dict[str, Any]:
        """The split as plain values for a JSON file, with the pictures of each task by class name."""
        return {
            "dataset": self.dataset,
            "seed": self.seed,
            "scenario": dataclasses.asdict(self.scenario),
            "classes": list(self.classes),
            "tasks": [
                {
                    "known": [self.classes[label] for label in task.known],
                    "novel": [self.classes[label] for label in task.novel],
                    "labelled": self._by_class(task.labelled),
                    "unlabelled": self._by_class(task.unlabelled),
                    "test": self._by_class(task.test),
                }
                for task in self.tasks
            ],
        }

    def _by_class(self, keys: Sequence[str]) -> dict[str, list[str]]:
        members: dict[int, list[str]] = defaultdict(list)
        for key in keys:
            members[self.class_of[key]].append(key)
        return {self.classes[label]: members[label] for label in sorted(members)}

    @classmethod
    def from_json(cls, value: Any) -> "Split":
        """The split that `to_json` wrote, equal in everything."""
        try:
            classes = tuple(str(name) for name in value["classes"])
            position = {name: label for label, name in enumerate(classes)}
            piles, class_of = [], {}
            for task in value["tasks"]:
                pile = _Pile()
                for part in ("labelled", "unlabelled", "test"):
                    for name, keys in task[part].items():
                        getattr(pile, part).update(keys)
                        class_of.update(dict.fromkeys(keys, position[name]))
                piles.append(pile)
            split = cls(
                dataset=str(value["dataset"]),
                seed=int(value["seed"]),
                scenario=Scenario(**value["scenario"]),
                classes=classes,
                class_of=class_of,
                tasks=_tasks(piles, class_of),
            )
            said = [(task["known"], task["novel"]) for task in value["tasks"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CampError(f"This is not a split as CAMP writes it ({error!r}).") from error
        for index, (task, names) in enumerate(zip(split.tasks, said)):
            if names != ([classes[label] for label in task.known], [classes[label] for label in task.novel]):
                raise CampError(
                    f"Task {index} of the split calls other classes known or novel than its pictures are; "
                    "change the pictures, or leave both alone."
                )
        return split
