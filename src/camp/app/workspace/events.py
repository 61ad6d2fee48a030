"""The append-only log of a workspace: what was learned, what a person decided, and what was taken back.

An event is a line of JSON with its number, its time and its kind:

    learned    step                     a batch was learned; the log begins anew from its result
    named      category, name           null takes a name away
    merged     category, into
    apart      category, other          they look alike and are different kinds
    moved      rows, into, made         pictures by their rows; `made`: `into` is a new category
    discarded  category or rows
    undone     of                       an earlier decision since the last batch does not count
"""

import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.names import check_name
from camp.core.errors import CampError
from camp.core.files import write_text

Event = dict[str, Any]


def read_events(path: Path) -> list[Event]:
    """All whole events; one that a crash left half written is not there."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CampError(f"Could not read {path}: {error.strerror or error}.") from error
    events = []
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or "kind" not in event:
            raise CampError(f"Line {number} of {path} is damaged; restore the file from a copy.")
        events.append(event)
    return events


def dated(event: Event, number: int) -> Event:
    """An event that happens now, as the log keeps it."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"event": number, "time": now, **event}


def append_event(path: Path, event: Event) -> Event:
    """Enter an event with its number and time, and see it to the disk. The workspace's lock must be held."""
    entered = dated(event, len(read_events(path)) + 1)
    line = json.dumps(entered, ensure_ascii=False).encode() + b"\n"
    try:
        with path.open("ab") as file:
            whole = _end_of_last_line(path)
            file.truncate(whole)  # what a crash left half written
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(whole)
                raise
    except OSError as error:
        raise CampError(f"Could not append to {path}: {error.strerror or error}.") from error
    return entered


def write_events(path: Path, events: Sequence[Event]) -> None:
    """The whole log at once, for several new events that count together or not at all. The lock must be held."""
    write_text(path, "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events))


def _end_of_last_line(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1


def since_last_batch(events: Sequence[Event]) -> list[Event]:
    """The events after the last learning step."""
    for position in range(len(events) - 1, -1, -1):
        if events[position]["kind"] == "learned":
            return list(events[position + 1 :])
    return list(events)


def standing(events: Sequence[Event]) -> list[Event]:
    """The decisions since the last batch that were not taken back, in their order."""
    recent = since_last_batch(events)
    undone = {event["of"] for event in recent if event["kind"] == "undone"}
    return [event for event in recent if event["kind"] != "undone" and event["event"] not in undone]


def apply(knowledge: Knowledge, event: Event) -> Knowledge:
    """What is known after one decision; a `CampError` if it can not be made."""
    kind = event["kind"]
    if kind == "named":
        name = event["name"]
        if name is not None:
            name = check_name(name)
            other = knowledge.named().get(name)
            if other is not None and other != event["category"]:
                raise CampError(
                    f'Category {other} is called "{name}" already; merge the two if they are the same kind.'
                )
        return knowledge.renamed(event["category"], name)
    if kind == "merged":
        return knowledge.merged(event["category"], event["into"])
    if kind == "apart":
        return knowledge.told_apart(event["category"], event["other"])
    if kind == "moved":
        return knowledge.moved(event["rows"], event["into"], event.get("made", False))
    if kind == "discarded":
        if "rows" in event:
            return knowledge.without(event["rows"])
        return knowledge.discarded(event["category"])
    raise CampError(f'An event of the kind "{kind}" is not known; the workspace is of a newer version.')


def described(event: Event, knowledge: Knowledge) -> str:
    """A decision in words, for the list of what can be undone."""
    kind = event["kind"]

    def title(id: int) -> str:
        return knowledge.categories[id].title if id in knowledge.categories else f"category {id}"

    if kind == "named":
        called = f"called “{event['name']}”" if event["name"] is not None else "has no name any more"
        return (
            f"category {event['category']} is {called}"
            if event["name"]
            else f"category {event['category']} {called}"
        )
    if kind == "merged":
        return f"category {event['category']} is {title(event['into'])}"
    if kind == "apart":
        return f"{title(event['category'])} and {title(event['other'])} are different"
    if kind == "moved":
        what = f"{len(event['rows'])} picture{'s' * (len(event['rows']) != 1)}"
        return (
            f"{what} became {title(event['into'])}"
            if event.get("made")
            else f"{what} moved to {title(event['into'])}"
        )
    if kind == "discarded":
        if "rows" in event:
            return f"{len(event['rows'])} picture{'s' * (len(event['rows']) != 1)} discarded"
        return f"{title(event['category'])} discarded"
    return kind
