"""How a Python program hears of categories: by the labels it gave, names or whole numbers.

A category without a name is called `category 7` by its id, or -8, which is -id - 1, where labels are whole numbers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from camp.app.workspace.array_input import NotUsable, read_label
from camp.app.workspace.memory_store import Held
from camp.app.workspace.model import called

Label = int | str


@dataclass(frozen=True)
class FoundCategory:
    """A category as `CAMP.categories_` lists it."""

    id: int
    """Never changes."""
    label: Label
    """What `predict` answers."""
    name: str | None
    """None for a discovered category that nobody has named."""
    origin: str
    """labelled, discovered, or made by a person."""
    pictures: int
    """How many pictures, or vectors, belong to it."""
    step: int
    """The batch, counted from 1, in which it appeared."""


def in_numbers(held: Held) -> bool:
    """Whether labels are whole numbers: they were given so, and nobody has named a category in words since."""
    if not any(report.get("numbers") for report in held.reports.values()):
        return False
    return all(
        name.isascii() and name.isdecimal() and str(int(name)) == name for name in held.knowledge.named()
    )


def label_of(id: int, name: str | None, numbers: bool) -> Label:
    """The label of a category.

    >>> label_of(7, None, False), label_of(7, None, True), label_of(7, "3", True)
    ('category 7', -8, 3)
    """
    if not numbers:
        return called(id, name)
    return int(name) if name is not None else -id - 1


def found_categories(held: Held) -> list[FoundCategory]:
    """The live categories, by id."""
    counts, numbers = held.knowledge.counts(), in_numbers(held)
    return [
        FoundCategory(
            one.id, label_of(one.id, one.name, numbers), one.name, one.origin, counts[one.id], one.step
        )
        for one in held.knowledge.live()
    ]


def id_of(held: Held, label: Any) -> int:
    """The category with a label; where labels are names also by its id."""
    if isinstance(label, np.generic):
        label = label.item()
    if not in_numbers(held):
        return held.knowledge.find(label).id
    for category in found_categories(held):
        if category.label == label:
            return category.id
    raise NotUsable(f"No category has the label {label!r}; `categories_` lists them.")


def name_from(held: Held, label: Any) -> str:
    """The name that a label would be, of the kind that all have."""
    name, number = read_label(label)
    if name is None or number != in_numbers(held):
        kind = "whole number from 0 on" if in_numbers(held) else "string"
        raise NotUsable(f"{label!r} can not name a category here; give a {kind}, as the others are.")
    return name
