"""A workspace on disk.

workspace.json     what it was begun with: backbone, seed, thumbnails
events.jsonl       everything that happened, append-only; a learning step counts once it is entered here
steps/0001/ ...    the result of each learning step; the last one also holds the model and the pictures' features
thumbnails/        small pictures of representatives, unless switched off
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from camp.app.workspace.events import Event, append_event, apply, read_events, standing
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.steps import forget_bulk, load_step
from camp.core.errors import CampError
from camp.core.files import read_json, write_json
from camp.core.progress import Progress
from camp.core.version import __version__
from camp.nn.backbones.settings import BackboneSettings

FORMAT = 1


@dataclass(frozen=True)
class WorkspaceSettings:
    """What a workspace is begun with, and keeps."""

    backbone: BackboneSettings = dataclasses.field(default_factory=BackboneSettings)
    seed: int = 0
    """Of everything random."""
    thumbnails: int = 100
    """Small pictures kept of each category and batch; 0 keeps no picture at all."""

    def __post_init__(self) -> None:
        if self.thumbnails < 0:
            raise CampError(f"The number of thumbnails can not be negative, and {self.thumbnails} is.")


class Workspace:
    """The folder, and what it knows at the moment."""

    def __init__(self, path: Path, settings: WorkspaceSettings) -> None:
        self.path, self.settings = path, settings
        self._known: tuple[int, Knowledge] | None = None

    @staticmethod
    def there(path: Path) -> bool:
        """Whether `path` holds a workspace."""
        try:
            return (path / "workspace.json").exists()
        except OSError as error:
            raise CampError(f"{path} can not be a workspace ({error.strerror or error}).") from error

    @classmethod
    def open(cls, path: Path) -> Self:
        """The workspace in `path`."""
        about = path / "workspace.json"
        if not cls.there(path):
            if not path.exists():
                raise CampError(f"There is no workspace {path}; `camp learn {path} PICTURES` makes one.")
            raise CampError(
                f"{path} is not a workspace: there is no workspace.json in it. `camp learn` makes one in a new folder."
            )
        values = read_json(about)
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise CampError(f"{about} is of another version of camp (format {FORMAT} is read here).")
        try:
            settings = WorkspaceSettings(
                backbone=BackboneSettings(**values["backbone"]),
                seed=int(values["seed"]),
                thumbnails=values["thumbnails"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CampError(f"{about} is damaged ({error}); restore it from a copy.") from error
        return cls(path, settings)

    @classmethod
    def begin(cls, path: Path, settings: WorkspaceSettings) -> Self:
        """A new workspace in `path`, which must be free or empty."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise CampError(f"{path} is there already and is no workspace; choose a new folder.")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CampError(f"The folder {path} could not be made ({error.strerror or error}).") from error
        write_json(
            path / "workspace.json",
            {
                "format": FORMAT,
                "version": __version__,
                "backbone": dataclasses.asdict(settings.backbone),
                "seed": settings.seed,
                "thumbnails": settings.thumbnails,
            },
        )
        return cls(path, settings)

    @contextlib.contextmanager
    def alone(self, progress: Progress | None = None) -> Iterator[None]:
        """Hold the workspace's lock. With `progress` wait for another process and say so; without, refuse."""
        if not os.access(self.path, os.W_OK):  # a lock that is there already could be taken all the same
            raise CampError(f"{self.path} can not be written to; see to its permissions.")
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if progress is None:
                raise CampError(
                    f"Another process is working on {self.path}; wait until it is done."
                ) from None
            with progress.track(f"Waiting for another process that works on {self.path}", 1):
                lock.acquire()
        except OSError as error:
            raise CampError(f"{self.path} can not be written to ({error.strerror or error}).") from error
        try:
            yield
        finally:
            lock.release()

    # What happened.

    @property
    def log(self) -> Path:
        """The file of events."""
        return self.path / "events.jsonl"

    def events(self) -> list[Event]:
        """Everything that happened, in order."""
        return read_events(self.log)

    def learned(self) -> list[Event]:
        """The learning steps."""
        return [event for event in self.events() if event["kind"] == "learned"]

    def step_folder(self, step: int) -> Path:
        """Where a learning step is."""
        return self.path / "steps" / f"{step:04d}"

    def reports(self) -> list[dict[str, Any]]:
        """The report of each learning step, the first one first."""
        return [read_json(self.step_folder(event["step"]) / "report.json") for event in self.learned()]

    def knowledge(self) -> Knowledge:
        """What is known now: the last learning step and every decision since that stands."""
        events = self.events()
        if self._known is not None and self._known[0] == len(events):
            return self._known[1]
        steps = [event["step"] for event in events if event["kind"] == "learned"]
        if not steps:
            raise CampError(f"{self.path} has learned nothing yet; `camp learn {self.path} PICTURES` begins.")
        try:
            known = load_step(self.step_folder(steps[-1]))
        except CampError:
            if len(self.events()) == len(events):
                raise
            return (
                self.knowledge()
            )  # another process has learned meanwhile, and dropped what this one was reading
        known.used = max((event["into"] for event in events if event.get("made")), default=0)
        for event in standing(events):
            known = apply(known, event)
        self._known = len(events), known
        return known

    # What changes.

    def decide(self, event: Event, seen: int | None = None) -> Event:
        """Enter a decision, if it can be made; another process at work is an error.

        With `seen`, the number of events that the decision is based on, it is refused if there are others by now.
        """
        with self.alone():
            self._check_seen(seen)
            after = apply(self.knowledge(), event)
            entered = append_event(self.log, event)
            self._known = entered["event"], after
            return entered

    def undo(self, seen: int | None = None) -> Event:
        """Take back the last decision since the last batch that still stands; returns that decision."""
        with self.alone():
            self._check_seen(seen)
            decisions = standing(self.events())
            if not decisions:
                raise CampError("There is nothing to undo: no decision since the last batch.")
            append_event(self.log, {"kind": "undone", "of": decisions[-1]["event"]})
            return decisions[-1]

    def _check_seen(self, seen: int | None) -> None:
        if seen is not None and len(self.events()) != seen:
            raise CampError("Something else changed the workspace meanwhile; look at it again, then decide.")

    def enter_step(self, step: int, about: dict[str, Any]) -> None:
        """The step in its folder counts from now on. The lock must be held."""
        append_event(self.log, {"kind": "learned", "step": step, **about})
        for event in self.learned()[:-1]:
            forget_bulk(self.step_folder(event["step"]))
        shutil.rmtree(self.path / "bank", ignore_errors=True)

    def thumbnail(self, digest: bytes) -> Path:
        """Where the small picture of these bytes is, if it was kept."""
        name = bytes(digest).hex()
        return self.path / "thumbnails" / name[:2] / f"{name}.jpg"
