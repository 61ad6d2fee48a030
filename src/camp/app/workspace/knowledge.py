"""What a workspace knows: its categories, and the pictures they were learned from, as features.

A category's id never changes and is never used again. Its centroid is the mean of its pictures' features, so whatever a
person decides about pictures (this one is a heron, these two kinds are one) is at once decided about centroids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from camp.app.workspace.model import called
from camp.core.errors import CampError
from camp.discovery.calibration import Calibration
from camp.discovery.class_metric import ClassMetric

NOWHERE = -1
"""Category of a picture that was discarded."""

FOUND, LABEL, PERSON = 0, 1, 2
"""Who said which category a picture belongs to: the clustering, a label that came with it, a person on the page."""


@dataclass(frozen=True)
class Category:
    """One kind of picture."""

    id: int
    name: str | None
    """None until somebody names it."""
    step: int
    """The learning step, counted from 1, in which it appeared."""
    origin: Literal["labelled", "discovered", "made"]
    """It came with a label, it was discovered, or a person made it out of others."""
    merged_into: int | None = None
    discarded: bool = False

    @property
    def live(self) -> bool:
        """Whether it still is a category of its own."""
        return self.merged_into is None and not self.discarded

    @property
    def title(self) -> str:
        """Its name, or its id in words."""
        return called(self.id, self.name)


@dataclass
class Pictures:
    """n pictures, a row each; rows keep their order within a learning step."""

    files: list[str]
    """Where each was when it was learned; it need not be there any more."""
    digests: np.ndarray
    """(n, 16) uint8, fingerprints of the bytes."""
    steps: np.ndarray
    """(n,) int32, the learning step it came in."""
    category: np.ndarray
    """(n,) int32, the id of its category, or NOWHERE."""
    told: np.ndarray
    """(n,) uint8: FOUND, LABEL or PERSON."""
    features: np.ndarray
    """(n, D) in the present feature space; often a memory map in half precision."""
    points: np.ndarray
    """(n, d) float32, the same under the present metric."""
    positions: np.ndarray
    """(n, 2) float32, on the map."""

    def __len__(self) -> int:
        return len(self.files)


@dataclass
class Knowledge:
    """Categories and pictures after some learning steps and some decisions."""

    step: int
    """Learning steps so far."""
    categories: dict[int, Category]
    """All that ever were, by id."""
    pictures: Pictures
    metric: ClassMetric
    """From features to points, in which distances are measured; of the last learning step."""
    sure: Calibration
    """What the distances are worth."""
    apart: frozenset[tuple[int, int]] = frozenset()
    """Pairs of ids, the smaller first, that a person said are different however alike they look."""
    used: int = 0
    """The greatest id that a person's decision ever gave, also if it was undone."""

    def live(self) -> list[Category]:
        """Categories that are still their own, by id."""
        return [category for _, category in sorted(self.categories.items()) if category.live]

    def next_id(self) -> int:
        """The first id that was never used."""
        return max(self.used, *self.categories, 0) + 1

    def counts(self) -> dict[int, int]:
        """Pictures of each live category."""
        ids, counts = np.unique(self.pictures.category, return_counts=True)
        held = dict(zip(ids.tolist(), counts.tolist()))
        return {category.id: held.get(category.id, 0) for category in self.live()}

    def rows_of(self, id: int) -> np.ndarray:
        """Rows of the pictures of a category."""
        return np.flatnonzero(self.pictures.category == id)

    def named(self) -> dict[str, int]:
        """Ids of live categories by name."""
        return {category.name: category.id for category in self.live() if category.name is not None}

    def category(self, id: int) -> Category:
        """The live category `id`; a sentence if there is none."""
        found = self.categories.get(id)
        if found is None:
            raise CampError(f"There is no category {id}.")
        if found.merged_into is not None:
            raise CampError(f"{found.title} was merged into category {found.merged_into}.")
        if found.discarded:
            raise CampError(f"{found.title} was discarded.")
        return found

    def find(self, what: str | int) -> Category:
        """A live category by its name, or by its id as a number, `7` or `category 7`."""
        by_name = self.named().get(str(what))
        if by_name is not None:
            return self.categories[by_name]
        digits = str(what).removeprefix("category ").strip()
        if digits.isdecimal():
            return self.category(int(digits))
        raise CampError(f'There is no category called "{what}"; `camp status` lists them.')

    # Changes by decisions. Each returns new knowledge and shares with the old what it does not touch.

    def renamed(self, id: int, name: str | None) -> Knowledge:
        """`id` is called `name`."""
        return self._with([dataclasses.replace(self.category(id), name=name)])

    def merged(self, id: int, into: int) -> Knowledge:
        """The pictures of `id` belong to `into`, which takes over a name if it has none."""
        source, target = self.category(id), self.category(into)
        if id == into:
            raise CampError(f"{source.title} can not be merged with itself; choose two categories.")
        target = dataclasses.replace(target, name=target.name if target.name is not None else source.name)
        ended = dataclasses.replace(source, merged_into=into)
        return self._with([ended, target])._assigned(self.rows_of(id), into, None)

    def told_apart(self, id: int, other: int) -> Knowledge:
        """`id` and `other` are different kinds."""
        if self.category(id).id == self.category(other).id:
            raise CampError(f"{self.category(id).title} can not differ from itself; choose two categories.")
        return dataclasses.replace(self, apart=self.apart | {(min(id, other), max(id, other))})

    def moved(self, rows: Sequence[int], into: int, made: bool = False) -> Knowledge:
        """Pictures belong to `into`; with `made` that is a new category, which a person has made."""
        if not made:
            self.category(into)
            return self._assigned(self._checked(rows), into, PERSON)
        if into in self.categories:
            raise CampError(f"Category {into} exists already; a new one gets a new id.")
        born = Category(into, None, self.step, "made")
        return self._with([born])._assigned(self._checked(rows), into, PERSON)

    def discarded(self, id: int) -> Knowledge:
        """`id` is no kind at all; its pictures count for nothing."""
        rows = self.rows_of(id)
        return self._with([dataclasses.replace(self.category(id), discarded=True)])._assigned(
            rows, NOWHERE, None
        )

    def without(self, rows: Sequence[int]) -> Knowledge:
        """Single pictures count for nothing."""
        return self._assigned(self._checked(rows), NOWHERE, PERSON)

    def _checked(self, rows: Sequence[int]) -> np.ndarray:
        chosen = np.unique(np.asarray(rows, dtype=np.int64))
        if not len(chosen):
            raise CampError("No picture was chosen; choose at least one.")
        if chosen[0] < 0 or chosen[-1] >= len(self.pictures):
            wrong = chosen[0] if chosen[0] < 0 else chosen[-1]
            raise CampError(f"There are pictures 0 to {len(self.pictures) - 1}, not {wrong}.")
        return chosen

    def _with(self, changed: Iterable[Category]) -> Knowledge:
        categories = {**self.categories, **{category.id: category for category in changed}}
        return dataclasses.replace(self, categories=categories)

    def _assigned(self, rows: np.ndarray, id: int, told: int | None) -> Knowledge:
        category, who = self.pictures.category.copy(), self.pictures.told
        category[rows] = id
        if told is not None:
            who = who.copy()
            who[rows] = told
        return dataclasses.replace(
            self, pictures=dataclasses.replace(self.pictures, category=category, told=who)
        )
