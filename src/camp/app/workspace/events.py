"""The append-only event log of a workspace: learning steps, decisions of a person, and undone decisions.

Every event is a model with a tag `kind`. The same model is a line of `events.jsonl` and, for decisions, the body of a
request of the review page. A decision changes the knowledge of the workspace (`apply`) and explains itself in words
(`describe`).
"""

import dataclasses
import datetime
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from camp.app.inputs.names import check_name
from camp.app.workspace.knowledge import DISCARDED, REVIEWED, Category, Knowledge, count
from camp.core.errors import CampError
from camp.core.files import atomic_write

Number = Annotated[int, Field(ge=0, lt=2**31)]
Rows = Annotated[list[Number], AfterValidator(lambda rows: sorted(set(rows)))]
Name = Annotated[str, AfterValidator(check_name)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Digests = Annotated[list[Digest], AfterValidator(lambda digests: list(dict.fromkeys(digests)))]


class Event(BaseModel):
    """An entry of the log."""

    model_config = ConfigDict(frozen=True)

    number: int = Field(default=0, validation_alias="event", serialization_alias="event")
    """Position in the log, counted from 1; 0 before the event is in the log."""
    time: str = ""
    """When it was entered in the log, ISO 8601."""
    kind: str

    def dated(self, number: int) -> Self:
        """Return the event with its number and the present time."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return self.model_copy(update={"number": number, "time": now})

    def line(self) -> str:
        """Return the line of the log; fields that were not given are left out."""
        head = {"event": self.number, "time": self.time, "kind": self.kind}
        values = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return json.dumps(head | values, ensure_ascii=False)


class Learned(Event):
    """A batch was learned; knowledge starts again from its result."""

    kind: Literal["learned"] = "learned"
    step: int
    folder: str = ""
    """Name of the batch."""
    trunk: str = ""
    """Fingerprint of the trunk that the tip of this step belongs to."""


class Undone(Event):
    """An earlier decision since the last batch does not count."""

    kind: Literal["undone"] = "undone"
    of: int
    """Number of the decision."""


class Decision(Event, ABC):
    """A decision of a person about categories or images."""

    @abstractmethod
    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Return the knowledge after the decision; raise a `CampError` if it cannot be made."""

    @abstractmethod
    def describe(self, knowledge: Knowledge) -> str:
        """Describe the decision in words, with the names that categories have in `knowledge`."""


class Named(Decision):
    """A category is called `name`; None takes its name away."""

    kind: Literal["named"] = "named"
    category: Number
    name: Name | None

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Rename the category."""
        other = None if self.name is None else knowledge.named().get(self.name)
        if other is not None and other != self.category:
            raise CampError(
                f'Category {other} is called "{self.name}" already; merge the two if they are the same kind.'
            )
        renamed = dataclasses.replace(knowledge.category(self.category), name=self.name)
        return knowledge.with_categories(renamed)

    def describe(self, knowledge: Knowledge) -> str:
        """Say what it is called."""
        if self.name is None:
            return f"category {self.category} has no name any more"
        return f"category {self.category} is called “{self.name}”"


class Merged(Decision):
    """The images of `category` belong to `into`, which takes over the name if it has none."""

    kind: Literal["merged"] = "merged"
    category: Number
    into: Number

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Move all images and end the merged category."""
        merged, target = knowledge.category(self.category), knowledge.category(self.into)
        if merged.id == target.id:
            raise CampError(f"{merged.title} cannot be merged with itself; choose two categories.")
        target = dataclasses.replace(target, name=target.name if target.name is not None else merged.name)
        ended = dataclasses.replace(merged, merged_into=target.id)
        return knowledge.with_categories(ended, target).assign(knowledge.rows_of(merged.id), target.id)

    def describe(self, knowledge: Knowledge) -> str:
        """Say what it is."""
        return f"category {self.category} is {knowledge.title(self.into)}"


class Distinguished(Decision):
    """`category` and `other` look alike and are different categories."""

    kind: Literal["apart"] = "apart"
    category: Number
    other: Number

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Remember the pair."""
        one, other = knowledge.category(self.category), knowledge.category(self.other)
        if one.id == other.id:
            raise CampError(f"{one.title} cannot differ from itself; choose two categories.")
        pair = min(one.id, other.id), max(one.id, other.id)
        return dataclasses.replace(knowledge, distinct=knowledge.distinct | {pair})

    def describe(self, knowledge: Knowledge) -> str:
        """Say that they differ."""
        return f"{knowledge.title(self.category)} and {knowledge.title(self.other)} are different"


class Moved(Decision):
    """Images, by their rows, belong to `into`; with `made` that is a new category."""

    kind: Literal["moved"] = "moved"
    rows: Rows
    into: Number
    made: bool = False

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Assign the images."""
        _check_chosen(self.rows)
        if not self.made:
            return knowledge.assign(self.rows, knowledge.category(self.into).id, REVIEWED)
        if self.into in knowledge.categories:
            raise CampError(f"Category {self.into} exists already; a new one gets a new id.")
        made = Category(self.into, None, knowledge.step, "made")
        return knowledge.with_categories(made).assign(self.rows, self.into, REVIEWED)

    def describe(self, knowledge: Knowledge) -> str:
        """Say where they went."""
        verb = "became" if self.made else "moved to"
        return f"{count(len(self.rows), 'picture')} {verb} {knowledge.title(self.into)}"


class Discarded(Decision):
    """Either a category, or single images by their rows, count for nothing."""

    kind: Literal["discarded"] = "discarded"
    category: Number | None = None
    rows: Rows | None = None

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.category is None) == (self.rows is None):
            raise CampError("Discard either a category or pictures.")
        return self

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Assign the images to no category."""
        if self.rows is not None:
            _check_chosen(self.rows)
            return knowledge.assign(self.rows, DISCARDED, REVIEWED)
        assert self.category is not None
        ended = dataclasses.replace(knowledge.category(self.category), discarded=True)
        return knowledge.with_categories(ended).assign(knowledge.rows_of(ended.id), DISCARDED)

    def describe(self, knowledge: Knowledge) -> str:
        """Say what was discarded."""
        if self.rows is not None:
            return f"{count(len(self.rows), 'picture')} discarded"
        return f"{knowledge.title(self.category or 0)} discarded"


class Accepted(Decision):
    """Unknown images that were kept, by their digests, are the new category `into`, called `name` if one is given."""

    kind: Literal["accepted"] = "accepted"
    digests: Digests
    into: Number
    name: Name | None = None

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Add the images and the category."""
        _check_chosen(self.digests)
        if self.into in knowledge.categories:
            raise CampError(f"Category {self.into} exists already; a new one gets a new id.")
        if self.name is not None and self.name in knowledge.named():
            raise CampError(f'There is a category called "{self.name}" already; choose another name.')
        made = Category(self.into, self.name, knowledge.step, "made")
        return knowledge.with_categories(made).add_kept(self.digests, self.into)

    def describe(self, knowledge: Knowledge) -> str:
        """Say what they became."""
        return f"{count(len(self.digests), 'unknown picture')} became {knowledge.title(self.into)}"


class Dismissed(Decision):
    """Unknown images that were kept, by their digests, are not proposed again."""

    kind: Literal["dismissed"] = "dismissed"
    digests: Digests

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Remember the images."""
        _check_chosen(self.digests)
        return knowledge.dismiss(self.digests)

    def describe(self, knowledge: Knowledge) -> str:
        """Say how many."""
        return f"{count(len(self.digests), 'unknown picture')} dismissed"


AnyDecision = Annotated[
    Named | Merged | Distinguished | Moved | Discarded | Accepted | Dismissed, Field(discriminator="kind")
]
AnyEvent = Annotated[Learned | AnyDecision | Undone, Field(discriminator="kind")]
_PARSER: TypeAdapter[Event] = TypeAdapter(AnyEvent)


def _check_chosen(chosen: Sequence[int] | Sequence[str]) -> None:
    if not chosen:
        raise CampError("No picture was chosen; choose at least one.")


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


# The file.


def read_log(path: Path) -> list[Event]:
    """Return all complete events; a line that a crash left incomplete at the end is ignored."""
    events: list[Event] = []
    for number, line in enumerate(_content(path).split(b"\n")[:-1], start=1):
        try:
            events.append(_PARSER.validate_json(line))
        except ValidationError as error:
            fault = error.errors()[0]
            if fault["type"] == "union_tag_invalid":
                tag = fault["ctx"]["tag"]
                sentence = f'An event of the kind "{tag}" is not known; the workspace is of a newer version.'
                raise CampError(sentence) from None
            raise CampError(f"Line {number} of {path} is damaged; restore the file from a copy.") from None
    return events


def append_event(path: Path, event: Event) -> None:
    """Append one event and flush it to the disk. The lock of the workspace must be held."""
    try:
        with path.open("ab") as file:
            end = _content(path).rfind(b"\n") + 1
            file.truncate(end)  # removes what a crash left incomplete
            try:
                file.write(event.line().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise CampError(f"Could not append to {path}: {error.strerror or error}.") from error


def extend_log(path: Path, events: Sequence[Event]) -> None:
    """Add several events, all or none, by replacing the file. The lock of the workspace must be held."""
    content = _content(path)
    with atomic_write(path) as file:
        file.write(content[: content.rfind(b"\n") + 1])
        file.writelines(event.line().encode() + b"\n" for event in events)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise CampError(f"Could not read {path}: {error.strerror or error}.") from error
