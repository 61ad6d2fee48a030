"""Requests of the review page that change the workspace.

Every request says how many events the page had seen. A decision about something that has changed since is refused:
rows and halves may mean other images by then.
"""

from fastapi import FastAPI
from pydantic import BaseModel

from camp.app.review.state import ReviewState
from camp.app.workspace.decisions import (
    AnyDecision,
    Decision,
    Elsewhere,
    Moved,
    Name,
    Number,
    Propagated,
    Rows,
)
from camp.app.workspace.overview import halves


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


class NameGroupRequest(Request):
    """Most images of a group that was shown are called `name`."""

    rows: Rows
    name: Name
    category: Number
    """The category that most of them are in."""
    main: bool
    """Whether that category gets the name if no other category has it; else a new category is made."""


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
            moved = Moved(rows=request.rows, into=id, made=True)
            if request.name is not None:
                moved = Moved(rows=request.rows, into=id, made=True, name=request.name)
            return log(request.events, moved, made=id)

    @app.post("/api/name-group")
    def name_group(request: NameGroupRequest) -> Outcome:
        with state.busy:
            knowledge = state.unchanged(request.events).knowledge
            existing = knowledge.named().get(request.name)
            if existing is not None:
                moves = [Elsewhere(rows=request.rows, into=existing)]
                return log(request.events, Propagated(moves=moves))
            if request.main and knowledge.category(request.category).name is None:
                moves = [Elsewhere(rows=request.rows, into=request.category)]
                return log(request.events, Propagated(moves=moves, name=request.name))
            id = knowledge.next_id()
            moves = [Elsewhere(rows=request.rows, into=id)]
            return log(request.events, Propagated(moves=moves, made=True, name=request.name), made=id)

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
