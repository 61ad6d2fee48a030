"""Kept unknown pictures on the review page: proposed categories, which a person accepts or dismisses."""

from dataclasses import dataclass

from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import FileResponse

from camp.app.review.decisions import Outcome, Request
from camp.app.review.state import ReviewState
from camp.app.workspace.decisions import (
    Accepted,
    Decision,
    Digest,
    Digests,
    Dismissed,
    Name,
)
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.proposals import Proposal, proposals

SHOWN = 8
"""Pictures of a proposal that the page shows."""


@dataclass(frozen=True)
class KeptTile:
    """A kept picture as the page shows it."""

    digest: str
    file: str
    kept: bool
    """Whether there is a thumbnail."""


@dataclass(frozen=True)
class ProposalAnswer:
    """A proposed category."""

    digests: list[str]
    tiles: list[KeptTile]
    """The most typical pictures."""
    nearest: str
    """Title of the category that looks most like it."""


@dataclass(frozen=True)
class KeptAnswer:
    """All proposed categories."""

    events: int
    pictures: int
    """Number of kept pictures that were neither learned nor dismissed."""
    outdated: int
    """Number of pictures that were kept before the last training."""
    proposals: list[ProposalAnswer]


class AcceptRequest(Request):
    """Make a category of kept pictures, with a name if one is given."""

    digests: Digests
    name: Name | None = None


class DismissRequest(Request):
    """Do not propose these kept pictures again."""

    digests: Digests


def add_kept(app: FastAPI, state: ReviewState) -> None:
    """Add the queries and decisions about kept pictures to `app`."""

    def decide(seen: int, decision: Decision, made: int | None = None) -> Outcome:
        dated = state.workspace.decide(decision, seen)
        now = state.now()
        said = dated.describe(now.knowledge)
        return Outcome(events=now.count, said=f"{said}.", category=made)

    def with_kept() -> tuple[int, Knowledge]:
        """Return the number of events and the knowledge, with pictures that were kept since it was read."""
        now = state.now()
        return now.count, state.workspace.with_kept(now.knowledge)

    def thumbnail_path(digest: str) -> str | None:
        path = state.workspace.storage.thumbnail(bytes.fromhex(digest))
        return str(path) if path is not None and path.is_file() else None

    def answer(knowledge: Knowledge, one: Proposal) -> ProposalAnswer:
        shown = list(zip(one.digests, one.files))[:SHOWN]
        tiles = [KeptTile(digest, file, thumbnail_path(digest) is not None) for digest, file in shown]
        return ProposalAnswer(list(one.digests), tiles, knowledge.title(one.nearest))

    @app.get("/api/kept")
    def kept() -> KeptAnswer:
        with state.busy:
            events, knowledge = with_kept()
            found = [answer(knowledge, one) for one in proposals(knowledge)]
            return KeptAnswer(events, len(knowledge.pending()), knowledge.kept.outdated, found)

    @app.post("/api/kept/accept")
    def accept(request: AcceptRequest) -> Outcome:
        with state.busy:
            id = state.unchanged(request.events).knowledge.next_id()
            return decide(
                request.events, Accepted(digests=request.digests, into=id, name=request.name), made=id
            )

    @app.post("/api/kept/dismiss")
    def dismiss(request: DismissRequest) -> Outcome:
        with state.busy:
            return decide(request.events, Dismissed(digests=request.digests))

    @app.get("/thumbnails/kept/{digest}")
    def thumbnail(digest: Digest) -> Response:
        path = thumbnail_path(digest)
        if path is None:
            raise HTTPException(404)
        return FileResponse(path, media_type="image/jpeg")
