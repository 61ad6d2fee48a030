"""Snapshots of a workspace for the review page, renewed whenever its log has changed."""

import functools
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from camp.app.review.questions import Question, look_alikes, questions
from camp.app.review.suggestions import Suggestions, suggest
from camp.app.workspace.decisions import Merged, Named, decided_rows
from camp.app.workspace.events import Event
from camp.app.workspace.history import standing
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.overview import Need, Overview, needs, overview
from camp.app.workspace.report import BatchReport
from camp.app.workspace.workspace import Workspace


@dataclass(frozen=True)
class Snapshot:
    """Everything that the page shows, after a number of events."""

    events: list[Event]
    knowledge: Knowledge
    seen: Overview
    needs: dict[int, Need]
    reports: list[BatchReport]
    """Report of each learning step, in order."""
    has_thumbnail: np.ndarray
    """(n,) bool"""
    groups: Callable[[], list[np.ndarray]]
    """Rows of images that look alike; computed when first called."""
    version: str
    """Hash of the images and their order; part of the addresses of thumbnails, so that browsers may cache them."""

    @property
    def count(self) -> int:
        """Number of events, which the page compares to notice changes by other programs."""
        return len(self.events)

    @functools.cached_property
    def suggestions(self) -> Suggestions:
        """What the other images say about each image."""
        return suggest(self.knowledge)

    @functools.cached_property
    def queue(self) -> list[Question]:
        """What to ask a person, the most useful question first."""
        decisions, groups = standing(self.events), self.groups()
        answered = frozenset(row for decision in decisions for row in decided_rows(decision))
        looked_at = frozenset(
            decision.category if isinstance(decision, Named) else decision.into
            for decision in decisions
            if isinstance(decision, Named | Merged)
        )
        return questions(self.knowledge, self.seen, self.suggestions, groups, answered, looked_at)


class ReviewState:
    """The latest snapshot of a workspace; safe to use from several threads."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.busy = threading.RLock()
        """Held while the workspace is read or changed: `Workspace` is not safe to use from several threads."""
        self._last: tuple[tuple[int, ...], Snapshot] | None = None
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
            groups = before.groups
            # Names do not change distances.
            same = before.knowledge.distinct == knowledge.distinct and np.array_equal(
                before.knowledge.images.category, knowledge.images.category
            )
            seen = before.seen if same else overview(knowledge)
        else:
            has_thumbnail = self._has_thumbnail(knowledge.images.digests)
            version = hashlib.blake2b(knowledge.images.digests.tobytes(), digest_size=8).hexdigest()
            if before is None or before.knowledge.step != knowledge.step:
                self._sizes.clear()
            self._sizes[version] = len(knowledge.images)
            reports = self.workspace.reports()
            seen = overview(knowledge)
            learned = self.workspace.storage.knowledge(knowledge.step)
            groups = functools.cache(functools.partial(look_alikes, learned))  # decisions do not change them
        needed = needs(knowledge, seen)
        return Snapshot(events, knowledge, seen, needed, reports, has_thumbnail, groups, version)

    def _has_thumbnail(self, digests: np.ndarray) -> np.ndarray:
        """Return which images have a thumbnail, by listing the folder: testing many files takes seconds."""
        example = self.workspace.storage.thumbnail(bytes(16))
        if example is None:
            return np.zeros(len(digests), dtype=bool)
        files = {name for _, _, names in os.walk(example.parent.parent) for name in names}
        return np.array([f"{bytes(digest).hex()}.jpg" in files for digest in digests], dtype=bool)
