"""The history of a workspace: events of any kind, and what they say together."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from camp.app.workspace.decisions import (
    Accepted,
    AnyDecision,
    Decision,
    Dismissed,
    Moved,
    Propagated,
)
from camp.app.workspace.events import Event, Learned, Lost, Undone
from camp.core.errors import CampError

AnyEvent = Annotated[Learned | AnyDecision | Undone | Lost, Field(discriminator="kind")]
_PARSER: TypeAdapter[Event] = TypeAdapter(AnyEvent)


class NotAnEventError(ValueError):
    """A line of the log is not an event."""

    def __init__(self, kind: str | None = None) -> None:
        super().__init__("not an event" if kind is None else f"not a known kind of event: {kind}")
        self.kind = kind
        """The tag of an object that is no kind of event."""


def parse_event(line: bytes) -> Event:
    """Return the event of a line of the log; raise a `NotAnEventError` if it is none."""
    try:
        return _PARSER.validate_json(line)
    except CampError:  # a decision with contradictory fields
        raise NotAnEventError from None
    except ValidationError as error:
        fault = error.errors()[0]
        unknown = fault["type"] == "union_tag_invalid"
        raise NotAnEventError(fault["ctx"]["tag"] if unknown else None) from None


def made_ids(event: Event) -> list[int]:
    """Return the ids of the categories that a decision made, whether it stands or was undone."""
    if isinstance(event, Accepted) or (isinstance(event, Moved) and event.made):
        return [event.into]
    if isinstance(event, Propagated) and event.made:
        return [part.into for part in event.moves]
    return []


def standing(events: Sequence[Event]) -> list[Decision]:
    """Return the decisions since the last learning step that were not undone, in order."""
    last = max((event.number for event in events if isinstance(event, Learned)), default=0)
    undone = {event.of for event in events if isinstance(event, Undone)}
    return [
        event
        for event in events
        if isinstance(event, Decision) and event.number > last and event.number not in undone
    ]


def dismissed(events: Sequence[Event]) -> list[Dismissed]:
    """Return all dismissals that were not undone; they outlast learning steps."""
    undone = {event.of for event in events if isinstance(event, Undone)}
    return [event for event in events if isinstance(event, Dismissed) and event.number not in undone]
