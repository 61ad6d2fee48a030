"""Clients that send too much or too slowly, over raw sockets to a real server."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from small_server import rest_of, serving, until
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from camp.app.web.limits import MAX_HEADER_BYTES, MAX_HEADERS, ConnectionLimits, RequestLimits

SHORT = ConnectionLimits(headers=0.3, body=0.3, answer=0.3, idle=1, connections=4)
LARGE = b"\0" * (32 << 20)


async def echo(request: Request) -> Response:
    try:
        body = await request.body()
    except ClientDisconnect:
        return Response()
    return PlainTextResponse(f"{len(body)} bytes")


def application(hosts: frozenset[str] = frozenset()) -> RequestLimits:
    routes = [
        Route("/", echo, methods=["GET", "POST"]),
        Route("/large", lambda request: Response(LARGE)),
        Route("/ignores", lambda request: PlainTextResponse("done"), methods=["POST"]),
    ]
    return RequestLimits(Starlette(routes=routes), max_body=1000)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(application, SHORT) as port:
        yield port


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        yield connection


def drip(connection: socket.socket, data: bytes) -> None:
    """Send something now and then until the server does not listen any more."""
    pause = threading.Event()
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(data)
            pause.wait(0.05)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: here\r\n",
        b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ],
    ids=["nothing", "headers", "body", "chunks"],
)
def test_a_request_that_is_never_finished_is_not_waited_for(port: int, begun: bytes) -> None:
    with connected(port) as connection:
        connection.sendall(begun)
        assert rest_of(connection) == b""


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n", b"A: b\r\n"),
        (b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 900\r\n\r\n", b"a"),
        (b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    ],
    ids=["headers", "body", "chunks"],
)
def test_a_slow_client_does_not_win_time(port: int, begun: bytes, more: bytes) -> None:
    with connected(port) as connection:
        connection.sendall(begun)
        drip(connection, more)


def test_a_body_that_the_answer_did_not_wait_for_has_an_end_too(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(b"POST /ignores HTTP/1.1\r\nHost: here\r\nContent-Length: 900\r\n\r\n")
        until(connection, b"done")
        drip(connection, b"a")


def test_the_next_request_of_a_connection_is_watched_as_well(port: int) -> None:
    with connected(port) as connection:
        for _ in range(2):
            connection.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\nabc")
            until(connection, b"3 bytes")
        connection.sendall(b"GET / HTTP/1.1\r\n")
        assert rest_of(connection) == b""


def test_an_answer_that_is_not_read_is_given_up(port: int) -> None:
    with connected(port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n")
        threading.Event().wait(1)
        assert len(rest_of(connection)) < len(LARGE)


def test_an_answer_that_is_read_slowly_but_read_is_complete() -> None:
    with serving(application) as port, connected(port) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        assert rest_of(connection).endswith(LARGE)


def test_too_many_connections_are_refused_and_the_others_are_served() -> None:
    with serving(application, ConnectionLimits(headers=1e3, connections=4)) as port:
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
        for one in held:  # the server has accepted them all
            one.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            until(one, b"0 bytes")
        with connected(port) as refused:
            answer = rest_of(refused)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1\r\n" in answer
        for one in held:
            one.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            until(one, b"0 bytes")
            one.close()


@pytest.mark.parametrize("line", [b"A: %s\r\n" % (b"b" * 70_000), b"A: b\r\n" * 9_000], ids=["large", "many"])
def test_headers_without_an_end_are_not_collected(port: int, line: bytes) -> None:
    with connected(port) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n" + line)
        answer = rest_of(connection)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))


@pytest.fixture
def client() -> TestClient:
    return TestClient(application())


@pytest.mark.parametrize(
    "headers",
    [
        {f"X-{number}": "a" for number in range(MAX_HEADERS + 1)},
        {"Cookie": "a" * (MAX_HEADER_BYTES + 1)},
    ],
)
def test_too_many_headers_are_431(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.get("/", headers=headers)
    assert answer.status_code == 431
    assert answer.text == "A request has at most 100 headers of 16 kB together.\n"


def test_too_long_an_address_is_431(client: TestClient) -> None:
    assert client.get("/", params={"a": "b" * MAX_HEADER_BYTES}).status_code == 431


def test_a_body_is_read_up_to_its_limit(client: TestClient) -> None:
    assert client.post("/", content=b"a" * 1000).text == "1000 bytes"
    for content in (b"a" * 1001, iter([b"a" * 500, b"b" * 501])):
        answer = client.post("/", content=content)
        assert answer.status_code == 413
        assert answer.text == "The body is larger than 1000 bytes; send a smaller one."


def test_a_body_without_an_end_is_refused_while_it_comes(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"400\r\n" + b"a" * 0x400 + b"\r\n")
        answer = until(connection, b"The body is larger than 1000 bytes; send a smaller one.")
        assert answer.startswith(b"HTTP/1.1 413 ")
