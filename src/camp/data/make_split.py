"""The cut of a data set into tasks by a scenario."""

import itertools

import numpy as np

from camp.core.seeds import numpy_generator
from camp.data.class_order import classes_of_tasks, novel_counts
from camp.data.datasets.base import Dataset
from camp.data.scenario import Scenario
from camp.data.split import Pile, Split, tasks_of


def cut(scenario: Scenario, dataset: Dataset, seed: int) -> Split:
    """Deal the pictures of `dataset` to tasks as `scenario` says; the same seed always gives the same cut.

    Each draw is called by the name of its class, so that it depends on no other class or setting.
    """
    chunks = classes_of_tasks(scenario, dataset, seed)
    stream = [label for chunk in chunks for label in chunk]
    position = {label: place for place, label in enumerate(stream)}
    train = _keys_by_class(dataset, ~dataset.is_test)
    test = _keys_by_class(dataset, dataset.is_test)
    piles = [Pile() for _ in chunks]
    class_of: dict[str, int] = {}
    for task, (chunk, novel) in enumerate(zip(chunks, novel_counts(scenario, chunks))):
        for place, label in enumerate(chunk):
            name = dataset.classes[label]
            # A draw for each picture of the class: a cap or a share kept back changes no other label.
            draws = numpy_generator(seed, "labelled", name).random(len(train[label]))
            kept = _drawn(len(train[label]), scenario.images_per_class, "images", name)
            now, *later = _dealt(scenario, kept, len(chunks) - task - 1, seed, name)
            labelled = _labelled(scenario, draws, now) if place < len(chunk) - novel else set()
            for row in now:
                (piles[task].labelled if row in labelled else piles[task].unlabelled).add(train[label][row])
            for pile, rows in zip(piles[task + 1 :], later):
                pile.unlabelled.update(train[label][row] for row in rows)
            tests = _drawn(len(test[label]), scenario.test_per_class, "test", name)
            piles[task].test.update(test[label][row] for row in tests)
            class_of.update(dict.fromkeys((train[label][row] for row in kept), position[label]))
            class_of.update(dict.fromkeys((test[label][row] for row in tests), position[label]))
    if scenario.reveal:
        for before, after in itertools.pairwise(piles):
            after.labelled |= before.unlabelled
    return Split(
        dataset=dataset.name,
        seed=seed,
        scenario=scenario,
        classes=tuple(dataset.classes[label] for label in stream),
        class_of=class_of,
        tasks=tasks_of(piles, class_of),
    )


def _dealt(scenario: Scenario, kept: np.ndarray, later: int, seed: int, name: str) -> list[np.ndarray]:
    """Rows `kept` of a class for its own task and for each of the `later` ones."""
    back = int(round(scenario.recurring_fraction * len(kept), 9)) if later else 0
    back = min(back, len(kept) - 1)
    if not back:
        return [kept]
    shuffled = numpy_generator(seed, "recurring", name).permutation(kept)
    return [np.sort(shuffled[back:]), *np.array_split(shuffled[:back], later)]


def _labelled(scenario: Scenario, draws: np.ndarray, rows: np.ndarray) -> set[int]:
    """Those of `rows` that carry their label: the lowest of the uniform `draws`, and one in any case."""
    lowest = rows[np.argsort(draws[rows], kind="stable")]
    if scenario.labelling == "exact":
        count = round(scenario.labelled_fraction * len(rows))
    else:
        count = int((draws[rows] < scenario.labelled_fraction).sum())
    return set(lowest[: max(count, 1)].tolist())


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
