"""Who gets past the guard, and what every answer carries."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from camp.app.web.guard import HEADERS, Guard
from camp.app.web.one_time_code import OneTimeCode

HOST = "127.0.0.1:8123"
OURS = f"http://{HOST}"
TOKEN = "s3cret"


def echo(request: Request) -> Response:
    return PlainTextResponse(f"{request.method} {request.url.query}")


def kept(request: Request) -> Response:
    return PlainTextResponse("picture", headers={"Cache-Control": "max-age=60"})


def client(token: str | None = None, host: str = HOST) -> TestClient:
    methods = ["GET", "POST", "PUT", "DELETE"]
    app = Starlette(routes=[Route("/page", echo, methods=methods), Route("/kept", kept)])
    hosts = frozenset({HOST, "localhost:8123"})
    return TestClient(Guard(app, hosts, token), base_url=f"http://{host}", follow_redirects=False)


def admitted() -> TestClient:
    browser = client(TOKEN)
    browser.get("/page", params={"token": TOKEN})
    return browser


@pytest.mark.parametrize("host", [HOST, "localhost:8123", "LOCALHOST:8123"])
def test_our_own_addresses_are_answered(host: str) -> None:
    assert client(host=host).get("/page").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:9", "evil.example:8123", ""])
def test_a_foreign_host_is_refused(host: str) -> None:
    answer = client().get("/page", headers={"Host": host})
    assert answer.status_code == 403
    assert answer.text == "This server answers to 127.0.0.1:8123 and localhost:8123 only.\n"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9", f"https://{HOST}", f"{OURS}.evil.example"]
)
def test_a_foreign_origin_is_refused_even_with_the_cookie(method: str, origin: str) -> None:
    answer = admitted().request(method, "/page", headers={"Origin": origin})
    assert answer.status_code == 403
    assert answer.text == "Requests from other web pages are refused.\n"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": OURS},
        {"Origin": "http://localhost:8123"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Referer": f"{OURS}/page"},
        {},  # a program
    ],
)
def test_our_own_page_and_programs_get_in(method: str, headers: dict[str, str]) -> None:
    assert admitted().request(method, "/page", headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Referer": "http://evil.example/"},
        {"Referer": f"{OURS}.evil.example/"},
    ],
)
def test_another_page_changes_nothing(method: str, headers: dict[str, str]) -> None:
    assert admitted().request(method, "/page", headers=headers).status_code == 403


def test_the_token_moves_from_the_address_into_a_cookie() -> None:
    browser = client(TOKEN)
    answer = browser.get(f"/page?a=1&token={TOKEN}&b=2")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{OURS}/page?a=1&b=2"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"camp-token-8123={TOKEN};")
    assert {part.strip().lower() for part in cookie.split(";")[1:]} == {
        "httponly",
        "path=/",
        "samesite=strict",
    }
    assert browser.get(answer.headers["location"]).text == "GET a=1&b=2"


@pytest.mark.parametrize("given", ["", "?token=", "?token=wrong", "?token=s3cre", "?token=%C3%A9"])
def test_without_the_token_nothing_is_shown(given: str) -> None:
    answer = client(TOKEN).get(f"/page{given}")
    assert answer.status_code == 403
    assert "open the address that `camp review` printed" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("name", ["camp-token", "camp-token-8124", "other"])
def test_the_cookie_of_another_port_does_not_count(name: str) -> None:
    assert client(TOKEN).get("/page", headers={"Cookie": f"{name}={TOKEN}"}).status_code == 403


def with_code(code: OneTimeCode) -> TestClient:
    app = Starlette(routes=[Route("/page", echo), Route("/open", echo)])
    return TestClient(Guard(app, frozenset({HOST}), TOKEN, code), base_url=OURS, follow_redirects=False)


def test_a_code_is_exchanged_for_the_cookie_once() -> None:
    code = OneTimeCode()
    first, second = with_code(code), with_code(code)
    # As a browser asks that was sent by a file.
    answer = first.get("/open", params={"code": code.text}, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200
    assert answer.headers["set-cookie"].startswith(f"camp-token-8123={TOKEN};")
    assert "SameSite=strict" in answer.headers["set-cookie"]
    assert code.text not in answer.text
    assert TOKEN not in answer.text
    assert 'content="0; url=/"' in answer.text
    assert first.get("/page").status_code == 200
    again = second.get("/open", params={"code": code.text})
    assert again.status_code == 403
    assert "used already or is too old: open the address that `camp review` printed" in again.text
    assert second.get("/page").status_code == 403


@pytest.mark.parametrize("given", ["", "?code=", "?code=wrong", "?token=wrong", f"?code={TOKEN}"])
def test_a_guess_admits_nobody_and_does_not_use_up_the_code(given: str) -> None:
    code = OneTimeCode()
    browser = with_code(code)
    answer = browser.get(f"/open{given}")
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    assert browser.head("/open", params={"code": code.text}).status_code == 403
    assert browser.post("/open", params={"code": code.text}).status_code == 403
    assert browser.get("/page", params={"code": code.text}).status_code == 403
    assert (
        browser.get("/open", params={"code": code.text}, headers={"Host": "evil.example"}).status_code == 403
    )
    assert browser.get("/open", params={"code": code.text}).status_code == 200


def test_an_old_code_admits_nobody() -> None:
    code = OneTimeCode(lifetime=0)
    assert with_code(code).get("/open", params={"code": code.text}).status_code == 403


def test_the_policy_allows_no_inline_script_and_nothing_from_elsewhere() -> None:
    directives = dict(part.split(" ", 1) for part in HEADERS["Content-Security-Policy"].split("; "))
    assert directives["default-src"] == "'self'"
    assert "script-src" not in directives
    assert (directives["base-uri"], directives["object-src"], directives["frame-ancestors"]) == (
        "'none'",
    ) * 3
    assert directives["form-action"] == "'self'"


def test_a_change_needs_the_cookie() -> None:
    assert client(TOKEN).post("/page", params={"token": TOKEN}).status_code == 403


def test_every_answer_carries_the_headers() -> None:
    browser = admitted()
    for answer in (browser.get("/page"), browser.get("/nowhere"), client(TOKEN).get("/page")):
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert answer.headers["cache-control"] == "no-store"
    assert browser.get("/kept").headers["cache-control"] == "max-age=60"


def test_web_sockets_are_closed() -> None:
    with pytest.raises(WebSocketDisconnect), client().websocket_connect("/page"):
        pass
