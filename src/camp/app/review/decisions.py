"""What a person decided on the page, turned into events of the workspace.

Every request says how many events the page had seen. A decision about something that has changed since is refused: rows
and halves may mean other pictures by then.
"""

from typing import Annotated

from pydantic import BaseModel, Field

from camp.app.review.state import State
from camp.app.workspace.events import Event, described
from camp.app.workspace.names import check_name
from camp.app.workspace.overview import halves
from camp.core.errors import CampError

Number = Annotated[int, Field(ge=0, lt=2**31)]


class Decision(BaseModel):
    """What all of them say."""

    events: Number
    """Events the page had seen."""


class Naming(Decision):
    """`category` is called `name`; null takes the name away."""

    category: Number
    name: str | None


class Merging(Decision):
    """`category` is the same kind as `into`."""

    category: Number
    into: Number


class Telling(Decision):
    """`category` and `other` look alike and are different kinds."""

    category: Number
    other: Number


class Moving(Decision):
    """Pictures belong to `into`, or to a new category that may be named at once."""

    rows: list[Number]
    into: Number | None = None
    name: str | None = None


class Splitting(Decision):
    """The half of `category` that was shown becomes a category of its own."""

    category: Number


class Discarding(Decision):
    """A category, or single pictures, are of no use."""

    category: Number | None = None
    rows: list[Number] | None = None


class Outcome(BaseModel):
    """What came of a decision."""

    events: int
    said: str
    """In words."""
    category: int | None = None
    """The category that was made."""


def name(state: State, asked: Naming) -> Outcome:
    """Give a name, or take it away."""
    called = None if asked.name is None else check_name(asked.name)
    return _decide(state, asked, [{"kind": "named", "category": asked.category, "name": called}])


def merge(state: State, asked: Merging) -> Outcome:
    """Make two categories one."""
    return _decide(state, asked, [{"kind": "merged", "category": asked.category, "into": asked.into}])


def tell_apart(state: State, asked: Telling) -> Outcome:
    """Remember that two categories are different, so that nobody is asked again."""
    return _decide(state, asked, [{"kind": "apart", "category": asked.category, "other": asked.other}])


def move(state: State, asked: Moving) -> Outcome:
    """Move pictures to another category, or to a new one."""
    rows = sorted(set(asked.rows))
    if asked.into is not None:
        return _decide(state, asked, [{"kind": "moved", "rows": rows, "into": asked.into}])
    return _made(state, asked, rows, asked.name)


def split(state: State, asked: Splitting) -> Outcome:
    """Split a category in two; the halves are those that were shown, since they are found without chance."""
    with state.busy:
        now = state.unchanged(asked.events)
        rows = halves(now.knowledge, asked.category).tolist()
        return _made(state, asked, rows, None)


def discard(state: State, asked: Discarding) -> Outcome:
    """Discard a category or pictures."""
    if (asked.category is None) == (asked.rows is None):
        raise CampError("Discard either a category or pictures.")
    if asked.rows is not None:
        return _decide(state, asked, [{"kind": "discarded", "rows": sorted(set(asked.rows))}])
    return _decide(state, asked, [{"kind": "discarded", "category": asked.category}])


def undo(state: State, asked: Decision) -> Outcome:
    """Take back the last decision."""
    with state.busy:
        state.unchanged(asked.events)
        undone = state.workspace.undo(asked.events)
        now = state.now()
        return Outcome(events=now.count, said=f"Undone: {described(undone, now.knowledge)}.")


def _made(state: State, asked: Decision, rows: list[int], name: str | None) -> Outcome:
    """A new category of pictures."""
    with state.busy:
        knowledge = state.unchanged(asked.events).knowledge
        id = knowledge.next_id()
        events: list[Event] = [{"kind": "moved", "rows": rows, "into": id, "made": True}]
        if name is not None:
            name = check_name(name)
            if name in knowledge.named():
                # Said before the category is made: half of a decision helps nobody.
                raise CampError(f'There is a category called "{name}" already; move the pictures there.')
            events.append({"kind": "named", "category": id, "name": name})
        outcome = _decide(state, asked, events)
        return outcome.model_copy(update={"category": id})


def _decide(state: State, asked: Decision, events: list[Event]) -> Outcome:
    with state.busy:
        state.unchanged(asked.events)
        entered = [state.workspace.decide(event, asked.events + i) for i, event in enumerate(events)]
        now = state.now()
        said = described(entered[0], now.knowledge)
        return Outcome(events=now.count, said=f"{said[:1].upper()}{said[1:]}.")
