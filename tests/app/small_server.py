"""A real server in a thread, and raw sockets to it."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from camp.app.web.limits import ConnectionLimits, server_config


@contextlib.contextmanager
def serving(
    app_of: Callable[[frozenset[str]], ASGIApp], limits: ConnectionLimits | None = None
) -> Iterator[int]:
    """Serve on a free port of this machine, which is given; `app_of` makes the application for its Host headers."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        port: int = listener.getsockname()[1]
        server = uvicorn.Server(server_config(app_of(frozenset({f"127.0.0.1:{port}"})), limits))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(20)


def until(connection: socket.socket, end: bytes) -> bytes:
    """Return what the server sends up to `end`, which it may do in several parts."""
    connection.settimeout(20)
    received = b""
    while not received.endswith(end):
        data = connection.recv(1 << 16)
        assert data, f"{received!r} and then nothing, where {end!r} was expected"
        received += data
    return received


def rest_of(connection: socket.socket) -> bytes:
    """Return all that the server sends until it ends the connection."""
    connection.settimeout(20)
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            received += data
    return received
