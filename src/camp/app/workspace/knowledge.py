"""Categories and the images they were learned from, as features.

The id of a category never changes and is never reused. A centroid is the mean of the features of a category's images,
so that every decision about images (this one is a heron, these two categories are one) changes the centroids at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from camp.app.workspace.kept_unknown import KeptImages
from camp.core.errors import CampError
from camp.core.large_arrays import copy_rows
from camp.discovery.calibration import Calibration
from camp.discovery.class_metric import ClassMetric

DISCARDED = -1
"""Category of an image that was discarded."""
CLUSTERED, LABELLED, REVIEWED = 0, 1, 2
"""Source of an image's category: the clustering, a label that came with the image, a person on the review page."""


def category_title(id: int, name: str | None) -> str:
    """Return the name of a category, or its id in words.

    >>> category_title(7, None), category_title(7, "heron")
    ('category 7', 'heron')
    """
    return name if name is not None else f"category {id}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count(1, "picture"), count(2, "category")
    ('1 picture', '2 categories')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


@dataclass(frozen=True)
class Category:
    """A category of images."""

    id: int
    name: str | None
    """None until a person or a label names it."""
    step: int
    """The learning step, counted from 1, in which it appeared."""
    origin: Literal["labelled", "discovered", "made"]
    """It came with a label, it was discovered, or a person made it out of others."""
    merged_into: int | None = None
    discarded: bool = False

    @property
    def live(self) -> bool:
        """Whether it was neither merged into another category nor discarded."""
        return self.merged_into is None and not self.discarded

    @property
    def title(self) -> str:
        """Its name, or its id in words."""
        return category_title(self.id, self.name)


@dataclass
class Images:
    """n learned images, one per row; rows keep their order within a learning step."""

    files: list[str]
    """Where each image was when it was learned; the file may be gone."""
    digests: np.ndarray
    """(n, 16) uint8, hashes of the file contents."""
    steps: np.ndarray
    """(n,) int32, the learning step of each image."""
    category: np.ndarray
    """(n,) int32, the id of the category, or DISCARDED."""
    source: np.ndarray
    """(n,) uint8: CLUSTERED, LABELLED or REVIEWED."""
    features: np.ndarray
    """(n, D) in the present feature space; often a memory map in half precision."""
    points: np.ndarray
    """(n, d) float32, the features under the present metric."""
    positions: np.ndarray
    """(n, 2) float32, on the map."""
    _order: dict[int, np.ndarray] | None = field(default=None, init=False, repr=False)
    """Rows of each category, where they were asked for."""

    def __len__(self) -> int:
        return len(self.files)

    @classmethod
    def empty(cls, dim: int) -> Images:
        """No image, for features of length `dim`."""
        return cls(
            files=[],
            digests=np.empty((0, 16), np.uint8),
            steps=np.empty(0, np.int32),
            category=np.empty(0, np.int32),
            source=np.empty(0, np.uint8),
            features=np.empty((0, dim), np.float32),
            points=np.empty((0, 1), np.float32),
            positions=np.empty((0, 2), np.float32),
        )

    def index_categories(self) -> None:
        """Make `rows_of` fast, for callers that ask for all categories."""
        if self._order is None:
            ids, counts = np.unique(self.category, return_counts=True)
            order = np.argsort(self.category, kind="stable")
            self._order = dict(zip(ids.tolist(), np.split(order, np.cumsum(counts)[:-1])))

    def rows_of(self, id: int) -> np.ndarray:
        """Return the rows of the images of a category."""
        if self._order is None:
            return np.flatnonzero(self.category == id)
        return self._order.get(id, np.empty(0, np.int64))

    def subset(self, rows: np.ndarray) -> Images:
        """Return the images in `rows`."""
        if len(rows) == len(self):
            return self
        names = [one.name for one in dataclasses.fields(self) if one.init and one.name != "files"]
        columns = {name: copy_rows(getattr(self, name), rows) for name in names}
        return Images(files=[self.files[row] for row in rows], **columns)


@dataclass
class Knowledge:
    """Categories and images after some learning steps and some decisions."""

    step: int
    """Number of learning steps so far."""
    categories: dict[int, Category]
    """All categories that ever existed, by id."""
    images: Images
    metric: ClassMetric
    """Maps features to points, between which distances are measured; fitted in the last learning step."""
    calibration: Calibration
    """Scales the distances of images that the metric was fitted on to those of new images."""
    distinct: frozenset[tuple[int, int]] = frozenset()
    """Pairs of ids, the smaller first, that a person said are different however alike they look."""
    rejected: frozenset[tuple[int, int]] = frozenset()
    """Pairs (row, id) of images that a person said do not belong to the category."""
    highest_made_id: int = 0
    """The greatest id that a person's decision ever gave, even if the decision was undone."""
    kept: KeptImages = field(default_factory=KeptImages.empty)
    """Unknown images that predictions kept, with features of the present tip; some may have been learned since."""
    dismissed: frozenset[str] = frozenset()
    """Digests of kept images that a person does not want to see again."""

    @classmethod
    def empty(cls, dim: int) -> Knowledge:
        """No category, for features of length `dim`."""
        origin, projection, offset = (np.zeros(shape, np.float32) for shape in (dim, (dim, 1), 1))
        metric = ClassMetric(origin, projection, offset, unit=True)
        return cls(0, {}, Images.empty(dim), metric, Calibration())

    def live(self) -> list[Category]:
        """Return the live categories, sorted by id."""
        return [category for _, category in sorted(self.categories.items()) if category.live]

    def next_id(self) -> int:
        """Return the first id that was never used."""
        return max(self.highest_made_id, *self.categories, 0) + 1

    def counts(self) -> dict[int, int]:
        """Return the number of images of each live category."""
        ids, counts = np.unique(self.images.category, return_counts=True)
        found = dict(zip(ids.tolist(), counts.tolist()))
        return {category.id: found.get(category.id, 0) for category in self.live()}

    def rows_of(self, id: int) -> np.ndarray:
        """Return the rows of the images of a category."""
        return self.images.rows_of(id)

    def named(self) -> dict[str, int]:
        """Return the ids of the live categories that have a name, by name."""
        return {category.name: category.id for category in self.live() if category.name is not None}

    def category(self, id: int) -> Category:
        """Return the live category `id`, or raise a `CampError`."""
        found = self.categories.get(id)
        if found is None:
            raise CampError(f"There is no category {id}.")
        if found.merged_into is not None:
            raise CampError(f"{found.title} was merged into category {found.merged_into}.")
        if found.discarded:
            raise CampError(f"{found.title} was discarded.")
        return found

    def find(self, key: str | int) -> Category:
        """Return a live category by its name, or by its id: 7, "7" or "category 7"."""
        by_name = self.named().get(str(key))
        if by_name is not None:
            return self.categories[by_name]
        digits = str(key).removeprefix("category ").strip()
        if digits.isdecimal():
            return self.category(int(digits))
        raise CampError(f'There is no category called "{key}"; `camp status` lists them.')

    def title(self, id: int) -> str:
        """Return the title of a category that may have ended."""
        return self.categories[id].title if id in self.categories else category_title(id, None)

    def pending(self) -> np.ndarray:
        """Return the rows of the kept unknown images that were neither learned nor dismissed."""
        if not len(self.kept.digests):
            return np.empty(0, np.int64)
        done = self.dismissed | {bytes(digest).hex() for digest in self.images.digests}
        return np.array([row for row, digest in enumerate(self.kept.digests) if digest not in done], np.int64)

    def with_images(self, rows: np.ndarray) -> Knowledge:
        """Return knowledge with the images in `rows`, sorted, alone."""
        if len(rows) == len(self.images):
            return self
        places = {row: place for place, row in enumerate(rows.tolist())}
        rejected = frozenset((places[row], id) for row, id in self.rejected if row in places)
        return dataclasses.replace(self, images=self.images.subset(rows), rejected=rejected)

    # Changes for decisions. Each returns new knowledge and shares unchanged parts with the old one.

    def with_categories(self, *changed: Category) -> Knowledge:
        """Return knowledge with some categories added or replaced."""
        categories = {**self.categories, **{category.id: category for category in changed}}
        return dataclasses.replace(self, categories=categories)

    def with_rejected(self, pairs: Iterable[tuple[int, int]]) -> Knowledge:
        """Return knowledge in which some images, (row, id), do not belong to some categories."""
        return dataclasses.replace(self, rejected=self.rejected | frozenset(pairs))

    def assign(self, rows: Sequence[int] | np.ndarray, id: int, source: int | None = None) -> Knowledge:
        """Return knowledge in which the images `rows` belong to category `id`, or to DISCARDED.

        `source` is the new source of their category, or None to keep the sources.
        """
        chosen = np.unique(np.asarray(rows, dtype=np.int64))
        if len(chosen) and (chosen[0] < 0 or chosen[-1] >= len(self.images)):
            wrong = chosen[0] if chosen[0] < 0 else chosen[-1]
            raise CampError(f"There are pictures 0 to {len(self.images) - 1}, not {wrong}.")
        category, sources = self.images.category.copy(), self.images.source.copy()
        category[chosen] = id
        if source is not None:
            sources[chosen] = source
        images = dataclasses.replace(self.images, category=category, source=sources)
        return dataclasses.replace(self, images=images)

    def dismiss(self, digests: Iterable[str]) -> Knowledge:
        """Return knowledge in which the kept unknown images `digests` are dismissed."""
        return dataclasses.replace(self, dismissed=self.dismissed | set(digests))

    def add_kept(self, digests: list[str], id: int) -> Knowledge:
        """Return knowledge in which the kept unknown images `digests` are images of category `id`.

        They are the last rows. On the map each lies where the learned image is that looks most like it.
        """
        import torch

        rows = self.kept.rows(digests)
        if not set(rows) <= set(self.pending().tolist()):
            raise CampError("Some of the pictures were learned or dismissed in the meantime; look again.")
        images, n = self.images, len(rows)
        features = self.kept.features[rows].astype(images.features.dtype)
        points = self.metric.transform(torch.from_numpy(features.astype(np.float32)))
        nearest = torch.cdist(points, torch.from_numpy(images.points)).argmin(dim=1).numpy()
        added = Images(
            files=[*images.files, *(self.kept.files[row] for row in rows)],
            digests=np.concatenate(
                [images.digests, np.array([list(bytes.fromhex(one)) for one in digests], np.uint8)]
            ),
            steps=np.concatenate([images.steps, np.full(n, self.step, np.int32)]),
            category=np.concatenate([images.category, np.full(n, id, np.int32)]),
            source=np.concatenate([images.source, np.full(n, REVIEWED, np.uint8)]),
            features=np.concatenate([images.features, features]),
            points=np.concatenate([images.points, points.numpy()]),
            positions=np.concatenate([images.positions, images.positions[nearest]]),
        )
        return dataclasses.replace(self, images=added)
