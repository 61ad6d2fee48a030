"""Access control of the local pages.

A page on 127.0.0.1 can be reached by every web site that the same browser has open. A foreign site that resolves its
own name to 127.0.0.1 is recognised by the Host header, one that sends cross-site requests by the Origin header, and
another user of the machine by the missing token.
"""

import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from camp.app.web.one_time_code import OneTimeCode

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": browsers then send `Origin: null` with a form of our own.
    "Referrer-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    # Another local server is the same site to a browser, cookies included, but not the same origin.
    "Cross-Origin-Resource-Policy": "same-origin",
}
READING = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""
OPEN = "/open"
"""Path at which a one-time code is exchanged for the cookie."""
CONTINUE = '<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>CAMP</title>'
"""Not a redirect: the cookie is sent with a request of our own page only, and the request with the code comes from
another one, the private file."""


class Guard:
    """ASGI middleware that refuses foreign hosts, foreign origins and, if a token is set, requests without it.

    The token comes in the address once (`?token=`), or is given in exchange for a one-time code (`/open?code=`). From
    then on it is in a cookie, which is named after the port: two workspaces can be open in one browser.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: frozenset[str],
        token: str | None = None,
        code: OneTimeCode | None = None,
    ) -> None:
        self.app = app
        self.hosts = hosts
        self.token = token
        self.code = code
        self.origins = frozenset(f"http://{host}" for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, redirect it to the address without the token, or pass it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._answer(Request(scope))
        await (answer or self.app)(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        """Return the answer of the guard, or None to pass the request on."""
        reason = self._foreign(request.headers, request.method)
        if reason is not None:
            return _refused(reason)
        if self.token is None:
            return None
        if request.method == "GET" and request.url.path == OPEN and self.code is not None:
            if not self.code.redeem(request.query_params.get("code", "")):
                return _refused(
                    "This address was used already or is too old: open the address that `camp review` printed."
                )
            return _with_cookie(HTMLResponse(CONTINUE), request, self.token)
        given = request.query_params.get("token")
        if given is not None and request.method in READING and self._is_token(given):
            # The token must not stay in the address, which people copy, bookmark and show to others.
            answer = RedirectResponse(request.url.remove_query_params("token"), status_code=303)
            return _with_cookie(answer, request, given)
        if not self._is_token(request.cookies.get(_cookie_name(request), "")):
            return _refused("This page needs its token: open the address that `camp review` printed.")
        return None

    def _foreign(self, headers: Headers, method: str) -> str | None:
        """Why the request does not come from our own page, or None."""
        if headers.get("host", "").lower() not in self.hosts:
            return f"This server answers to {' and '.join(sorted(self.hosts))} only."
        if "origin" in headers:
            ours = headers["origin"].lower() in self.origins
        elif method in READING or headers.get("sec-fetch-site") == "same-origin":
            ours = True
        elif "sec-fetch-site" in headers:
            ours = False  # a browser, and another page than ours
        else:
            # Neither header: a program such as curl, or an old browser, which says where it comes from.
            referer = headers.get("referer")
            ours = referer is None or any(referer.lower().startswith(f"{site}/") for site in self.origins)
        return None if ours else "Requests from other web pages are refused."

    def _is_token(self, given: str) -> bool:
        return self.token is not None and secrets.compare_digest(given.encode(), self.token.encode())


def _cookie_name(request: Request) -> str:
    return f"camp-token-{request.headers['host'].rpartition(':')[2]}"


def _with_cookie(answer: Response, request: Request, token: str) -> Response:
    answer.set_cookie(_cookie_name(request), token, path="/", httponly=True, samesite="strict")
    return answer


def _refused(sentence: str) -> Response:
    return PlainTextResponse(sentence + "\n", status_code=403)
