"""Requests of the review page that change the workspace.

Every request says how many events the page had seen. A decision about something that has changed since is refused:
rows and halves may mean other images by then.
"""

from pydantic import BaseModel

from camp.app.review.state import ReviewState
from camp.app.workspace.events import AnyDecision, Decision, Moved, Name, Named, Number, Rows
from camp.app.workspace.overview import halves
from camp.core.errors import CampError


class Request(BaseModel):
    """What all requests say; alone, the request to undo the last decision."""

    events: Number
    """Number of events that the page had seen."""


class DecisionRequest(Request):
    """A decision that is one event."""

    decision: AnyDecision


class MakeRequest(Request):
    """Make a new category of images, with a name if one is given."""

    rows: Rows
    name: Name | None = None


class SplitRequest(Request):
    """Make a new category of the half of `category` that was shown."""

    category: Number


class Outcome(BaseModel):
    """The result of a decision."""

    events: int
    said: str
    """The decision in words."""
    category: int | None = None
    """Id of the category that was made."""


def decide(state: ReviewState, request: Request, *decisions: Decision) -> Outcome:
    """Append decisions to the log; the first one is described."""
    with state.busy:
        dated = [state.workspace.decide(one, request.events + i) for i, one in enumerate(decisions)]
        now = state.now()
        said = dated[0].describe(now.knowledge)
        return Outcome(events=now.count, said=f"{said[:1].upper()}{said[1:]}.")


def make(state: ReviewState, request: MakeRequest) -> Outcome:
    """Make a new category of images."""
    with state.busy:
        knowledge = state.unchanged(request.events).knowledge
        id = knowledge.next_id()
        decisions: list[Decision] = [Moved(rows=request.rows, into=id, made=True)]
        if request.name is not None:
            if request.name in knowledge.named():  # checked first: half of a decision must not be logged
                raise CampError(
                    f'There is a category called "{request.name}" already; move the pictures there.'
                )
            decisions.append(Named(category=id, name=request.name))
        return decide(state, request, *decisions).model_copy(update={"category": id})


def split(state: ReviewState, request: SplitRequest) -> Outcome:
    """Split a category in two; the split is deterministic, so that the halves are those that were shown."""
    with state.busy:
        rows = halves(state.unchanged(request.events).knowledge, request.category).tolist()
        return make(state, MakeRequest(events=request.events, rows=rows))


def undo(state: ReviewState, request: Request) -> Outcome:
    """Undo the last decision."""
    with state.busy:
        undone = state.workspace.undo(request.events)
        now = state.now()
        return Outcome(events=now.count, said=f"Undone: {undone.describe(now.knowledge)}.")
