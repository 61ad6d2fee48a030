"""Class order: the order of the classes, their division into tasks, and the number of novel classes."""

import functools
import json
from collections import defaultdict
from collections.abc import Sequence
from importlib import resources

import numpy as np

from camp.core.errors import CampError
from camp.core.seeds import numpy_generator
from camp.data.datasets.base import Dataset
from camp.data.scenario import Scenario


@functools.cache
def class_orders() -> dict[str, list[int | str]]:
    """Return the published class orders by data set: label ids, or names for cub200."""
    text = resources.files("camp.data").joinpath("class_orders.json").read_text(encoding="utf-8")
    orders: dict[str, list[int | str]] = json.loads(text)
    return orders


def classes_of_tasks(scenario: Scenario, dataset: Dataset, seed: int) -> list[list[int]]:
    """Return the classes of each task, as indices into `dataset.classes`."""
    count = scenario.classes or len(dataset.classes)
    if count > len(dataset.classes):
        raise CampError(f"{dataset.name} has {len(dataset.classes)} classes, not {count}; ask for fewer.")
    if scenario.tasks > count:
        raise CampError(f"{count} classes cannot be divided into {scenario.tasks} tasks; use fewer tasks.")
    if scenario.order == "paper" and dataset.domains is not None and scenario.first_fraction is None:
        if scenario.classes is not None:
            raise CampError("With domains as tasks all classes are used; use the order 'seed' for fewer.")
        return _domain_chunks(dataset.domains, scenario.tasks)
    order = _order(scenario, dataset, seed)[:count]
    if scenario.first_fraction is None:
        return [chunk.tolist() for chunk in np.array_split(order, scenario.tasks)]
    first = min(max(round(count * scenario.first_fraction), 1), count - scenario.tasks + 1)
    return [chunk.tolist() for chunk in (order[:first], *np.array_split(order[first:], scenario.tasks - 1))]


def _order(scenario: Scenario, dataset: Dataset, seed: int) -> np.ndarray:
    """Return all classes (C,) in the order of the stream."""
    if scenario.order == "seed":
        return numpy_generator(seed, "order").permutation(len(dataset.classes))
    if scenario.order == "given" or dataset.domains is not None:
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


def _domain_chunks(domains: Sequence[str], tasks: int) -> list[list[int]]:
    """Return one domain, or a part of one, per task, so that the domain changes with each task."""
    members: dict[str, list[int]] = defaultdict(list)
    for label, domain in enumerate(domains):
        members[domain].append(label)
    if len(members) % tasks == 0:
        groups = np.array_split(np.array(list(members)), tasks)
        return [[label for domain in group for label in members[str(domain)]] for group in groups]
    rounds, rest = divmod(tasks, len(members))
    if rest or rounds > min(map(len, members.values())):
        raise CampError(
            f"{len(members)} domains cannot be divided into {tasks} tasks of one domain each; use a multiple of "
            f"{len(members)}, or the order 'seed'."
        )
    parts = {domain: np.array_split(labels, rounds) for domain, labels in members.items()}
    return [parts[domain][number].tolist() for number in range(rounds) for domain in members]


def novel_counts(scenario: Scenario, chunks: Sequence[Sequence[int]]) -> list[int]:
    """Return the number of novel classes of each task."""
    total = sum(len(chunk) for chunk in chunks)
    counts = []
    for task, chunk in enumerate(chunks):
        fraction = scenario.first_novel if task == 0 else scenario.novel_fraction
        if fraction in (0, 1):
            count = int(fraction) * len(chunk)
        elif scenario.first_fraction is None:
            # The rule of the authors' code; rounding prevents 0.29 * 100 = 28.999... from losing a class.
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
