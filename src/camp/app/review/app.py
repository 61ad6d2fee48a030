"""The review page: its files, what it asks, and the decisions it sends.

It knows nothing of who may ask; the caller puts `camp.app.web.guard.Guard` before it.
"""

import contextlib
import threading
from collections.abc import AsyncIterator
from importlib import resources
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from camp.app.review import decisions
from camp.app.review import queries as answers
from camp.app.review.decisions import (
    Decision,
    Discarding,
    Merging,
    Moving,
    Naming,
    Number,
    Outcome,
    Splitting,
    Telling,
)
from camp.app.review.state import State
from camp.app.workspace.folder import Workspace
from camp.app.workspace.overview import halves
from camp.core.errors import CampError

KINDS = {".css": "text/css", ".js": "text/javascript"}
KEEP = {"Cache-Control": "private, max-age=31536000, immutable"}


def review_app(workspace: Workspace) -> FastAPI:
    """The page over `workspace`."""
    state = State(workspace)
    app = FastAPI(
        title=f"Review {workspace.path.name}",
        lifespan=_looking_ahead(state),
        docs_url=None,  # it would load its scripts from another host
        redoc_url=None,
        openapi_url=None,
    )
    _answer_errors(app)
    _offer_page(app, workspace)
    _offer_answers(app, state)
    _offer_decisions(app, state)
    return app


def _looking_ahead(state: State) -> Any:
    """Look at the workspace while the browser still opens."""

    def look() -> None:
        with contextlib.suppress(CampError):  # which the page will show
            state.now()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=look, daemon=True).start()
        yield

    return lifespan


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(CampError)
    def refused(request: Request, error: CampError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=409)

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return JSONResponse({"error": f"{where}: {first['msg']}."}, status_code=422)


def _offer_page(app: FastAPI, workspace: Workspace) -> None:
    """The page and its own files, by name: no path is ever looked up."""
    environment = Environment(
        loader=PackageLoader("camp.app.review", "page"), autoescape=True, undefined=StrictUndefined
    )
    html = environment.get_template("index.html").render(name=workspace.path.resolve().name)
    folder = resources.files("camp.app.review") / "page"
    files = {
        file.name: (file.read_bytes(), KINDS[suffix])
        for file in folder.iterdir()
        if (suffix := "." + file.name.rpartition(".")[2]) in KINDS
    }

    @app.get("/")
    def page() -> HTMLResponse:
        return HTMLResponse(html)

    @app.get("/page/{name}")
    def file(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        content, kind = files[name]
        return Response(content, media_type=kind)


def _offer_answers(app: FastAPI, state: State) -> None:
    @app.get("/api/overview")
    def overview() -> dict[str, Any]:
        return answers.everything(state.now())

    @app.get("/api/events")
    def events() -> dict[str, int]:
        return {"events": state.now().count}

    @app.get("/api/category/{id}")
    def category(
        id: Number, order: answers.Order = "typical", start: Annotated[int, Query(ge=0)] = 0
    ) -> dict[str, Any]:
        now = state.now()
        rows = answers.ordered(now, id, order)
        shown = answers.pictures(now, rows[start : start + answers.PAGE])
        return {"events": now.count, "total": len(rows), "pictures": shown}

    @app.get("/api/pictures")
    def pictures(row: Annotated[list[Number], Query(max_length=answers.PAGE)]) -> dict[str, Any]:
        now = state.now()
        if max(row, default=0) >= len(now.knowledge.pictures):
            raise HTTPException(404)
        return {"events": now.count, "pictures": answers.pictures(now, row)}

    @app.get("/api/category/{id}/halves")
    def two_halves(id: Number) -> dict[str, Any]:
        now = state.now()
        leaves = halves(now.knowledge, id)
        stays = np.setdiff1d(now.knowledge.rows_of(id), leaves)
        return {
            "events": now.count,
            "stays": answers.half(now, stays),
            "leaves": answers.half(now, leaves),
        }

    @app.get("/api/map/positions")
    def positions() -> Response:
        """(n, 2) float32."""
        now = state.now()
        return _numbers(now.knowledge.pictures.positions, "<f4", now.count)

    @app.get("/api/map/categories")
    def categories() -> Response:
        """(n,) int32."""
        now = state.now()
        return _numbers(now.knowledge.pictures.category, "<i4", now.count)

    @app.get("/api/batches")
    def batches() -> dict[str, Any]:
        now = state.now()
        return {"events": now.count, "batches": now.reports}

    @app.get("/thumbnails/{version}/{row}")
    def thumbnail(version: str, row: Number) -> Response:
        now = state.now()
        if version != now.version or row >= len(now.kept) or not now.kept[row]:
            raise HTTPException(404)
        path = state.workspace.thumbnail(now.knowledge.pictures.digests[row])
        if not path.is_file():
            raise HTTPException(404)
        return FileResponse(path, media_type="image/jpeg", headers=KEEP)


def _offer_decisions(app: FastAPI, state: State) -> None:
    @app.post("/api/name")
    def name(asked: Naming) -> Outcome:
        return decisions.name(state, asked)

    @app.post("/api/merge")
    def merge(asked: Merging) -> Outcome:
        return decisions.merge(state, asked)

    @app.post("/api/apart")
    def tell_apart(asked: Telling) -> Outcome:
        return decisions.tell_apart(state, asked)

    @app.post("/api/move")
    def move(asked: Moving) -> Outcome:
        return decisions.move(state, asked)

    @app.post("/api/split")
    def split(asked: Splitting) -> Outcome:
        return decisions.split(state, asked)

    @app.post("/api/discard")
    def discard(asked: Discarding) -> Outcome:
        return decisions.discard(state, asked)

    @app.post("/api/undo")
    def undo(asked: Decision) -> Outcome:
        return decisions.undo(state, asked)


def _numbers(values: np.ndarray, kind: str, events: int) -> Response:
    """An array as bytes, little-endian, as a browser's typed arrays are."""
    data = np.ascontiguousarray(values, dtype=kind).tobytes()
    return Response(data, media_type="application/octet-stream", headers={"X-Events": str(events)})
