"""Prediction over HTTP, for programs on the same machine. Its pages load nothing from other hosts."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool

from camp.app.prediction.keep_unknown import keep_with
from camp.app.prediction.model import Model, open_model
from camp.app.prediction.predict import Prediction, predict_image
from camp.app.web.guard import Guard
from camp.app.web.limits import RequestLimits
from camp.app.workspace.kept_unknown import UnknownKeeper
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError
from camp.core.types import FALSE_ALARMS
from camp.core.version import __version__
from camp.data.images import UnreadableImageError

MAX_BYTES = 64 << 20
"""Size limit of a picture."""
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


def prediction_app(
    model_of: Callable[[], Model], about: str, hosts: frozenset[str], keeper: UnknownKeeper | None = None
) -> FastAPI:
    """Make the HTTP application. Requests for other hosts, and requests from other web pages, are refused.

    Args:
        model_of: Returns the present model; called with every request.
        about: A sentence for the page that documents the interface.
        hosts: Host headers that are accepted.
        keeper: Keeps unknown images, if given.
    """
    # FastAPI's own pages load scripts from outside hosts.
    app = FastAPI(title="CAMP", version=__version__, description=about, docs_url=None, redoc_url=None)
    app.add_middleware(RequestLimits, max_body=MAX_BYTES)
    app.add_middleware(Guard, hosts=hosts)
    # One image at a time uses all cores; a huge one takes hundreds of megabytes.
    one_at_a_time = threading.Lock()

    def answer(data: bytes, file: str) -> Prediction:
        with one_at_a_time:
            model = model_of()
            return predict_image(model, data, file, keep_with(keeper, model) if keeper else None)

    @app.exception_handler(CampError)
    async def not_ready(request: Request, error: CampError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=503)

    @app.post(
        "/predict",
        summary="Recognise a picture",
        response_description="The predicted category.",
        responses={
            400: {"model": Fault, "description": "The body cannot be read as a picture; the reason."},
            413: {"model": Fault, "description": f"The body is larger than {MAX_BYTES >> 20} MB."},
            415: {"model": Fault, "description": "The content type is not that of a picture."},
            503: {"model": Fault, "description": "There is nothing to recognise yet."},
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
        data = await _body(request)
        try:
            return await run_in_threadpool(answer, data, file)
        except UnreadableImageError as fault:
            raise HTTPException(400, f"The body cannot be read as a picture: {fault}.") from fault

    @app.get("/categories", summary="The categories", response_description="All categories.")
    def categories() -> list[CategoryAnswer]:
        """In no particular order. Ids never change, names may."""
        model = model_of()
        return [
            CategoryAnswer(id, model.title(i), model.names[i] is not None) for i, id in enumerate(model.ids)
        ]

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


async def _body(request: Request) -> bytes:
    """Read the body of a request; refuse it if it is of another type."""
    kind = request.headers.get("content-type", BINARY).partition(";")[0].strip().lower()
    if not kind.startswith("image/") and kind != BINARY:
        raise HTTPException(
            415, f"The content type is {kind}; send the picture as the body, with image/jpeg or {BINARY}."
        )
    return await request.body()


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
