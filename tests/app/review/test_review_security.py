"""Names from strangers, foreign pages and large requests at the review page, with the guard before it."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from playwright.sync_api import expect, sync_playwright
from small_server import serving
from small_workspace import small_workspace

from camp.app.review import app as review
from camp.app.review.app import review_app
from camp.app.web.guard import Guard
from camp.app.workspace.decisions import Named
from camp.app.workspace.workspace import Workspace

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOST, TOKEN = "127.0.0.1:8123", "a-token-of-this-test"
MARKUP = """<img src=x onerror="document.title='owned'">"""


@pytest.fixture
def guarded(workspace: Workspace) -> Iterator[TestClient]:
    app = Guard(review_app(workspace), frozenset({HOST}), TOKEN)
    with TestClient(app, base_url=f"http://{HOST}", cookies={"camp-token-8123": TOKEN}) as client:
        yield client


def requests_of(workspace: Workspace) -> list[tuple[str, str]]:
    """Method and path of every endpoint."""
    found = [
        (method, re.sub(r"\{\w+\}", "1", route.path))
        for route in review_app(workspace).routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods)
    ]
    assert len(found) > 15
    return found


def test_every_endpoint_is_behind_the_guard(workspace: Workspace, guarded: TestClient) -> None:
    for method, path in requests_of(workspace):
        assert guarded.request(method, path, headers={"Host": "evil.example"}).status_code == 403, path
        assert guarded.request(method, path, headers={"Origin": "http://evil.example"}).status_code == 403
        if method == "POST":
            assert guarded.post(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    guarded.cookies.clear()
    for method, path in requests_of(workspace):
        assert guarded.request(method, path).status_code == 403, path
    assert len(workspace.events()) == 2


def test_too_large_a_decision_is_a_sentence(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "MAX_BODY", 1000)
    with TestClient(review_app(workspace)) as page:
        for method, path in requests_of(workspace):
            if method == "POST":
                answer = page.post(path, content=b" " * 1001)
                assert answer.status_code == 413, path
                assert answer.json() == {"error": "The body is larger than 1000 bytes; send a smaller one."}


@pytest.mark.parametrize(
    "digest", ["..%2f..%2fworkspace.json", "%2e%2e", "a" * 31 + "%2f", "A" * 32, "a" * 33]
)
def test_thumbnails_of_kept_pictures_are_found_by_digest_only(page: TestClient, digest: str) -> None:
    assert page.get(f"/thumbnails/kept/{digest}").status_code in (404, 422)


def test_the_page_has_no_inline_script_and_escapes_its_name(tmp_path: Path) -> None:
    workspace = small_workspace(tmp_path / "<script>alert(1)<", count=60, thumbnails=False)
    with TestClient(review_app(workspace)) as page:
        html = page.get("/").text
    assert "&lt;script&gt;alert(1)&lt;" in html
    assert re.findall(r"<script[^>]*>[^<]*", html) == ['<script type="module" src="/page/review.js">']
    assert not re.search(r"<[^>]*\son\w+=", html)
    assert "javascript:" not in html


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")
def test_names_with_markup_are_text_in_a_browser(workspace: Workspace) -> None:
    for category in (1, 5):
        workspace.decide(Named(category=category, name=f"{MARKUP}{category}"))
    app = review_app(Workspace.open(Path(workspace.name)))
    with serving(lambda hosts: Guard(app, hosts, TOKEN)) as port, sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = opened.new_page()
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        for view in ("#/categories", "#/map", "#/batches", "#/category/1", "#/"):
            page.goto(f"http://127.0.0.1:{port}/?token={TOKEN}{view}")
            expect(page.locator("main")).not_to_have_attribute("aria-busy", "true")
            if view == "#/categories":
                expect(page.locator('.card[data-id="5"] .name')).to_have_text(f"{MARKUP}5")
            assert page.locator('img[src="x"]').count() == 0
            assert page.title() != "owned"
        page.locator("#history").click()
        expect(page.locator("body")).to_contain_text(f"{MARKUP}5")
        assert page.locator('img[src="x"]').count() == 0
        # What the policy is for: markup that got in nevertheless would not run.
        page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', `<img src=y onerror=\"document.title='owned'\">`)"
        )
        page.wait_for_function("() => document.querySelector('img[src=y]').complete")
        assert page.title() != "owned"
        assert any("Content Security Policy" in fault for fault in faults)
        opened.close()
