"""Snapshots of a workspace for the review page, renewed whenever its log has changed."""

import functools
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from camp.app.review.questions import MAX_ASKED, Question, look_alikes, questions, rows_to_ask
from camp.app.review.suggestions import Suggestions, suggest
from camp.app.workspace.decisions import Merged, Named, decided_rows
from camp.app.workspace.events import Event
from camp.app.workspace.history import standing
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.overview import LARGE, Need, Overview, needs, overview, updated
from camp.app.workspace.report import BatchReport
from camp.app.workspace.workspace import Workspace
from camp.data.digests import rows_in


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything that the page shows, after a number of events."""

    events: list[Event]
    knowledge: Knowledge
    overview: Callable[[], Overview]
    """Computed when first called."""
    reports: list[BatchReport]
    """Report of each learning step, in order."""
    has_thumbnail: np.ndarray
    """(n,) bool"""
    asked: np.ndarray
    """(m,) rows of the images that questions are about: all, or a sample of many."""
    groups: Callable[[], list[np.ndarray]]
    """Positions in `asked` of images that look alike; computed when first called."""
    version: str
    """Hash of the images and their order; part of the addresses of thumbnails, so that browsers may cache them."""

    @property
    def count(self) -> int:
        """Number of events, which the page compares to notice changes by other programs."""
        return len(self.events)

    @functools.cached_property
    def seen(self) -> Overview:
        """What the distances of images to the centroids say."""
        return self.overview()

    @functools.cached_property
    def needs(self) -> dict[int, Need]:
        """How much each category needs review."""
        return needs(self.knowledge, self.seen)

    @functools.cached_property
    def asked_knowledge(self) -> Knowledge:
        """What is known, with the images `asked` alone."""
        return self.knowledge.with_images(self.asked)

    @functools.cached_property
    def suggestions(self) -> Suggestions:
        """What the other images say about each image of `asked_knowledge`."""
        return suggest(self.asked_knowledge)

    @functools.cached_property
    def queue(self) -> list[Question]:
        """What to ask a person, the most useful question first."""
        decisions, groups = standing(self.events), self.groups()
        rows = np.array([row for decision in decisions for row in decided_rows(decision)], dtype=np.int64)
        answered = frozenset(np.flatnonzero(np.isin(self.asked, rows)).tolist())
        looked_at = frozenset(
            decision.category if isinstance(decision, Named) else decision.into
            for decision in decisions
            if isinstance(decision, Named | Merged)
        )
        seen, rows_of = self.seen.subset(self.asked), self.asked.tolist()
        found = questions(self.asked_knowledge, seen, self.suggestions, groups, answered, looked_at)
        if len(self.asked) == len(self.knowledge.images):
            return found
        return [replace(one, rows=tuple(rows_of[row] for row in one.rows)) for one in found]


class ReviewState:
    """The latest snapshot of a workspace; safe to use from several threads."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.busy = threading.RLock()
        """Held while the workspace is read or changed: `Workspace` is not safe to use from several threads."""
        self.asking = threading.Lock()
        """Held while the queue of a snapshot is computed, which takes long."""
        self._last: tuple[tuple[int, ...], Snapshot] | None = None
        self._seen: tuple[Knowledge, Overview] | None = None  # the last overview
        self._sizes: dict[str, int] = {}  # number of images of each version since the last learning step

    def now(self) -> Snapshot:
        """Return the present snapshot; cheap while nothing changes."""
        with self.busy:
            version = self.workspace.storage.version()
            if self._last is None or self._last[0] != version:
                self._last = version, self._take(self._last[1] if self._last else None)
            return self._last[1]

    def has_image(self, version: str, row: int) -> bool:
        """Return whether `row` is the same image in a version of the page and now.

        Accepted unknown images are added behind the learned ones, so that the page may still ask for those.
        """
        present = self.now().version
        if version == present:
            return row < self._sizes[present]
        return version in self._sizes and row < min(self._sizes.values())

    def unchanged(self, count: int) -> Snapshot:
        """Return the present snapshot; raise a `CampError` if there are more or less than `count` events."""
        self.workspace.check_seen(count)
        return self.now()

    def _take(self, before: Snapshot | None) -> Snapshot:
        events = self.workspace.events()
        knowledge = self.workspace.knowledge()
        shown = None if before is None else (before.knowledge.step, len(before.knowledge.images))
        if before is not None and shown == (knowledge.step, len(knowledge.images)):
            has_thumbnail, version, reports = before.has_thumbnail, before.version, before.reports
            asked, groups = before.asked, before.groups
        else:
            has_thumbnail = self._has_thumbnail(knowledge.images.digests)
            version = hashlib.blake2b(knowledge.images.digests.tobytes(), digest_size=8).hexdigest()
            if before is None or before.knowledge.step != knowledge.step:
                self._sizes.clear()
            self._sizes[version] = len(knowledge.images)
            reports = self.workspace.reports()
            asked = rows_to_ask(knowledge)
            of_step = functools.partial(self._groups, knowledge.step, asked)
            groups = functools.cache(of_step)  # decisions do not change them
        overview_of = functools.partial(self._overview, knowledge)
        return Snapshot(events, knowledge, overview_of, reports, has_thumbnail, asked, groups, version)

    def _overview(self, knowledge: Knowledge) -> Overview:
        """Return the overview of what is known, from the last one where possible."""
        with self.busy:
            before = self._seen
            if before is None or before[0].step != knowledge.step:
                found = self.workspace.overview(knowledge)
            elif _same_distances(before[0], knowledge):
                found = before[1]
            elif len(knowledge.images) > LARGE and len(before[0].images) == len(knowledge.images):
                found = updated(before[1], before[0], knowledge)
            else:
                found = overview(knowledge)
            self._seen = knowledge, found
            return found

    def _groups(self, step: int, asked: np.ndarray) -> list[np.ndarray]:
        """Return positions in `asked` of images that looked alike when the step was learned."""
        learned = self.workspace.storage.knowledge(step)
        if len(learned.images) > MAX_ASKED:
            learned = learned.with_images(asked[asked < len(learned.images)])
        return look_alikes(learned)

    def _has_thumbnail(self, digests: np.ndarray) -> np.ndarray:
        """Return which images have a thumbnail, by listing the folder: testing many files takes seconds."""
        example = self.workspace.storage.thumbnail(bytes(16))
        if example is None:
            return np.zeros(len(digests), dtype=bool)
        names = (Path(name).stem for _, _, files in os.walk(example.parent.parent) for name in files)
        found = [name for name in names if len(name) == 32 and set(name) <= set("0123456789abcdef")]
        if not found:
            return np.zeros(len(digests), dtype=bool)
        present = np.frombuffer(bytes.fromhex("".join(found)), dtype=np.uint8).reshape(-1, 16)
        return rows_in(digests, present) >= 0


def _same_distances(before: Knowledge, now: Knowledge) -> bool:
    """Return whether only names have changed, on which distances do not depend."""
    return before.distinct == now.distinct and np.array_equal(before.images.category, now.images.category)
