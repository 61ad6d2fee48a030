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


class MergedSeveral(Decision):
    """The images of all `categories` belong to `into`, which takes over the first of their names if it has none."""

    kind: Literal["merged-several"] = "merged-several"
    categories: Rows
    into: Number

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Merge one category after the other, all or none."""
        if not self.categories:
            raise CampError("No category was chosen; choose at least two that are the same kind.")
        for category in self.categories:
            knowledge = Merged(category=category, into=self.into).apply(knowledge)
        return knowledge

    def describe(self, knowledge: Knowledge) -> str:
        """Say what they are."""
        if len(self.categories) == 1:
            return Merged(category=self.categories[0], into=self.into).describe(knowledge)
        *first, last = map(str, self.categories)
        return f"categories {', '.join(first)} and {last} are {knowledge.title(self.into)}"


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
    """Images, by their rows, belong to `into`; with `made` that is a new category, called `name` if one is given."""

    kind: Literal["moved"] = "moved"
    rows: Rows
    into: Number
    made: bool = False
    name: Name | None = None

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Assign the images."""
        _check_chosen(self.rows)
        if self.name is not None and (not self.made or self.name in knowledge.named()):
            raise CampError(f'Only a new category gets a name, and "{self.name}" is not one; move the pictures there.')
        if not self.made:
            return knowledge.assign(self.rows, knowledge.category(self.into).id, REVIEWED)
        if self.into in knowledge.categories:
            raise CampError(f"Category {self.into} exists already; a new one gets a new id.")
        made = Category(self.into, self.name, knowledge.step, "made")
        return knowledge.with_categories(made).assign(self.rows, self.into, REVIEWED)

    def describe(self, knowledge: Knowledge) -> str:
        """Say where they went."""
        verb = "became" if self.made else "moved to"
        return f"{count(len(self.rows), 'picture')} {verb} {knowledge.title(self.into)}"


class Elsewhere(BaseModel):
    """Images, by their rows, that go to the category `into`."""

    model_config = ConfigDict(frozen=True)

    rows: Rows
    into: Number


class Confirmed(Decision):
    """A person looked at images that might all be `category`: `rows` are, and `others` are not.

    Each of the others goes to the category that is most probable instead; nobody has said that it belongs there. It is
    not proposed for `category` again.
    """

    kind: Literal["confirmed"] = "confirmed"
    category: Number
    rows: Rows = []
    others: list[Elsewhere] = []

    def apply(self, knowledge: Knowledge) -> Knowledge:
        """Assign the images, and remember what the others are not."""
        category = knowledge.category(self.category)
        rejected = [row for part in self.others for row in part.rows]
        _check_chosen([*self.rows, *rejected])
        if len({*self.rows, *rejected}) != len(self.rows) + len(rejected):
            raise CampError("A picture cannot be in two places; look at the pictures again.")
        after = knowledge.assign(self.rows, category.id, REVIEWED)
        for part in self.others:
            into = knowledge.category(part.into).id
            if into == category.id:
                raise CampError(f"Pictures that are not {category.title} cannot go there; look at them again.")
            after = after.assign(part.rows, into)
        pairs = frozenset((row, category.id) for row in rejected)
        return dataclasses.replace(after, rejected=knowledge.rejected | pairs)

    def describe(self, knowledge: Knowledge) -> str:
        """Say how many are and how many are not."""
        title, rejected = knowledge.title(self.category), sum(len(part.rows) for part in self.others)
        if not self.rows:
            return f"{count(rejected, 'picture')} {'is' if rejected == 1 else 'are'} not {title}"
        said = f"{count(len(self.rows), 'picture')} {'is' if len(self.rows) == 1 else 'are'} {title}"
        return f"{said}, {rejected} {'is' if rejected == 1 else 'are'} not" if rejected else said


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


AnyDecision = Annotated[
    Named | Merged | MergedSeveral | Distinguished | Moved | Confirmed | Discarded, Field(discriminator="kind")
]
AnyEvent = Annotated[Learned | AnyDecision | Undone, Field(discriminator="kind")]
_PARSER: TypeAdapter[Event] = TypeAdapter(AnyEvent)


def _check_chosen(rows: Sequence[int]) -> None:
    if not rows:
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
