"""Verify a workspace completely, and rebuild its log from the learning steps and what is left of it."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from camp.app.workspace import step_files
from camp.app.workspace.events import Event, Learned, Lost, Undone
from camp.app.workspace.history import NotAnEventError, parse_event, standing
from camp.app.workspace.kept_unknown import check_kept
from camp.app.workspace.knowledge import count
from camp.app.workspace.log import (
    DamagedLogError,
    LogEnd,
    UnknownEventError,
    line_before,
    read_bytes,
    write_lines,
)
from camp.app.workspace.step_files import CHECKSUMS, MODEL_FILES, FileVerifier
from camp.app.workspace.storage import FolderStorage
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError
from camp.core.files import atomic_write, checksum
from camp.core.finding import Finding
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.nn.backbones import make_backbone

COPY = "restore it from a copy"


def check_workspace(path: Path, progress: Progress, repair: bool = False) -> list[Finding]:
    """Verify log, steps, kept unknown images and thumbnails; with `repair` rebuild what can be rebuilt."""
    storage = FolderStorage.open(path)
    writable = os.access(path, os.W_OK)
    with storage.lock() if writable else contextlib.nullcontext():
        findings = list(_check_log(storage, repair))
        with progress.track("Checking the steps", 1):
            for step in storage.steps_on_disk():
                findings += _check_step(storage, step, repair)
        if not any(not finding.repaired for finding in findings):
            findings += _check_state(storage)
        if storage.unknown.is_dir():
            findings += check_kept(storage.unknown, repair)
        with progress.track("Checking the thumbnails", 1):
            findings += _check_thumbnails(path / "thumbnails", repair)
    return findings


def describe_workspace(path: Path) -> str:
    """Say what a workspace without damage holds."""
    workspace = Workspace.open(path)
    events, steps = workspace.events(), workspace.learned()
    return f"workspace with {count(len(steps), 'step')} and {count(len(events), 'event')}"


# The log.


def _check_log(storage: FolderStorage, repair: bool) -> Iterator[Finding]:
    try:
        storage.events()
    except UnknownEventError as error:
        yield Finding(str(error).rstrip("."), f"install a newer version; if there is none, {COPY}")
    except DamagedLogError as error:
        said = str(error).partition(". Restore")[0]
        restored = _salvage(storage, repair)
        if not repair:
            yield Finding(said, f"--repair rebuilds the log with {restored}", repairable=True)
            return
        kept = _keep_damaged(storage.log)
        write_lines(storage.log, [], restored.events)
        beside = f"; the damaged file is kept as {kept.name}" if kept is not None else ""
        yield Finding(said, f"the log was rebuilt with {restored}{beside}", repairable=True, repaired=True)


@dataclass(frozen=True)
class _Restored:
    """The events of a rebuilt log."""

    events: list[Event]

    def __str__(self) -> str:
        lost = sum(isinstance(event, Lost) for event in self.events)
        steps = sum(isinstance(event, Learned) for event in self.events)
        rest = len(self.events) - lost - steps
        said = f"{count(steps, 'step')} and {count(rest, 'decision')}"
        return f"{said}; {count(lost, 'event')} cannot be recovered" if lost else said


def _salvage(storage: FolderStorage, with_trunk: bool) -> _Restored:
    """Return what is left of the log, each event in its place, with the steps that it does not know.

    Without `with_trunk`, no backbone is opened for a step of version 0.1.0.
    """
    found, end = _trusted_events(storage.log), None
    with contextlib.suppress(DamagedLogError):
        end = LogEnd.read(storage.log)
        if end is not None and end.events:
            found.setdefault(end.events, Lost().entered(end.events))
    events = [found.get(number, Lost().entered(number)) for number in range(1, max(found, default=0) + 1)]
    for step in storage.steps_on_disk():
        known = [event.step for event in events if isinstance(event, Learned)]
        # A step whose process was killed before the event has not replaced the model of the step before.
        replaced = not (storage.step_folder(step - 1) / "features.npy").exists()
        if step not in known and replaced:
            _enter_step(storage, step, events, may_append=end is None, with_trunk=with_trunk)
    return _Restored(_without_contradictions(storage, events))


def _trusted_events(log: Path) -> dict[int, Event]:
    """Return the events, by number, of the lines that are what was written as far as this can be seen."""
    lines: dict[int, tuple[bytes, Event]] = {}
    for line in read_bytes(log).split(b"\n"):
        with contextlib.suppress(NotAnEventError):
            event = parse_event(line)
            if event.number > 0:
                lines.setdefault(event.number, (line, event))
    known = {number - 1: line_before(line) for number, (line, _) in lines.items()}
    with contextlib.suppress(DamagedLogError):
        if (end := LogEnd.read(log)) is not None:
            known[end.events] = end.last
    return {
        number: event
        for number, (line, event) in lines.items()
        if known.get(number) in (None, checksum(line))
    }


def _enter_step(
    storage: FolderStorage, step: int, events: list[Event], may_append: bool, with_trunk: bool
) -> None:
    """Put the event of a step where one was lost after the step before, or with `may_append` behind all others."""
    try:
        report = storage.report(step)
        trunk = _trunk(storage, step) if with_trunk else ""
    except CampError:
        return  # damaged itself, which is a finding of its own
    before = max(
        (event.number for event in events if isinstance(event, Learned) and event.step < step), default=0
    )
    after = min(
        (event.number for event in events if isinstance(event, Learned) and event.step > step), default=None
    )
    place = next(
        (
            event.number
            for event in events
            if isinstance(event, Lost) and event.number > before and (after is None or event.number < after)
        ),
        None,
    )
    if place is None and (after is not None or not may_append):
        return
    number = place if place is not None else len(events) + 1
    learned = Learned(step=step, folder=report.folder, trunk=trunk).entered(number, report.time)
    events[number - 1 : number] = [learned]


def _trunk(storage: FolderStorage, step: int) -> str:
    """Return the fingerprint of the trunk; for a step of version 0.1.0 that of the present weights."""
    found = step_files.load_trunk(storage.step_folder(step))
    if found is not None:
        return found
    settings = storage.settings
    return make_backbone(settings.backbone, generator(settings.seed, "backbone")).fingerprint


def _without_contradictions(storage: FolderStorage, events: list[Event]) -> list[Event]:
    """Take out decisions since the last step that cannot be made any more, because others before them were lost."""
    steps = [event.step for event in events if isinstance(event, Learned)]
    if not steps:
        return events
    try:
        knowledge = storage.knowledge(steps[-1])
    except CampError:
        return events
    with contextlib.suppress(CampError):
        knowledge.kept = storage.kept(steps[-1])
    undone = {event.of for event in events if isinstance(event, Undone)}
    kept = list(events)
    for decision in standing(events):
        if decision.number in undone:
            continue
        try:
            knowledge = decision.apply(knowledge)
        except CampError:
            kept[decision.number - 1] = Lost().entered(decision.number)
    return kept


def _keep_damaged(log: Path) -> Path | None:
    """Copy the damaged log beside the new one, under a name of its own."""
    data = read_bytes(log)
    if not data:
        return None
    number = 1
    while (path := log.with_name(f"events-damaged-{number}.jsonl")).exists():
        number += 1
    with atomic_write(path) as file:
        file.write(data)
    return path


# The rest.


def _check_step(storage: FolderStorage, step: int, repair: bool) -> Iterator[Finding]:
    """Compare the files of a step with their checksums."""
    folder, verifier = storage.step_folder(step), FileVerifier()
    try:
        checksums = verifier.checksums(folder)
    except (CampError, ValueError) as error:
        yield Finding(f"{folder / CHECKSUMS} is damaged ({str(error).rstrip('.')})", COPY)
        return
    last = step == max(storage.steps_on_disk())
    for name in sorted(checksums or ()):
        if not last and name in MODEL_FILES and not (folder / name).exists():
            continue  # only the last step keeps its model
        try:
            verifier.verify(folder, name)
        except (OSError, ValueError) as error:
            yield _damaged_file(storage, step, name, str(error), repair)


def _damaged_file(storage: FolderStorage, step: int, name: str, reason: str, repair: bool) -> Finding:
    path = storage.step_folder(step) / name
    said = f"{path.parent}: {reason}"
    if name == "report.txt":  # a copy for people of what is in report.json
        with contextlib.suppress(CampError):
            text = storage.report(step).summary() + "\n"
            if repair:
                with atomic_write(path) as file:
                    file.write(text.encode())
            return Finding(said, "it is written again from report.json", repairable=True, repaired=repair)
    return Finding(said, f"{COPY}; it cannot be computed again without the pictures")


def _check_state(storage: FolderStorage) -> Iterator[Finding]:
    """Read everything as the other commands do, and repeat all decisions."""
    workspace = Workspace(storage)
    try:
        if steps := workspace.learned():
            workspace.knowledge()
            storage.tip(steps[-1].step)
            workspace.reports()
    except CampError as error:
        yield Finding(str(error).partition("; restore")[0].rstrip("."), COPY)


def _check_thumbnails(folder: Path, repair: bool) -> Iterator[Finding]:
    broken = []
    for path in sorted(folder.glob("*/*.jpg")):
        try:
            with Image.open(path) as image:
                image.load()
        except (OSError, ValueError, SyntaxError):
            broken.append(path)
    if not broken:
        return
    if repair:
        for path in broken:
            path.unlink(missing_ok=True)
    remedy = "they are removed: the pictures are shown without" if repair else "--repair removes them"
    yield Finding(
        f"{folder}: {count(len(broken), 'thumbnail')} cannot be decoded",
        remedy,
        repairable=True,
        repaired=repair,
    )
