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
"""How long Ctrl-C waits for requests under way."""


def serve(
    app_of: Callable[[frozenset[str]], ASGIApp],
    port: int | None,
    path: str,
    open_browser: bool,
    say: Callable[[str], None],
) -> None:
    """Serve on `port`, or on a free one, until Ctrl-C; `say` is told the full address, which ends in `path`.

    `app_of` is given the Host headers under which the server can be reached, for `camp.app.web.guard.Guard`.
    """
    with _listening(port) as listener:
        bound = listener.getsockname()[1]
        address = f"http://{ADDRESS}:{bound}{path}"
        app = app_of(frozenset({f"{ADDRESS}:{bound}", f"localhost:{bound}"}))
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                server_header=False,
                timeout_graceful_shutdown=SECONDS_TO_FINISH,
            )
        )
        say(address)
        if open_browser:
            # The socket listens already: a quick browser waits for its answer and is not turned away.
            threading.Thread(target=_show, args=(address,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # which uvicorn passes on once it has shut down
            server.run(sockets=[listener])


def _listening(port: int | None) -> socket.socket:
    """A listening socket."""
    try:
        return socket.create_server((ADDRESS, port or 0))
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "ports go from 0 to 65535"
        raise CampError(
            f"Port {port} of {ADDRESS} can not be used ({reason}); give another --port, or none for a free one."
        ) from error


def _show(address: str) -> None:
    with contextlib.suppress(Exception):  # the address has been said; a person can open it by hand
        webbrowser.open(address)
