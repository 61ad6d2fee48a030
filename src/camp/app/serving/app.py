"""Prediction over HTTP, for programs on the same machine. Its pages load nothing from other hosts."""

import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import ClientDisconnect

from camp.app.prediction.model import Model, open_model
from camp.app.prediction.predict import Prediction
from camp.app.serving.batcher import Batcher, BusyError
from camp.app.serving.limits import MAX_BATCH, MAX_BYTES, MAX_BYTES_WAITING, MAX_WAITING
from camp.app.serving.metrics import CountRequests, Metrics
from camp.app.web.guard import Guard
from camp.app.web.limits import RequestLimits
from camp.app.workspace.kept_unknown import UnknownKeeper
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError
from camp.core.types import FALSE_ALARMS
from camp.core.version import __version__
from camp.data.images import UnreadableImageError

BINARY = "application/octet-stream"


@dataclass(frozen=True)
class CategoryAnswer:
    """A category that can be predicted."""

    id: int
    name: str
    """Name in predictions."""
    named: bool
    """Whether a person gave it that name."""


@dataclass(frozen=True)
class Fault:
    """Why there is no result."""

    detail: str


@dataclass(frozen=True)
class Health:
    """The server can predict."""

    categories: int
    """Number of categories."""
    waiting: int
    """Number of pictures without an answer."""


def prediction_app(
    model_of: Callable[[], Model],
    about: str,
    hosts: frozenset[str],
    keeper: UnknownKeeper | None = None,
    max_waiting: int = MAX_WAITING,
    max_batch: int = MAX_BATCH,
) -> FastAPI:
    """Make the HTTP application. Requests for other hosts, and requests from other web pages, are refused.

    Args:
        model_of: Returns the present model; called with every request, in several threads.
        about: A sentence for the page that documents the interface.
        hosts: Host headers that are accepted.
        keeper: Keeps unknown images, if given.
        max_waiting: Number of pictures without an answer from which on requests are refused.
        max_batch: Maximum number of pictures that are predicted together.
    """
    metrics = Metrics()
    batcher = Batcher(model_of, keeper, metrics, max_waiting, max_batch)
    bodies = Bodies()
    # FastAPI's own pages load scripts from outside hosts.
    app = FastAPI(title="CAMP", version=__version__, description=about, docs_url=None, redoc_url=None)
    app.add_middleware(RequestLimits, max_body=MAX_BYTES)
    app.add_middleware(Guard, hosts=hosts)
    paths = frozenset({"/predict", "/categories", "/health", "/metrics", "/", "/docs", "/openapi.json"})
    app.add_middleware(CountRequests, metrics=metrics, paths=paths, timed="/predict")

    @app.exception_handler(CampError)
    async def not_ready(request: Request, error: CampError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=503)

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> JSONResponse:
        headers = {"Retry-After": str(error.seconds)}
        return JSONResponse({"detail": str(error)}, status_code=503, headers=headers)

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> PlainTextResponse:
        return PlainTextResponse("The request was not finished.\n", status_code=400)  # nobody reads it

    @app.post(
        "/predict",
        summary="Recognise a picture",
        response_description="The predicted category.",
        responses={
            400: {"model": Fault, "description": "The body cannot be read as a picture; the reason."},
            413: {"model": Fault, "description": f"The body is larger than {MAX_BYTES >> 20} MB."},
            415: {"model": Fault, "description": "The content type is not that of a picture."},
            503: {
                "model": Fault,
                "description": "There is nothing to recognise yet; or, with the header Retry-After in seconds, too many "
                "pictures are waiting.",
            },
        },
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("image/*", BINARY)
                },
            }
        },
    )
    async def predict(request: Request, file: str = "") -> Prediction:
        """The body is the picture itself: JPEG, PNG, WebP, GIF, BMP, TIFF or PPM. The parameter `file` is returned as given.

        For a model over vectors the body is one vector: its numbers as little-endian float32.
        """
        try:
            async with bodies.body(request) as data:
                return await batcher.predict(data, file)
        except UnreadableImageError as fault:
            raise HTTPException(400, f"The body cannot be read as a picture: {fault}.") from fault

    @app.get("/categories", summary="The categories", response_description="All categories.")
    def categories() -> list[CategoryAnswer]:
        """In no particular order. Ids never change, names may."""
        model = model_of()
        return [
            CategoryAnswer(id, model.titles[i], model.names[i] is not None) for i, id in enumerate(model.ids)
        ]

    @app.get(
        "/health",
        summary="Whether the server can predict",
        response_description="It can.",
        responses={503: {"model": Fault, "description": "There is nothing to recognise yet."}},
    )
    def health() -> Health:
        """For programs that watch the server."""
        return Health(len(model_of().ids), batcher.waiting)

    @app.get(
        "/metrics",
        summary="Measurements",
        response_description="The text format of Prometheus.",
        response_class=PlainTextResponse,
    )
    async def measurements() -> PlainTextResponse:
        """Requests by status, pictures, length of the queue, sizes of batches, times of predictions, share of unknown pictures."""
        return PlainTextResponse(metrics.text(batcher.waiting), media_type="text/plain; version=0.0.4")

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    def documentation(request: Request) -> HTMLResponse:
        environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        template, address = environment.get_template("serving.html"), str(request.base_url).rstrip("/")
        return HTMLResponse(template.render(schema=app.openapi(), address=address))

    return app


class Bodies:
    """Bodies of requests without an answer, which have a size limit together."""

    def __init__(self, max_bytes: int = MAX_BYTES_WAITING) -> None:
        self.max_bytes, self.bytes = max_bytes, 0

    @contextlib.asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        """Read a body; refuse it if there is no room for it."""
        _check_type(request)
        parts, held = list[bytes](), 0
        try:
            async for chunk in request.stream():
                parts.append(chunk)
                held += len(chunk)
                self.bytes += len(chunk)
                if self.bytes > self.max_bytes:
                    raise BusyError(
                        "Pictures of many megabytes are waiting already; try again in 1 second.", 1
                    )
            data = b"".join(parts)
            parts.clear()
            yield data
        finally:
            self.bytes -= held


def _check_type(request: Request) -> None:
    """Refuse a body of another type than that of a picture."""
    kind = request.headers.get("content-type", BINARY).partition(";")[0].strip().lower()
    if not kind.startswith("image/") and kind != BINARY:
        raise HTTPException(
            415, f"The content type is {kind}; send the picture as the body, with image/jpeg or {BINARY}."
        )


def latest_model(workspace: Workspace, false_alarms: float = FALSE_ALARMS) -> Callable[[], Model]:
    """Return a function that returns the present model; it is opened again when the log of the workspace has changed.

    The function is safe to use from several threads.
    """
    cache: list[tuple[tuple[int, ...], Model]] = []
    busy = threading.Lock()

    def model() -> Model:
        with busy:
            version = workspace.storage.version()
            if not cache or cache[0][0] != version:
                cache[:] = [(version, open_model(workspace, false_alarms))]
            return cache[0][1]

    return model
