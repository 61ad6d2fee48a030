"""The file of the event log, `events.jsonl`: one event a line, numbered from 1, each with the checksum of the line before.

A removed, repeated, exchanged or changed line is noticed by the number or the checksum in the line behind it. Beside the
log, `events-end.json` says how many lines there are and the checksum of the last one, so that lost lines at the end are
noticed too. It is written after the line is on disk: the log may be ahead of it after a crash, never behind.

Lines of version 0.1.0 have no checksums, and there was no `events-end.json`: such logs are read and continued.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from camp.app.workspace.events import Event
from camp.app.workspace.history import NotAnEventError, parse_event
from camp.core.errors import CampError
from camp.core.files import append, atomic_write, checksum, read_json

_BEFORE = re.compile(rb', "before": "([0-9a-f]{64})"}$')
START = checksum(b"")
"""The checksum in the first line, which has none before it."""


class DamagedLogError(CampError):
    """The log is not what was written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} is damaged: {reason}. Restore it from a copy, or let `camp check {path.parent} --repair` rebuild it."
        )
        self.reason = reason


class UnknownEventError(CampError):
    """A line of the log is a kind of event that this version does not know."""

    def __init__(self, kind: str) -> None:
        super().__init__(f'An event of the kind "{kind}" is not known; the workspace is of a newer version.')


@dataclass(frozen=True)
class LogEnd:
    """The content of `events-end.json`."""

    events: int
    last: str
    """Checksum of the last line."""

    @classmethod
    def read(cls, log: Path) -> Self | None:
        """Read the end of a log; None if there is no such file, as in version 0.1.0."""
        path = end_file(log)
        if not path.exists():
            return None
        try:
            values = read_json(path)
            return cls(int(values["events"]), str(values["last"]))
        except (CampError, KeyError, TypeError, ValueError):
            raise DamagedLogError(path, "it does not say how many events there are") from None

    def write(self, log: Path, sync_entry: bool = False) -> None:
        """Write `events-end.json`, after the lines that it counts are on disk.

        Without `sync_entry` the former one may come back after a power failure, which counts fewer events.
        """
        with atomic_write(end_file(log), sync_entry) as file:
            file.write(json.dumps(asdict(self)).encode() + b"\n")


def end_file(log: Path) -> Path:
    """Return the path of `events-end.json` of a log."""
    return log.with_name("events-end.json")


def start_log(path: Path) -> None:
    """Note that the log of a new workspace is empty."""
    LogEnd(0, START).write(path, sync_entry=True)


def note_end(path: Path) -> None:
    """Write `events-end.json` for a log of version 0.1.0; the lock of the workspace must be held."""
    if LogEnd.read(path) is None:
        lines = _content(path).lines
        LogEnd(len(lines), _last(lines)).write(path, sync_entry=True)


def read_log(path: Path) -> list[Event]:
    """Return all events; a line that a crash left incomplete at the end is ignored."""
    return _content(path).events


def append_event(path: Path, event: Event) -> None:
    """Append one event, which is on disk when this returns. The lock of the workspace must be held."""
    content = _content(path)
    line = event.line(_last(content.lines)).encode()
    newline = b"\n" * content.unterminated
    try:
        append(path, newline + line + b"\n", content.size)
    except OSError as error:
        raise CampError(f"Could not append to {path}: {error.strerror or error}.") from error
    LogEnd(len(content.lines) + 1, checksum(line)).write(path)


def extend_log(path: Path, events: Sequence[Event]) -> None:
    """Add several events, all or none, by replacing the file. The lock of the workspace must be held."""
    write_lines(path, [*_content(path).lines], events)


def write_lines(path: Path, lines: list[bytes], events: Sequence[Event]) -> None:
    """Replace the log by `lines`, without their ends, and events behind them."""
    for event in events:
        lines.append(event.line(_last(lines)).encode())
    with atomic_write(path) as file:
        file.writelines(line + b"\n" for line in lines)
    LogEnd(len(lines), _last(lines)).write(path)


@dataclass(frozen=True)
class _Content:
    """The complete lines of a log."""

    lines: list[bytes]
    """Without their ends."""
    events: list[Event]
    size: int
    """Where the next line begins: what is behind was left incomplete by a crash."""
    unterminated: bool
    """Whether the last line has lost its end."""


def _content(path: Path) -> _Content:
    """Read and verify a log."""
    data, end = read_bytes(path), LogEnd.read(path)
    *lines, rest = data.split(b"\n")
    unterminated = _is_object(rest)
    if unterminated:
        lines.append(rest)
    known = end.events if end is not None else len(lines)
    if lines and len(lines) > known and not _is_object(lines[-1]):
        lines.pop()  # the last block of a line that a crash left incomplete, with the end of the line in it
    events = list(_verified(path, lines, end))
    if end is not None:
        if len(lines) < end.events:
            lost = end.events - len(lines)
            raise DamagedLogError(
                path, f"{'the last' if lines else 'all'} {lost} of {end.events} events are missing"
            )
        if end.events and checksum(lines[end.events - 1]) != end.last:
            raise DamagedLogError(path, f"line {end.events} was changed or exchanged")
    size = sum(len(line) + 1 for line in lines) - unterminated
    return _Content(lines, events, size, unterminated)


def _verified(path: Path, lines: Sequence[bytes], end: LogEnd | None) -> Iterator[Event]:
    """Give the event of each line; raise a `DamagedLogError` at the first that is not what was written there."""
    chained, last = False, START
    for number, line in enumerate(lines, start=1):
        try:
            event = parse_event(line)
        except NotAnEventError as fault:
            if fault.kind is not None and not _contradicted(lines, number, end):
                raise UnknownEventError(fault.kind) from None
            raise DamagedLogError(path, f"line {number} is not an event") from None
        before = line_before(line)
        if event.number != number:
            raise DamagedLogError(
                path, f"line {number} is event {event.number}, lines are missing or repeated"
            )
        if before != last and (chained or before is not None):
            raise DamagedLogError(
                path, f"line {number} does not continue line {number - 1}, which was changed"
            )
        chained, last = before is not None, checksum(line)
        yield event


def _contradicted(lines: Sequence[bytes], number: int, end: LogEnd | None) -> bool:
    """Whether the checksum in the next line, or at the end of the log, is another one than that of a line."""
    noted = line_before(lines[number]) if number < len(lines) else None
    if end is not None and end.events == number:
        noted = end.last
    return noted is not None and noted != checksum(lines[number - 1])


def line_before(line: bytes) -> str | None:
    """Return the checksum of the line before that a line names, at its end; None in lines of version 0.1.0."""
    found = _BEFORE.search(line, max(len(line) - 80, 0))
    return found[1].decode() if found else None


def _is_object(line: bytes) -> bool:
    """Return whether a line is complete: the beginning of an object is not valid JSON."""
    with contextlib.suppress(ValueError):
        return isinstance(json.loads(line), dict)
    return False


def _last(lines: Sequence[bytes]) -> str:
    """Return the checksum of the last line."""
    return checksum(lines[-1]) if lines else START


def read_bytes(path: Path) -> bytes:
    """Return the content of a log; nothing if there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise CampError(f"Could not read {path}: {error.strerror or error}.") from error
