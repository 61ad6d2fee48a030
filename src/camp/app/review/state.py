"""The workspace as the page sees it, looked at again whenever its log has grown."""

import hashlib
import os
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from camp.app.workspace.events import Event
from camp.app.workspace.folder import Workspace
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.overview import Need, Overview, needs, overview
from camp.core.errors import CampError


@dataclass(frozen=True)
class Snapshot:
    """Everything the page is told, as of one number of events."""

    events: list[Event]
    knowledge: Knowledge
    seen: Overview
    needs: dict[int, Need]
    reports: list[dict[str, Any]]
    """Of each learning step, the first one first."""
    kept: np.ndarray
    """(n,) bool: a thumbnail was kept."""
    version: str
    """Stands for the pictures and their order; part of thumbnails' addresses, so that browsers may keep them."""

    @property
    def count(self) -> int:
        """Events so far: what the page compares to notice that something happened elsewhere."""
        return len(self.events)


class State:
    """The latest snapshot of a workspace; safe to ask from many threads."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.busy = threading.RLock()
        """Held while the workspace is read or changed: `Workspace` itself belongs to one thread."""
        self._last: tuple[tuple[int, int], Snapshot] | None = None

    def now(self) -> Snapshot:
        """What is known now. Costs nothing while nothing happens."""
        with self.busy:
            mark = self._mark()
            if self._last is None or self._last[0] != mark:
                self._last = mark, self._look(self._last[1] if self._last else None)
            return self._last[1]

    def unchanged(self, count: int) -> Snapshot:
        """What is known now; refused if it is not what was known after `count` events."""
        snapshot = self.now()
        if snapshot.count != count:
            raise CampError("Something else changed the workspace meanwhile; look at it again, then decide.")
        return snapshot

    def _mark(self) -> tuple[int, int]:
        """Differs once the log has been written to."""
        try:
            about = self.workspace.log.stat()
        except OSError:
            return 0, 0
        return about.st_size, about.st_mtime_ns

    def _look(self, before: Snapshot | None) -> Snapshot:
        events = self.workspace.events()
        knowledge = self.workspace.knowledge()
        if before is not None and before.knowledge.step == knowledge.step:
            kept, version, reports = before.kept, before.version, before.reports
            # A name changes no distance.
            same = before.knowledge.apart == knowledge.apart and np.array_equal(
                before.knowledge.pictures.category, knowledge.pictures.category
            )
            seen = before.seen if same else overview(knowledge)
        else:
            kept = self._kept(knowledge.pictures.digests)
            version = hashlib.blake2b(knowledge.pictures.digests.tobytes(), digest_size=8).hexdigest()
            reports = self.workspace.reports()
            seen = overview(knowledge)
        return Snapshot(events, knowledge, seen, needs(knowledge, seen), reports, kept, version)

    def _kept(self, digests: np.ndarray) -> np.ndarray:
        """(n,) whether there is a thumbnail, by listing them: asking for each of many files takes seconds."""
        # All thumbnails lie two levels below the folder's name; see `Workspace.thumbnail`.
        root = self.workspace.thumbnail(bytes(16)).parent.parent
        there = {name for _, _, names in os.walk(root) for name in names}
        return np.array([f"{bytes(digest).hex()}.jpg" in there for digest in digests], dtype=bool)
