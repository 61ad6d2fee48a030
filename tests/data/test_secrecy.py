"""No object that is reachable from a task reveals hidden labels or names."""

import dataclasses
import gc
import types
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import pytest
import torch
from torch import Tensor

from camp.core.types import UNLABELLED
from camp.data.datasets import load_dataset
from camp.data.datasets.base import Dataset
from camp.data.make_split import make_split
from camp.data.scenario import Scenario, make_scenario
from camp.data.split import Split, TaskSplit
from camp.data.stream import make_task
from camp.data.tasks import Task, TaskTruth
from camp.data.views import Batch


class ArrayViews:
    """Views over images held in memory: the clean view and noisy ones."""

    augmentations = 4

    def __init__(self, pixels: Tensor, digests: Tensor) -> None:
        self.pixels = pixels
        self._digests = digests

    def __len__(self) -> int:
        return len(self.pixels)

    def clean(self, rows: Tensor) -> Batch:
        return {"pixels": self.pixels[rows]}

    def draw(self, rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
        draws = torch.rand(self.augmentations, len(rows), generator=generator)
        return draws.argsort(dim=0)[:count]

    def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
        return {"pixels": torch.cat([self.pixels[rows] + 0.01 * view[:, None] for view in ids])}

    def subset(self, rows: Tensor) -> Self:
        return type(self)(self.pixels[rows], self._digests[rows])

    def concat(self, other: Self) -> Self:
        return type(self)(torch.cat([self.pixels, other.pixels]), torch.cat([self._digests, other._digests]))

    def digests(self) -> Tensor:
        return self._digests

    def from_digests(self, digests: Tensor) -> Self:
        place = {bytes(row.tolist()): index for index, row in enumerate(self._digests)}
        return self.subset(torch.tensor([place[bytes(row.tolist())] for row in digests]))


def stream(preset: str) -> Iterator[tuple[Task, TaskTruth]]:
    """The tasks of the digits, with keys and class names that occur nowhere by chance."""
    digits = load_dataset("digits")
    dataset = Dataset(
        name="digits",
        classes=tuple(f"kind of digit {name}" for name in digits.classes),
        keys=tuple(f"images/{key}.png" for key in digits.keys),
        labels=digits.labels,
        is_test=digits.is_test,
        reader=digits.reader,
    )
    split = make_split(make_scenario("digits", preset), dataset, 0)
    rows = {key: row for row, key in enumerate(dataset.keys)}

    def open_views(keys: Sequence[str]) -> ArrayViews:
        data = [digits.read(digits.keys[rows[key]]) for key in keys]
        pixels = torch.tensor([list(raster) for raster in data]).float() / 255
        numbers = torch.randint(0, 256, (len(data), 16), generator=torch.Generator().manual_seed(0))
        return ArrayViews(pixels, numbers.to(torch.uint8))

    for index in range(len(split.tasks)):
        yield make_task(split, dataset, index, open_views)


# The search


def reachable(root: Any) -> list[Any]:
    """Every object a holder of `root` can get at, short of modules, types and the globals of functions."""
    found: dict[int, Any] = {}
    waiting = [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) in found or isinstance(thing, types.ModuleType | type | types.CodeType):
            continue
        found[id(thing)] = thing
        if isinstance(thing, types.FunctionType):
            waiting += [thing.__closure__, thing.__defaults__, thing.__kwdefaults__, vars(thing)]
            continue
        waiting += gc.get_referents(thing)
        if hasattr(thing, "__dict__"):
            waiting.append(vars(thing))
        for name in (slot for kind in type(thing).__mro__ for slot in getattr(kind, "__slots__", ())):
            if isinstance(name, str) and not name.startswith("__") and hasattr(thing, name):
                waiting.append(getattr(thing, name))
        if isinstance(thing, np.ndarray) and (thing.base is not None or thing.dtype == object):
            waiting += [thing.base, *(thing.ravel().tolist() if thing.dtype == object else ())]
    return list(found.values())


def columns(thing: Any) -> Iterator[np.ndarray]:
    """Every list of whole numbers in `thing`."""
    if isinstance(thing, Tensor):
        thing = thing.detach().cpu().numpy()
    elif isinstance(thing, list | tuple) and thing and all(isinstance(entry, int | float) for entry in thing):
        thing = np.array(thing)
    elif isinstance(thing, bytes | bytearray):
        thing = np.frombuffer(bytes(thing), dtype=np.uint8)
    if isinstance(thing, np.ndarray) and thing.dtype.kind in "iufb" and thing.ndim:
        yield from thing.reshape(len(thing), -1).T if thing.size else ()


def tells(column: np.ndarray, classes: np.ndarray) -> bool:
    """Whether `column` sorts things as `classes` does, under whatever numbers."""
    if len(column) != len(classes):
        return False
    pairs = len(np.unique(np.stack([column, classes]), axis=1).T)
    return pairs == len(np.unique(column)) == len(np.unique(classes)) > 1


def leaks(task: Task, truth: TaskTruth) -> set[str]:
    """What `task` lets a method know that it must not."""
    hidden = task.labels.numpy() == UNLABELLED
    texts = {*truth.train_keys, *truth.test_keys, *truth.class_names}
    found = set()
    for thing in reachable(task):
        if isinstance(thing, TaskTruth | Split | TaskSplit | Scenario | Dataset):
            found.add(type(thing).__name__)
        if isinstance(thing, str | bytes) and len(thing) < 1000:
            text = thing if isinstance(thing, str) else thing.decode("latin-1")
            if text in texts or any(name in text for name in truth.class_names):
                found.add("a name")
        for column in columns(thing):
            everywhere = len(column) == len(hidden) and tells(column[hidden], truth.train_classes[hidden])
            if everywhere or tells(column, truth.train_classes[hidden]) or tells(column, truth.test_classes):
                found.add("true classes")
        if isinstance(thing, dict) and all(isinstance(value, int) for value in thing.values()):
            values = np.array(list(thing.values()))
            found |= {"true classes"} if tells(values, truth.train_classes[hidden]) else set()
    return found


@pytest.mark.parametrize("preset", ["gccd", "semi-cl", "ssl-cl", "igcd", "cgcd", "gcd"])
def test_no_secret_is_reachable_from_a_task(preset):
    for task, truth in stream(preset):
        if (task.labels == UNLABELLED).any():
            assert leaks(task, truth) == set()


def test_the_labels_of_labelled_images_are_right():
    """The search is not blind: it does find what a method is allowed to know."""
    task, truth = next(stream("gccd"))
    shown = task.labels.numpy() != UNLABELLED
    assert tells(task.labels.numpy()[shown], truth.train_classes[shown])
    assert any(thing is task.labels for thing in reachable(task))


def test_the_views_are_real():
    task, _ = next(stream("gccd"))
    rows = torch.arange(6)
    ids = task.views.draw(rows, 2, torch.Generator().manual_seed(0))
    assert task.views.augmented(rows, ids)["pixels"].shape == (12, 64)
    again = task.views.from_digests(task.views.digests()[rows])
    assert torch.equal(again.clean(rows)["pixels"], task.views.clean(rows)["pixels"])


# The search finds what is planted


class Slotted:
    __slots__ = ("inside",)

    def __init__(self, inside: Any) -> None:
        self.inside = inside


def in_an_attribute(task: Task, secret: Any) -> Task:
    task.views.helper = secret
    return task


def in_a_container(task: Task, secret: Any) -> Task:
    task.views.cache = {"deep": [({"er": secret},)]}
    return task


def in_a_closure(task: Task, secret: Any) -> Task:
    task.views.reader = lambda: secret
    return task


def in_a_default(task: Task, secret: Any) -> Task:
    def reader(held: Any = secret) -> Any:
        return held

    task.views.reader = reader
    return task


def in_a_slot(task: Task, secret: Any) -> Task:
    task.views.helper = Slotted(secret)
    return task


def in_a_method(task: Task, secret: Any) -> Task:
    task.views.reader = types.MethodType(lambda self: self, Slotted(secret))
    return task


def in_a_tensor_attribute(task: Task, secret: Any) -> Task:
    task.labels.owner = secret
    return task


def in_an_object_array(task: Task, secret: Any) -> Task:
    array = np.empty(1, dtype=object)
    array[0] = secret
    task.views.table = array
    return task


def in_a_field(task: Task, secret: Any) -> Task:
    object.__setattr__(task, "note", secret)
    return task


PLACES = [
    in_an_attribute,
    in_a_container,
    in_a_closure,
    in_a_default,
    in_a_slot,
    in_a_method,
    in_a_tensor_attribute,
    in_an_object_array,
    in_a_field,
]


def hidden_classes(task: Task, truth: TaskTruth) -> np.ndarray:
    return truth.train_classes[task.labels.numpy() == UNLABELLED]


SECRETS = {
    "TaskTruth": lambda task, truth: truth,
    "a name": lambda task, truth: list(truth.train_keys),
    "true classes": lambda task, truth: truth.train_classes,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", SECRETS)
def test_a_planted_secret_is_found(place, kind):
    task, truth = next(stream("gccd"))
    assert leaks(task, truth) == set()
    assert kind in leaks(place(task, SECRETS[kind](task, truth)), truth)


@pytest.mark.parametrize(
    "disguise",
    [
        lambda task, truth: torch.tensor(truth.train_classes),
        lambda task, truth: truth.train_classes.tolist(),
        lambda task, truth: (7 * truth.train_classes + 3) % 11,  # under other numbers
        lambda task, truth: truth.train_classes.astype(np.uint8).tobytes(),
        lambda task, truth: np.stack([np.zeros(len(task)), truth.train_classes], axis=1),
        hidden_classes,  # of the unlabelled images alone
        lambda task, truth: {row: int(label) for row, label in enumerate(hidden_classes(task, truth))},
        lambda task, truth: truth.test_classes,
        lambda task, truth: np.array(truth.train_classes)[:],
        lambda task, truth: torch.tensor(np.where(task.labels >= 0, -1, truth.train_classes)),
    ],
)
def test_true_classes_are_found_in_disguise(disguise):
    task, truth = next(stream("gccd"))
    assert "true classes" in leaks(in_an_attribute(task, disguise(task, truth)), truth)


def test_a_task_labelled_by_the_truth_is_found():
    task, truth = next(stream("gccd"))
    told = dataclasses.replace(task, labels=torch.tensor(truth.train_classes))
    hidden = task.labels.numpy() == UNLABELLED
    assert tells(told.labels.numpy()[hidden], truth.train_classes[hidden])


def test_the_data_set_and_the_split_are_found():
    task, truth = next(stream("gccd"))
    dataset = load_dataset("digits")
    assert "Dataset" in leaks(in_a_closure(task, dataset), truth)
    task, truth = next(stream("gccd"))
    assert "Split" in leaks(in_a_closure(task, make_split(make_scenario("digits"), dataset, 0)), truth)
