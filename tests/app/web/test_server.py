"""A real server: where it listens, what it says, how it ends."""

import signal
import socket
import subprocess
import sys

import httpx
import pytest
from starlette.types import ASGIApp

from camp.app.web import server
from camp.core.errors import CampError

PROGRAM = """
import webbrowser
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from camp.app.web.guard import Guard
from camp.app.web.one_time_code import OneTimeCode
from camp.app.web.server import serve

def refuse(address):
    raise OSError("no browser here")

webbrowser.open = refuse
page = Route("/", lambda request: PlainTextResponse("hello"))
serve(lambda hosts: Guard(Starlette(routes=[page]), hosts), None, "/?a=1", OneTimeCode())
print("done")
"""


def test_it_says_its_address_and_ends_with_ctrl_c() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        assert address.endswith("/?a=1")
        assert httpx.get(address, trust_env=False).text == "hello"
        foreign = httpx.get(address, headers={"Host": "evil.example"}, trust_env=False)
        assert foreign.status_code == 403
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (out, errors, process.returncode) == ("done\n", "", 0)


def never(hosts: frozenset[str]) -> ASGIApp:
    raise AssertionError("there is no port to serve on")


def test_a_port_in_use_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CampError, match=f"Port {port} of 127.0.0.1 cannot be used .* another --port"):
            server.serve(never, port, "/")


def test_a_number_that_is_no_port_is_a_sentence() -> None:
    with pytest.raises(CampError, match=r"Port 70000 .*0 to 65535"):
        server.serve(never, 70000, "/")
