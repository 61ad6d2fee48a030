"""A split: which picture is in which task, and as what. It can be written, given back and checked."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset
from camp.data.scenario import Scenario


@dataclass
class Pile:
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


def tasks_of(piles: Iterable[Pile], class_of: Mapping[str, int]) -> tuple[TaskSplit, ...]:
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
            Pile(set(task.labelled) - keys, set(task.unlabelled) - keys, set(task.test) - keys)
            for task in self.tasks
        ]
        return dataclasses.replace(self, tasks=tasks_of(piles, self.class_of))._tidy()

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
                pile = Pile()
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
                tasks=tasks_of(piles, class_of),
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
