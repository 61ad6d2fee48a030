"""Divide a data set into tasks."""

import itertools

import numpy as np

from camp.core.seeds import numpy_generator
from camp.data.class_order import classes_of_tasks, novel_counts
from camp.data.datasets.base import Dataset
from camp.data.scenario import Scenario
from camp.data.split import Split, TaskKeys, make_tasks

_FEWEST = 4
"""Smallest number of images of a class with `imbalance` "random"."""


def make_split(scenario: Scenario, dataset: Dataset, seed: int) -> Split:
    """Divide the images of `dataset` into the tasks of `scenario`.

    Each draw is seeded by the name of its class, so it does not depend on other classes or
    settings.
    """
    chunks = classes_of_tasks(scenario, dataset, seed)
    stream = [label for chunk in chunks for label in chunk]
    position = {label: place for place, label in enumerate(stream)}
    train = _keys_by_class(dataset, ~dataset.is_test)
    test = _keys_by_class(dataset, dataset.is_test)
    parts = [TaskKeys() for _ in chunks]
    class_of: dict[str, int] = {}
    sizes = _class_sizes(scenario, {dataset.classes[label]: len(train[label]) for label in stream}, seed)
    for task, (chunk, novel) in enumerate(zip(chunks, novel_counts(scenario, chunks))):
        for place, label in enumerate(chunk):
            name = dataset.classes[label]
            # One draw per image of the class, so that a cap or recurring images do not change other labels.
            draws = numpy_generator(seed, "labelled", name).random(len(train[label]))
            kept = _sample_rows(len(train[label]), sizes[name], "images", name)
            now, *later = _divide_over_tasks(scenario, kept, len(chunks) - task - 1, seed, name)
            labelled = _choose_labelled(scenario, draws, now) if place < len(chunk) - novel else set()
            for row in now:
                (parts[task].labelled if row in labelled else parts[task].unlabelled).add(train[label][row])
            for part, rows in zip(parts[task + 1 :], later):
                part.unlabelled.update(train[label][row] for row in rows)
            tests = _sample_rows(len(test[label]), scenario.test_per_class, "test", name)
            parts[task].test.update(test[label][row] for row in tests)
            class_of.update(dict.fromkeys((train[label][row] for row in kept), position[label]))
            class_of.update(dict.fromkeys((test[label][row] for row in tests), position[label]))
    if scenario.reveal:
        for before, after in itertools.pairwise(parts):
            after.labelled |= before.unlabelled
    return Split(
        dataset=dataset.name,
        seed=seed,
        scenario=scenario,
        classes=tuple(dataset.classes[label] for label in stream),
        class_of=class_of,
        tasks=make_tasks(parts, class_of),
    )


def _class_sizes(scenario: Scenario, counts: dict[str, int], seed: int) -> dict[str, int]:
    """Return the number of train images that each class keeps of its `counts`, by name."""
    cap = scenario.images_per_class
    sizes = counts if cap is None else {name: min(count, cap) for name, count in counts.items()}
    if scenario.imbalance is None:
        return sizes
    draws = {name: float(numpy_generator(seed, "imbalance", name).random()) for name in sizes}
    if scenario.imbalance == "random":  # log-uniform
        return {
            n: round(min(_FEWEST, size) * max(size / _FEWEST, 1) ** draws[n]) for n, size in sizes.items()
        }
    shares = scenario.imbalance ** -np.linspace(0, 1, len(sizes))
    order = sorted(sizes, key=lambda name: draws[name])
    # Two at least, so that a known class can have an image without a label.
    return {n: min(sizes[n], max(2, round(sizes[n] * share))) for n, share in zip(order, shares)}


def _divide_over_tasks(
    scenario: Scenario, kept: np.ndarray, later: int, seed: int, name: str
) -> list[np.ndarray]:
    """Divide the rows `kept` of a class over its own task and each of the `later` ones."""
    num_later = int(round(scenario.recurring_fraction * len(kept), 9)) if later else 0
    num_later = min(num_later, len(kept) - 1)
    if not num_later:
        return [kept]
    shuffled = numpy_generator(seed, "recurring", name).permutation(kept)
    return [np.sort(shuffled[num_later:]), *np.array_split(shuffled[:num_later], later)]


def _choose_labelled(scenario: Scenario, draws: np.ndarray, rows: np.ndarray) -> set[int]:
    """Return the labelled ones of `rows`: those with the lowest uniform `draws`, at least one."""
    lowest = rows[np.argsort(draws[rows], kind="stable")]
    if scenario.labelling == "exact":
        count = round(scenario.labelled_fraction * len(rows))
    else:
        count = int((draws[rows] < scenario.labelled_fraction).sum())
    return set(lowest[: max(count, 1)].tolist())


def _keys_by_class(dataset: Dataset, chosen: np.ndarray) -> list[list[str]]:
    """Return the sorted keys of each class among the rows of the mask `chosen` (N,)."""
    keys: list[list[str]] = [[] for _ in dataset.classes]
    for row in np.flatnonzero(chosen):
        keys[dataset.labels[row]].append(dataset.keys[row])
    return keys


def _sample_rows(count: int, cap: int | None, *names: object) -> np.ndarray:
    """Draw at most `cap` of the rows 0..count-1; the same for every seed, so that all seeds share a bank."""
    if cap is None or cap >= count:
        return np.arange(count)
    return np.sort(numpy_generator(0, *names).permutation(count)[:cap])
