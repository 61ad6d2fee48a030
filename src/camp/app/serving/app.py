"""Recognition over HTTP, for programs on the same machine; the pages load nothing from anywhere else."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool

from camp.app.web.guard import Guard
from camp.app.workspace.folder import Workspace
from camp.app.workspace.load_model import open_model
from camp.app.workspace.model import Model
from camp.app.workspace.prediction import Prediction, predict_picture
from camp.core.errors import CampError
from camp.core.version import __version__
from camp.data.images import BadImage

MAX_BYTES = 64 << 20
"""The largest picture that is taken."""
BINARY = "application/octet-stream"


@dataclass(frozen=True)
class Category:
    """A category that pictures can be recognised as."""

    id: int
    """Permanent."""
    name: str
    """As predictions call it."""
    named: bool
    """Whether a person gave it that name."""


@dataclass(frozen=True)
class Fault:
    """Why there is no answer."""

    detail: str


def prediction_app(model_of: Callable[[], Model], about: str, hosts: frozenset[str]) -> FastAPI:
    """The HTTP interface; it asks `model_of` for the model with every request, so that it may have learned since.

    `about` is a sentence for the page that documents it. Requests for other hosts than `hosts`, and requests from
    foreign web pages, are refused.
    """
    # FastAPI's own pages load scripts from outside hosts.
    app = FastAPI(title="CAMP", version=__version__, description=about, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, hosts=hosts)
    # One picture at a time has all cores and, as a huge one takes hundreds of megabytes, the memory.
    one_at_a_time = threading.Lock()

    def answer(data: bytes, file: str) -> Prediction:
        with one_at_a_time:
            return predict_picture(model_of(), data, file)

    @app.exception_handler(CampError)
    async def not_ready(request: Request, error: CampError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=503)

    @app.post(
        "/predict",
        summary="Recognise a picture",
        response_description="What is said about it.",
        responses={
            400: {"model": Fault, "description": "The body is no picture that can be read; the reason."},
            413: {"model": Fault, "description": f"The body is larger than {MAX_BYTES >> 20} MB."},
            415: {"model": Fault, "description": "The content type is no picture's."},
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
        """The body is the picture itself: JPEG, PNG, WebP, GIF, BMP, TIFF or PPM. A file name given in the address comes back.

        For a model over vectors the body is one of them: its numbers as little-endian float32.
        """
        data = await _body(request)
        try:
            return await run_in_threadpool(answer, data, file)
        except BadImage as fault:
            raise HTTPException(400, f"The body is no picture that can be read: {fault}.") from fault

    @app.get("/categories", summary="The categories", response_description="All that there are.")
    def categories() -> list[Category]:
        """In no order that means anything; ids never change, names may."""
        model = model_of()
        return [Category(id, model.called(i), model.names[i] is not None) for i, id in enumerate(model.ids)]

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    def documentation(request: Request) -> HTMLResponse:
        return HTMLResponse(_page(app, str(request.base_url)))

    return app


async def _body(request: Request) -> bytes:
    """The body of a request, refused as soon as it is seen to be too large or of another kind."""
    kind = request.headers.get("content-type", BINARY).partition(";")[0].strip().lower()
    if not kind.startswith("image/") and kind != BINARY:
        raise HTTPException(
            415, f"The content type is {kind}; send the picture as the body, with image/jpeg or {BINARY}."
        )
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BYTES:
            raise HTTPException(413, f"The picture is larger than {MAX_BYTES >> 20} MB; send a smaller one.")
    return bytes(data)


def _page(app: FastAPI, address: str) -> str:
    """The documentation, from the OpenAPI schema."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("serving.html").render(schema=app.openapi(), address=address.rstrip("/"))


def latest_model(workspace: Workspace) -> Callable[[], Model]:
    """A function that gives the model of `workspace` as it is now; it is opened anew when something was learned or decided."""
    held: list[tuple[int, Model]] = []

    def model() -> Model:
        count = len(workspace.events())
        if not held or held[0][0] != count:
            held[:] = [(count, open_model(workspace))]
        return held[0][1]

    return model
