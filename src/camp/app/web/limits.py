"""Limits of what a client may send and how long it may take, for the local servers.

The server itself waits without a limit for the rest of a request, and holds every connection until then.
"""

import asyncio
from dataclasses import dataclass

import h11
import uvicorn
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEADERS = 100
MAX_HEADER_BYTES = 16 << 10
"""Number and size of the headers of a request, together with its address. Browsers send the cookies of every server of
the machine."""
FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections, in seconds but for their number."""

    headers: float = 30
    """Time until the headers of a request are complete, from the connection or the last answer on."""
    body: float = 60
    """Time until the body of a request is complete."""
    answer: float = 60
    """Time for which a client may leave an answer unread."""
    idle: int = 30
    """Time that a connection stays open after an answer; longer than the usual wait after an answer 503."""
    connections: int = 512
    """Number of open connections; most systems allow a process 1,024 open files."""


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 that closes connections whose client does not finish a request, or does not read an answer."""

    limits = ConnectionLimits()
    _awaited: object = None
    _request_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; refuse the connection if there are too many."""
        super().connection_made(transport)
        self._watch_request()
        if len(self.connections) > self.limits.connections:
            transport.write(FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._request_timer = self._replaced(self._request_timer)
        self._answer_timer = self._replaced(self._answer_timer)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Process what was received, and begin to wait for what comes next."""
        super().handle_events()
        self._watch_request()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._answer_timer = self._replaced(self._answer_timer, self.limits.answer)

    def resume_writing(self) -> None:
        """Stop waiting for the client to read."""
        super().resume_writing()
        self._answer_timer = self._replaced(self._answer_timer)

    def _watch_request(self) -> None:
        """Start the timer of the part of a request that is awaited now, once for each part."""
        awaited = self.conn.their_state
        if awaited is self._awaited or self.transport.is_closing():
            return
        self._awaited = awaited
        seconds = {h11.IDLE: self.limits.headers, h11.SEND_BODY: self.limits.body}.get(awaited)
        self._request_timer = self._replaced(self._request_timer, seconds)

    def _replaced(
        self, timer: asyncio.TimerHandle | None, seconds: float | None = None
    ) -> asyncio.TimerHandle | None:
        """Cancel a timer; return another one, after which the connection is closed, if it has `seconds`."""
        if timer is not None:
            timer.cancel()
        return None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


def server_config(app: ASGIApp, limits: ConnectionLimits | None = None) -> uvicorn.Config:
    """Return the configuration of a server that keeps to `limits`."""
    limits = limits or ConnectionLimits()
    return uvicorn.Config(
        app,
        http=type("Protocol", (LimitedProtocol,), {"limits": limits}),
        ws="none",
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=limits.idle,
        log_level="error",  # clients cause warnings
        server_header=False,
    )


class RequestLimits:
    """ASGI middleware that refuses requests with too many headers, or with too large a body.

    A body is refused where the application reads it, before more of it is read than `max_body` bytes.
    """

    def __init__(self, app: ASGIApp, max_body: int) -> None:
        self.app, self.max_body = app, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on with a limited body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        size += len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
            sentence = (
                f"A request has at most {MAX_HEADERS} headers of {MAX_HEADER_BYTES >> 10} kB together.\n"
            )
            await PlainTextResponse(sentence, status_code=431)(scope, receive, send)
            return
        await self.app(scope, self._limited(receive, dict(headers).get(b"content-length", b"")), send)

    def _limited(self, receive: Receive, announced: bytes) -> Receive:
        length = int(announced) if announced.isdigit() else 0
        counted = 0

        async def limited() -> Message:
            nonlocal counted
            if length > self.max_body:
                raise self._too_large()
            message = await receive()
            counted += len(message.get("body", b""))
            if counted > self.max_body:
                raise self._too_large()
            return message

        return limited

    def _too_large(self) -> HTTPException:
        size = f"{self.max_body >> 20} MB" if self.max_body >> 20 else f"{self.max_body} bytes"
        return HTTPException(413, f"The body is larger than {size}; send a smaller one.")
