"""A local web server for one person: bound to 127.0.0.1, running until Ctrl-C."""

import contextlib
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from camp.core.errors import CampError

ADDRESS = "127.0.0.1"
SECONDS_TO_FINISH = 3
"""Time that Ctrl-C gives to unfinished requests."""


def serve(
    app_of: Callable[[frozenset[str]], ASGIApp], port: int | None, path: str, open_browser: bool
) -> None:
    """Print the address and serve until Ctrl-C.

    Args:
        app_of: Makes the application from the Host headers that `camp.app.web.guard.Guard` accepts.
        port: The port, or None for a free one.
        path: End of the address.
        open_browser: Whether to open the address in a browser.
    """
    with _listening(port) as listener:
        bound = listener.getsockname()[1]
        address = f"http://{ADDRESS}:{bound}{path}"
        app = app_of(frozenset({f"{ADDRESS}:{bound}", f"localhost:{bound}"}))
        config = uvicorn.Config(
            app, log_level="warning", server_header=False, timeout_graceful_shutdown=SECONDS_TO_FINISH
        )
        print(address, flush=True)
        if open_browser:
            # The socket listens already, so that a fast browser is not refused.
            threading.Thread(target=_show, args=(address,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # raised again by uvicorn after its shutdown
            uvicorn.Server(config).run(sockets=[listener])


def _listening(port: int | None) -> socket.socket:
    """A listening socket."""
    try:
        return socket.create_server((ADDRESS, port or 0))
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "ports go from 0 to 65535"
        raise CampError(
            f"Port {port} of {ADDRESS} cannot be used ({reason}); give another --port, or none for a free one."
        ) from error


def _show(address: str) -> None:
    with contextlib.suppress(Exception):  # the address was printed and can be opened by hand
        webbrowser.open(address)
