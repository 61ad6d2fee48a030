"""Splits: which image is labelled, unlabelled or a test image in which task."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from camp.core.errors import CampError
from camp.core.settings import describe_error, with_json
from camp.data.datasets.base import Dataset
from camp.data.scenario import Scenario


class TaskRecord(TypedDict):
    """A task in `split.json`: class names, and keys by class name."""

    known: list[str]
    novel: list[str]
    labelled: dict[str, list[str]]
    unlabelled: dict[str, list[str]]
    test: dict[str, list[str]]


class SplitRecord(TypedDict):
    """Content of `split.json`."""

    dataset: str
    seed: int
    scenario: dict[str, bool | int | float | str | None]
    classes: list[str]
    tasks: list[TaskRecord]


_SPLIT_RECORD = TypeAdapter(SplitRecord)


@dataclass
class TaskKeys:
    """Keys of the images of a task."""

    labelled: set[str] = field(default_factory=set)
    unlabelled: set[str] = field(default_factory=set)
    test: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class TaskSplit:
    """Classes and sorted keys of one task; classes are indices in the class order of the stream."""

    known: tuple[int, ...]
    """Classes with labelled images in this task."""
    novel: tuple[int, ...]
    """Classes that appear for the first time and have no labelled images."""
    labelled: tuple[str, ...]
    unlabelled: tuple[str, ...]
    test: tuple[str, ...]
    """Test images of the classes that appear for the first time."""


def make_tasks(parts: Iterable[TaskKeys], class_of: Mapping[str, int]) -> tuple[TaskSplit, ...]:
    """Determine the known and novel classes of each task."""
    tasks = []
    seen: set[int] = set()
    for index, part in enumerate(parts):
        known = {class_of[key] for key in part.labelled}
        here = known | {class_of[key] for key in part.unlabelled}
        if not here:
            raise CampError(f"Task {index} has no train images; use fewer tasks or check the data.")
        tasks.append(
            TaskSplit(
                known=tuple(sorted(known)),
                novel=tuple(sorted(here - known - seen)),
                labelled=tuple(sorted(part.labelled)),
                unlabelled=tuple(sorted(part.unlabelled)),
                # A class without train images cannot be learnt, so it is not tested.
                test=tuple(sorted(key for key in part.test if class_of[key] in here)),
            )
        )
        seen |= here
    return tuple(tasks)


@dataclass(frozen=True)
class Split:
    """Division of a data set into tasks; methods have no access to it."""

    dataset: str
    """Name of the data set."""
    seed: int
    scenario: Scenario
    classes: tuple[str, ...]
    """Names of all classes, in the class order of the stream."""
    class_of: Mapping[str, int]
    """True class of each key, as an index into `classes`."""
    tasks: tuple[TaskSplit, ...]

    def keys(self) -> tuple[str, ...]:
        """Return the sorted keys of all images of the stream, train and test."""
        return tuple(sorted({key for t in self.tasks for key in (*t.labelled, *t.unlabelled, *t.test)}))

    def without(self, keys: set[str]) -> Self:
        """Return the split without some images, such as unreadable ones.

        A class that loses all its labelled images becomes novel; one that loses all train images is
        removed.
        """
        parts = [
            TaskKeys(set(task.labelled) - keys, set(task.unlabelled) - keys, set(task.test) - keys)
            for task in self.tasks
        ]
        less = dataclasses.replace(self, tasks=make_tasks(parts, self.class_of))
        return dataclasses.replace(less, class_of={key: self.class_of[key] for key in set(less.keys())})

    def check(self, dataset: Dataset) -> None:
        """Raise an error if the split does not belong to `dataset` or contradicts itself."""
        if dataset.name != self.dataset:
            raise CampError(f"The split is of {self.dataset}, but the data set is {dataset.name}.")
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
                given = self.classes[self.class_of[key]]
                raise CampError(
                    f"The split gives {key} the class {given!r}, but {dataset.name} says {name!r}."
                )
        tests = {key for task in self.tasks for key in task.test}
        earlier: set[str] = set()
        for index, task in enumerate(self.tasks):
            both = set(task.labelled) & set(task.unlabelled)
            if both:
                raise CampError(f"The split has {min(both)} labelled and unlabelled in task {index}.")
            for key in (*task.labelled, *task.unlabelled):
                if key in tests or dataset.is_test[rows[key]]:
                    raise CampError(f"The split trains on {key} in task {index}, which is a test image.")
            again = earlier & {*task.unlabelled, *(() if self.scenario.reveal else task.labelled)}
            if again:
                raise CampError(f"The split has {min(again)} in task {index} and in an earlier one.")
            earlier |= {*task.labelled, *task.unlabelled}

    def to_json(self) -> SplitRecord:
        """Return the content of `split.json`, with the images of each task by class name."""
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
    def from_json(cls, value: object) -> Self:
        """Return the split that `to_json` wrote, or that a user has written in the same form."""
        try:
            record = _SPLIT_RECORD.validate_python(value)
        except ValidationError as error:
            raise _not_a_split(describe_error(error)) from error
        if not record["tasks"]:
            raise _not_a_split("it has no task")
        scenario = with_json(Scenario(), record["scenario"])
        position = {name: label for label, name in enumerate(record["classes"])}
        if len(position) < len(record["classes"]):
            raise _not_a_split("it names a class twice")
        parts = []
        class_of: dict[str, int] = {}
        for task in record["tasks"]:
            sets: list[set[str]] = []
            for members in (task["labelled"], task["unlabelled"], task["test"]):
                for name, keys in members.items():
                    if name not in position:
                        raise _not_a_split(f"{name!r} is not in classes")
                    for key in keys:
                        if class_of.setdefault(key, position[name]) != position[name]:
                            raise _not_a_split(f"{key!r} is in two classes")
                sets.append(set().union(*members.values()))
            parts.append(TaskKeys(*sets))
        split = cls(
            dataset=record["dataset"],
            seed=record["seed"],
            scenario=scenario,
            classes=tuple(record["classes"]),
            class_of=class_of,
            tasks=make_tasks(parts, class_of),
        )
        for index, (given, derived) in enumerate(zip(record["tasks"], split.to_json()["tasks"])):
            if (given["known"], given["novel"]) != (derived["known"], derived["novel"]):
                raise CampError(
                    f"Task {index} of the split calls other classes known or novel than its images are; "
                    "change the images, or leave both alone."
                )
        return split


def _not_a_split(reason: str) -> CampError:
    return CampError(f"This is not a split as CAMP writes it ({reason}).")
