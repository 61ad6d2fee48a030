"""Storage backends of a workspace: a folder on disk, or the memory of a Python program.

The folder:

    workspace.json     the settings it was created with
    events.jsonl       the event log; a learning step counts once its event is in the log
    events-end.json    how many events there are, so that lost ones are noticed
    steps/0001/ ...    the result of each learning step; the last one also holds the model and the features
    thumbnails/        small copies of representative images, unless switched off
    unknown/           features of unknown images that predictions kept
    bank/              views of the batch that is being learned
"""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from filelock import FileLock, Timeout

from camp.app.workspace import step_files
from camp.app.workspace.events import Event, Learned
from camp.app.workspace.kept_unknown import KeptImages, read_kept, remove_learned, tip_fingerprint
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.log import (
    DamagedLogError,
    LogEnd,
    append_event,
    extend_log,
    note_end,
    read_log,
    start_log,
)
from camp.app.workspace.report import BatchReport
from camp.app.workspace.step_files import FileVerifier, Step
from camp.core.abandoned import remove_abandoned
from camp.core.errors import CampError
from camp.core.files import expand_user, make_folder, read_json, replace_folder, write_json
from camp.core.progress import Progress
from camp.core.settings import with_json
from camp.core.version import __version__
from camp.nn.backbones.settings import BackboneSettings

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
LOCK = ".lock"


@dataclass(frozen=True)
class WorkspaceSettings:
    """Settings that a workspace is created with and keeps."""

    backbone: BackboneSettings = field(default_factory=BackboneSettings)
    seed: int = 0
    thumbnails: int = 100
    """Number of thumbnails kept of each category and batch; 0 keeps no image at all."""

    def __post_init__(self) -> None:
        if self.thumbnails < 0:
            raise CampError(f"The number of thumbnails cannot be negative, and {self.thumbnails} is.")


class WorkspaceGoneError(CampError):
    """Another process has removed the workspace, because it could not learn the first batch."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"The workspace {path} was removed in the meantime; `camp learn {path} PICTURES` creates it."
        )


class Storage(ABC):
    """Keeps the settings, the event log and the learning steps of a workspace."""

    settings: WorkspaceSettings
    name: str
    """What messages call the workspace."""

    def lock(self, progress: Progress | None = None) -> AbstractContextManager[None]:
        """Exclude other processes; with `progress` wait for them, without it refuse."""
        return contextlib.nullcontext()

    @abstractmethod
    def version(self) -> tuple[int, ...]:
        """Return a value that differs once the log has changed."""

    @abstractmethod
    def events(self) -> list[Event]:
        """Return the event log."""

    @abstractmethod
    def append(self, event: Event) -> None:
        """Add an event to the log; the lock must be held."""

    @abstractmethod
    def write_step(self, step: Step) -> None:
        """Store a learning step, which counts once its event is in the log; the lock must be held."""

    def holds(self, step: Step) -> bool:
        """Return whether a learning step counts: whether its event is in the log. True if the log cannot be read."""
        try:
            number = step.knowledge.step
            return number in _steps(self.events()) and self.report(number) == step.report
        except CampError:
            return True

    def clean_up(self, superseded: Sequence[int]) -> None:
        """Remove what is no longer needed: models of the steps `superseded`, and the view bank."""
        return

    @abstractmethod
    def knowledge(self, step: int) -> Knowledge:
        """Return the knowledge after the last learning step."""

    def overview(self, step: int) -> Mapping[str, np.ndarray] | None:
        """Return the state of the overview after the last learning step, if it was stored."""
        return None

    @abstractmethod
    def tip(self, step: int) -> "Mapping[str, Tensor]":
        """Return the weights of the tip after the last learning step."""

    @abstractmethod
    def report(self, step: int) -> BatchReport:
        """Return the report of any learning step."""

    @abstractmethod
    def bank(self) -> AbstractContextManager[Path]:
        """Give a folder for the view bank of a batch."""

    def thumbnail(self, digest: bytes) -> Path | None:
        """Return the path of the thumbnail of an image, or None where none are kept."""
        return None

    def kept(self, step: int) -> KeptImages:
        """Return the unknown images that predictions kept with the tip after a step, the last one."""
        return KeptImages.empty()


class FolderStorage(Storage):
    """A workspace in the folder `path`."""

    def __init__(self, path: Path, settings: WorkspaceSettings) -> None:
        self.path, self.settings, self.name = path, settings, str(path)
        self.log, self.unknown = path / "events.jsonl", path / "unknown"
        self._lock = FileLock(path / LOCK)  # one object, so that a thread that holds it may take it again
        self._verifier = FileVerifier()
        self._reserved = False  # whether the workspace has yet to be created

    @staticmethod
    def exists(path: Path) -> bool:
        """Return whether `path` holds a workspace."""
        try:
            return (path / "workspace.json").exists()
        except OSError as error:
            raise CampError(f"{path} cannot be a workspace ({error.strerror or error}).") from error

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the workspace in `path`."""
        about = path / "workspace.json"
        if not cls.exists(path):
            if not path.exists():
                raise CampError(f"There is no workspace {path}; `camp learn {path} PICTURES` creates one.")
            raise CampError(
                f"{path} is not a workspace: there is no workspace.json in it. `camp learn` creates one in a new folder."
            )
        values = read_json(about)
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise CampError(f"{about} is of another version of camp (this version reads format {FORMAT}).")
        try:
            given = {name: values[name] for name in ("backbone", "seed", "thumbnails")}
            settings = with_json(WorkspaceSettings(), given)
        except (KeyError, CampError) as error:
            reason = str(error).rstrip(".")
            raise CampError(f"{about} is damaged ({reason}); restore it from a copy.") from error
        return cls(path, settings)

    @classmethod
    def create(cls, path: Path, settings: WorkspaceSettings) -> Self:
        """Create a workspace in `path`, which must not exist or be empty."""
        storage = cls.reserve(path, settings)
        storage.begin()
        return storage

    @classmethod
    def reserve(cls, path: Path, settings: WorkspaceSettings) -> Self:
        """Make the folder of a workspace, whose lock can be held then; `begin` creates the workspace in it."""
        _check_free(path)
        try:
            make_folder(path)
        except OSError as error:
            raise CampError(f"The folder {path} could not be created ({error.strerror or error}).") from error
        storage = cls(path, settings)
        storage._reserved = True
        return storage

    def begin(self) -> None:
        """Create the workspace in its folder."""
        _check_free(self.path)
        start_log(self.log)
        about = {"format": FORMAT, "version": __version__, **dataclasses.asdict(self.settings)}
        write_json(self.path / "workspace.json", about)
        self._reserved = False

    def remove(self) -> None:
        """Remove the workspace; the lock must be held."""
        removed = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):  # at once, so that a process that waits finds all of it or nothing
            self.path.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self, progress: Progress | None = None) -> Iterator[None]:
        """Hold the lock file; with `progress` wait for another process, without it refuse."""
        if not self.path.exists():
            raise WorkspaceGoneError(self.path)
        if not os.access(self.path, os.W_OK):  # an existing lock file could be locked nevertheless
            raise CampError(f"{self.path} cannot be written to; check its permissions.")
        self._acquire(progress)
        try:
            if not self._is_in_place() or not (self._reserved or self.exists(self.path)):
                raise WorkspaceGoneError(self.path)
            if progress is not None:
                remove_abandoned(self.path)
            yield
        finally:
            self._lock.release()

    def _is_in_place(self) -> bool:
        """Return whether the lock file that is held is that of the folder, and not of one that was removed meanwhile."""
        handle = self._lock._context.lock_file_fd
        try:
            return handle is not None and os.path.samestat(os.fstat(handle), (self.path / LOCK).stat())
        except FileNotFoundError:
            return False

    def _acquire(self, progress: Progress | None) -> None:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            if progress is None:
                raise CampError(
                    f"Another process is working on {self.path}; wait until it is done."
                ) from None
            self._wait(progress)
        except FileNotFoundError:
            raise WorkspaceGoneError(self.path) from None
        except OSError as error:
            raise CampError(f"{self.path} cannot be written to ({error.strerror or error}).") from error

    def _wait(self, progress: Progress) -> None:
        try:
            with progress.track(f"Waiting for another process that works on {self.path}", 1):
                self._lock.acquire()
        except FileNotFoundError:
            raise WorkspaceGoneError(self.path) from None

    def version(self) -> tuple[int, ...]:
        """Return size, times and inode of the log: a log that was replaced may have any of them in common."""
        try:
            about = self.log.stat()
        except OSError:
            return ()
        return about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino

    def events(self) -> list[Event]:
        """Read the log; raise a `CampError` if there are steps that it does not know."""
        events = read_log(self.log)
        known = _steps(events)
        unknown = [step for step in self.steps_on_disk() if step not in known]
        # A process that was killed before it could enter its step leaves one, in a log that is known to be whole.
        if unknown and (LogEnd.read(self.log) is None or unknown != [max(known, default=0) + 1]):
            steps = ", ".join(str(step) for step in unknown)
            raise DamagedLogError(
                self.log, f"it does not know of step {steps}, which is in {self.path / 'steps'}"
            )
        return events

    def steps_on_disk(self) -> list[int]:
        """Return the numbers of the steps that have a folder."""
        return sorted(
            int(path.name) for path in (self.path / "steps").glob("[0-9]*") if path.name.isdecimal()
        )

    def append(self, event: Event) -> None:
        """Append to the log; the event is on disk when this returns."""
        append_event(self.log, event)

    def step_folder(self, step: int) -> Path:
        """Return the folder of a learning step."""
        return self.path / "steps" / f"{step:04d}"

    def write_step(self, step: Step) -> None:
        """Write the folder of the step."""
        note_end(self.log)  # from now on there may be a step that the log does not know
        with step_files.new_step(self.step_folder(step.knowledge.step)) as folder:
            step_files.save_step(folder, step)

    def clean_up(self, superseded: Sequence[int]) -> None:
        """Remove files of earlier models, and the view bank."""
        for step in superseded:
            step_files.remove_model(self.step_folder(step))
        if self.unknown.is_dir():
            with contextlib.suppress(
                CampError
            ):  # the batch is learned; a damaged file is reported when it is read
                digests = self.knowledge(_steps(self.events())[-1]).images.digests
                remove_learned(self.unknown, {bytes(digest).hex() for digest in digests})
        shutil.rmtree(self.path / "bank", ignore_errors=True)

    def knowledge(self, step: int) -> Knowledge:
        """Read the knowledge after a step; the features stay on disk until they are used."""
        return step_files.load_step(self.step_folder(step), self._verifier)

    def overview(self, step: int) -> dict[str, np.ndarray] | None:
        """Read the state of the overview after a step."""
        return step_files.load_overview(self.step_folder(step), self._verifier)

    def tip(self, step: int) -> "dict[str, Tensor]":
        """Read the weights of the tip after a step."""
        return step_files.load_tip(self.step_folder(step), self._verifier)

    def report(self, step: int) -> BatchReport:
        """Read the report of a step."""
        return step_files.load_report(self.step_folder(step), self._verifier)

    def bank(self) -> AbstractContextManager[Path]:
        """Give a folder that stays until the batch is learned, so that an interrupted run is continued."""
        return contextlib.nullcontext(self.path / "bank")

    def thumbnail(self, digest: bytes) -> Path:
        """Return the path of a thumbnail, which need not exist."""
        name = bytes(digest).hex()
        return self.path / "thumbnails" / name[:2] / f"{name}.jpg"

    def kept(self, step: int) -> KeptImages:
        """Read the kept unknown images."""
        if not any(self.unknown.glob("*.safetensors")):
            return KeptImages.empty()
        return read_kept(self.unknown, tip_fingerprint(self.tip(step)))


class MemoryStorage(Storage):
    """A workspace in memory, which a Python program loads from a folder and saves to one."""

    def __init__(self, settings: WorkspaceSettings) -> None:
        self.settings, self.name = settings, "The workspace"
        self.folder: Path | None = None
        """The folder that it was loaded from or saved to."""
        self._saved = 0  # number of events in the folder
        self._events: list[Event] = []
        self._reports: dict[int, BatchReport] = {}
        self._last: Step | None = None
        self._kept = KeptImages.empty()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the workspace in the folder `path`."""
        folder = FolderStorage.open(_real(path))
        memory = cls(folder.settings)
        memory._events = folder.events()
        steps = _steps(memory._events)
        memory._reports = {step: folder.report(step) for step in steps}
        if steps:
            last = steps[-1]
            memory._last = Step(folder.knowledge(last), folder.tip(last), memory._reports[last])
            memory._kept = folder.kept(last)
        memory.name, memory.folder, memory._saved = folder.name, folder.path, len(memory._events)
        return memory

    def save(self, path: Path) -> None:
        """Write a new workspace, or add what is new to the folder it came from; all of it or nothing."""
        path = _real(path)
        if path == self.folder and FolderStorage.exists(path):
            self._update(FolderStorage.open(path))
        else:
            self._write(path)
        self.folder, self._saved = path, len(self._events)

    def _write(self, path: Path) -> None:
        """Write a whole workspace, under a temporary name until it is complete."""
        if FolderStorage.exists(path):
            raise CampError(
                f"{path} is another workspace; save into a new folder, or open this one with CAMP.load and continue it."
            )
        _check_free(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            self._write_steps(FolderStorage.create(temporary, self.settings), self._events)
            for name in ("thumbnails", "unknown"):
                if self.folder is not None and (self.folder / name).is_dir():
                    shutil.copytree(self.folder / name, temporary / name)
            if path.exists():
                (path / LOCK).unlink(missing_ok=True)
                path.rmdir()
            make_folder(path.parent)
            replace_folder(temporary, path)
        except OSError as error:
            raise CampError(f"Could not write {path}: {error.strerror or error}.") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _update(self, folder: FolderStorage) -> None:
        """Add the events since the last load or save."""
        with folder.lock():
            if folder.events() != self._events[: self._saved]:
                raise CampError(
                    f"{folder.path} has changed since it was loaded; save into a new folder, or load it again."
                )
            if len(self._events) > self._saved:
                self._write_steps(folder, self._events[self._saved :])
                folder.clean_up(_steps(self._events)[:-1])

    def _write_steps(self, folder: FolderStorage, events: Sequence[Event]) -> None:
        """Write learning steps, and their events as the last thing; only the last step has a model."""
        for step in _steps(events):
            if self._last is not None and step == self._last.knowledge.step:
                folder.write_step(self._last)
                continue
            with step_files.new_step(folder.step_folder(step)) as target:
                step_files.save_report(target, self._reports[step])
        extend_log(folder.log, events)

    def version(self) -> tuple[int, ...]:
        """Return the number of events."""
        return (len(self._events),)

    def events(self) -> list[Event]:
        """Return the log."""
        return list(self._events)

    def append(self, event: Event) -> None:
        """Add to the log."""
        self._events.append(event)

    def write_step(self, step: Step) -> None:
        """Keep the step, and of earlier ones the reports."""
        self._last, self._kept = step, KeptImages.empty()
        self._reports[step.knowledge.step] = step.report

    def knowledge(self, step: int) -> Knowledge:
        """Return the knowledge after the last step."""
        assert self._last is not None
        return dataclasses.replace(self._last.knowledge)

    def tip(self, step: int) -> "Mapping[str, Tensor]":
        """Return the weights of the tip after the last step."""
        assert self._last is not None
        return self._last.tip

    def report(self, step: int) -> BatchReport:
        """Return the report of a step."""
        return self._reports[step]

    def kept(self, step: int) -> KeptImages:
        """Return the unknown images that were kept in the folder when it was loaded, for decisions about them."""
        return self._kept

    @contextlib.contextmanager
    def bank(self) -> Iterator[Path]:
        """Give a temporary folder."""
        with tempfile.TemporaryDirectory(prefix="camp-") as folder:
            yield Path(folder)


def _check_free(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(inside.name != LOCK for inside in path.iterdir())):
        raise CampError(f"{path} exists already and is not a workspace; choose a new folder.")


def _steps(events: Sequence[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, Learned)]


def _real(path: Path) -> Path:
    return Path(os.path.realpath(expand_user(path)))
