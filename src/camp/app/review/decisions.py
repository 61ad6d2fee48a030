"""Requests of the review page that change the workspace.

Every request says how many events the page had seen. A decision about something that has changed since is refused:
rows and halves may mean other images by then.
"""

from fastapi import FastAPI
from pydantic import BaseModel

from camp.app.review.state import ReviewState
from camp.app.workspace.events import AnyDecision, Decision, Moved, Name, Number, Rows
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


def add_decisions(app: FastAPI, state: ReviewState) -> None:
    """Add the requests that change the workspace of `state` to `app`."""

    def log(seen: int, decision: Decision, made: int | None = None) -> Outcome:
        """Append a decision to the log."""
        dated = state.workspace.decide(decision, seen)
        now = state.now()
        said = dated.describe(now.knowledge)
        return Outcome(events=now.count, said=f"{said[:1].upper()}{said[1:]}.", category=made)

    @app.post("/api/decide")
    def decide(request: DecisionRequest) -> Outcome:
        with state.busy:
            return log(request.events, request.decision)

    @app.post("/api/make")
    def make(request: MakeRequest) -> Outcome:
        with state.busy:
            knowledge = state.unchanged(request.events).knowledge
            id = knowledge.next_id()
            if request.name in knowledge.named():
                raise CampError(
                    f'There is a category called "{request.name}" already; move the pictures there.'
                )
            named = {} if request.name is None else {"name": request.name}
            return log(request.events, Moved(rows=request.rows, into=id, made=True, **named), made=id)

    @app.post("/api/split")
    def split(request: SplitRequest) -> Outcome:
        """Split a category in two; the split is deterministic, so that the halves are those that were shown."""
        with state.busy:
            rows = halves(state.unchanged(request.events).knowledge, request.category).tolist()
            return make(MakeRequest(events=request.events, rows=rows))

    @app.post("/api/undo")
    def undo(request: Request) -> Outcome:
        with state.busy:
            undone = state.workspace.undo(request.events)
            now = state.now()
            return Outcome(events=now.count, said=f"Undone: {undone.describe(now.knowledge)}.")
