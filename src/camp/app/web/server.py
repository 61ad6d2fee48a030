"""A local web server for one person: bound to 127.0.0.1, running until Ctrl-C."""

import contextlib
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from camp.app.web.guard import OPEN
from camp.app.web.limits import server_config
from camp.app.web.one_time_code import OneTimeCode, redirect_file
from camp.core.errors import CampError

ADDRESS = "127.0.0.1"
SECONDS_TO_FINISH = 3
"""Time that Ctrl-C gives to unfinished requests."""


def serve(
    app_of: Callable[[frozenset[str]], ASGIApp], port: int | None, path: str, code: OneTimeCode | None = None
) -> None:
    """Print the address and serve until Ctrl-C.

    Args:
        app_of: Makes the application from the Host headers that `camp.app.web.guard.Guard` accepts.
        port: The port, or None for a free one.
        path: End of the address.
        code: If given, a browser is opened, which this code admits.
    """
    with _listening(port) as listener, contextlib.ExitStack() as files:
        bound = listener.getsockname()[1]
        address = f"http://{ADDRESS}:{bound}{path}"
        app = app_of(frozenset({f"{ADDRESS}:{bound}", f"localhost:{bound}"}))
        config = server_config(app)
        config.timeout_graceful_shutdown = SECONDS_TO_FINISH
        print(address, flush=True)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _exit)  # raised again by uvicorn after its shutdown
        if code is not None:
            # The socket listens already, so that a fast browser is not refused.
            file = files.enter_context(redirect_file(f"http://{ADDRESS}:{bound}{OPEN}?code={code.text}"))
            threading.Thread(target=_show, args=(file, code), daemon=True).start()
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


def _show(file: Path, code: OneTimeCode) -> None:
    """Open a redirect file in a browser; remove it when its code was used or has expired."""
    with contextlib.suppress(Exception):  # the address was printed and can be opened by hand
        webbrowser.open(file.as_uri())
    code.wait()
    file.unlink(missing_ok=True)


def _exit(number: int, frame: FrameType | None) -> None:
    """End the program in the usual way, so that files are removed."""
    raise SystemExit(128 + number)
