"""The review page: its files, its queries, and its decisions.

Access control is the task of the caller, which puts `camp.app.web.guard.Guard` before it.
"""

import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path
from typing import Annotated

import numpy as np
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException as StarletteHTTPException

from camp.app.review import queries
from camp.app.review.decisions import add_decisions
from camp.app.review.kept import add_kept
from camp.app.review.state import ReviewState, Snapshot
from camp.app.web.limits import RequestLimits
from camp.app.workspace.decisions import Number
from camp.app.workspace.overview import halves
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError

MAX_BODY = 16 << 20
"""Size limit of a decision, in bytes; one about a million images has 8 MB."""
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript"}
CACHE_FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}


def review_app(workspace: Workspace) -> FastAPI:
    """Make the page of `workspace`."""
    state = ReviewState(workspace)
    cards = functools.lru_cache(maxsize=1)(queries.overview_answer)

    def preload() -> None:
        with contextlib.suppress(CampError):  # which the page will show
            now = state.now()
            cards(now)
            with state.asking:  # the cards are answered meanwhile
                queries.queue_answer(now, 0)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=preload, daemon=True).start()  # while the browser still opens
        yield

    app = FastAPI(lifespan=lifespan, openapi_url=None)  # its pages would load scripts from another host
    app.add_middleware(RequestLimits, max_body=MAX_BODY)
    _add_error_handlers(app)
    _add_page(app, workspace)
    add_kept(app, state)  # before the queries: /thumbnails/kept is not a version
    _add_queries(app, state, cards)
    add_decisions(app, state)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(CampError)
    def refused(request: Request, error: CampError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=409)

    @app.exception_handler(StarletteHTTPException)
    def not_possible(request: Request, error: StarletteHTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, status_code=error.status_code)

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return JSONResponse({"error": f"{where}: {first['msg']}."}, status_code=422)


def _add_page(app: FastAPI, workspace: Workspace) -> None:
    """Serve the page and its files by name; no path is ever looked up."""
    environment = Environment(
        loader=PackageLoader("camp.app.review", "page"), autoescape=True, undefined=StrictUndefined
    )
    html = environment.get_template("index.html").render(name=Path(workspace.name).resolve().name)
    folder = resources.files("camp.app.review") / "page"
    files = {
        file.name: (file.read_bytes(), MEDIA_TYPES[suffix])
        for file in folder.iterdir()
        if (suffix := "." + file.name.rpartition(".")[2]) in MEDIA_TYPES
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


def _add_queries(
    app: FastAPI, state: ReviewState, cards: Callable[[Snapshot], queries.OverviewAnswer]
) -> None:
    @app.get("/api/overview")
    def overview() -> queries.OverviewAnswer:
        return cards(state.now())

    @app.get("/api/events")
    def events() -> queries.EventsAnswer:
        return queries.EventsAnswer(state.now().count)

    @app.get("/api/queue")
    def queue(skip: Annotated[int, Query(ge=0)] = 0) -> queries.QueueAnswer:
        """The next question; `skip` leaves out the most useful ones."""
        now = state.now()
        with state.asking:  # suggestions are computed once
            return queries.queue_answer(now, skip)

    @app.get("/api/category/{id}")
    def category(
        id: Number, order: queries.Order = "typical", start: Annotated[int, Query(ge=0)] = 0
    ) -> queries.CategoryPage:
        return queries.category_page(state.now(), id, order, start)

    @app.get("/api/pictures")
    def pictures(row: Annotated[list[Number], Query(max_length=queries.PAGE)]) -> queries.ImagesAnswer:
        now = state.now()
        if max(row, default=0) >= len(now.knowledge.images):
            raise HTTPException(404)
        return queries.ImagesAnswer(now.count, queries.image_answers(now, row))

    @app.get("/api/category/{id}/halves")
    def two_halves(id: Number) -> queries.HalvesAnswer:
        now = state.now()
        return queries.halves_answer(now, id, halves(now.knowledge, id))

    @app.get("/api/map/positions")
    def positions() -> Response:
        """(n, 2) float32."""
        now = state.now()
        return _array(now.knowledge.images.positions, "<f4", now.count)

    @app.get("/api/map/categories")
    def categories() -> Response:
        """(n,) int32."""
        now = state.now()
        return _array(now.knowledge.images.category, "<i4", now.count)

    @app.get("/api/batches")
    def batches() -> queries.BatchesAnswer:
        now = state.now()
        return queries.BatchesAnswer(now.count, now.reports)

    @app.get("/thumbnails/{version}/{row}")
    def thumbnail(version: str, row: Number) -> Response:
        now = state.now()
        if not state.has_image(version, row) or not now.has_thumbnail[row]:
            raise HTTPException(404)
        path = state.workspace.storage.thumbnail(now.knowledge.images.digests[row])
        if path is None or not path.is_file():
            raise HTTPException(404)
        return FileResponse(path, media_type="image/jpeg", headers=CACHE_FOREVER)


def _array(values: np.ndarray, dtype: str, events: int) -> Response:
    """Answer with the bytes of an array, little-endian as the typed arrays of browsers."""
    data = np.ascontiguousarray(values, dtype=dtype).tobytes()
    return Response(data, media_type="application/octet-stream", headers={"X-Events": str(events)})
