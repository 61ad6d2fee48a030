"""What the page is told and what its decisions do, asked without a browser."""

import json
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from small_workspace import small_workspace

from camp.app.review.app import review_app
from camp.app.workspace.decisions import Named
from camp.app.workspace.history import standing
from camp.app.workspace.knowledge import DISCARDED, REVIEWED
from camp.app.workspace.storage import WorkspaceSettings
from camp.app.workspace.workspace import Workspace


def overview(page: TestClient) -> dict:
    answer = page.get("/api/overview")
    assert answer.status_code == 200
    return answer.json()


def cards(page: TestClient) -> dict[int, dict]:
    return {card["id"]: card for card in overview(page)["categories"]}


def send(page: TestClient, what: str, status: int = 200, **body: object) -> dict:
    answer = page.post(f"/api/{what}", json={"events": overview(page)["events"], **body})
    assert answer.status_code == status, answer.text
    return answer.json()


def decide(page: TestClient, kind: str, status: int = 200, **fields: object) -> dict:
    return send(page, "decide", status, decision={"kind": kind, **fields})


def test_the_page_is_served_with_all_its_files_and_nothing_from_elsewhere(page: TestClient) -> None:
    html = page.get("/").text
    assert "<title>digits · review</title>" in html
    assert page.get("/page/review.css").headers["content-type"].startswith("text/css")
    scripts, seen = ["review.js"], set()
    while scripts:
        name = scripts.pop()
        if name in seen:
            continue
        seen.add(name)
        answer = page.get(f"/page/{name}")
        assert answer.status_code == 200, name
        assert answer.headers["content-type"].startswith("text/javascript")
        assert "http://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in answer.text
        scripts += [
            line.split('"./')[1].split('"')[0] for line in answer.text.splitlines() if 'from "./' in line
        ]
    assert len(seen) > 5


def test_the_overview_counts_and_knows_what_needs_a_person(page: TestClient) -> None:
    told = overview(page)
    assert (told["pictures"], len(told["categories"]), told["unnamed"], told["events"]) == (200, 10, 6, 2)
    assert [9, 10] in told["alike"]
    assert told["last"]["folder"] == "february"
    by_need = sorted(told["categories"], key=lambda card: -card["need"])
    assert by_need[0]["id"] in (9, 10)
    assert "looks like" in by_need[0]["reason"]
    nought = cards(page)[1]
    assert nought["name"] == "nought"
    assert nought["label"] + nought["person"] + nought["found"] == nought["pictures"]
    assert nought["label"] > 0
    assert 0 < nought["sure"] <= 1
    assert all(card["near"] and card["id"] not in card["near"] for card in told["categories"])
    assert len(nought["typical"]) == 5


def test_pictures_come_by_page_each_once_in_every_order(page: TestClient, workspace: Workspace) -> None:
    rows = list(range(150))
    new = send(page, "make", rows=rows)["category"]
    for order in ("typical", "doubtful", "newest"):
        pages = [
            page.get(f"/api/category/{new}?order={order}&start={start}").json() for start in (0, 60, 120)
        ]
        assert [len(one["pictures"]) for one in pages] == [60, 60, 30]
        pictures = [picture for one in pages for picture in one["pictures"]]
        assert sorted(picture["row"] for picture in pictures) == rows
        assert {one["total"] for one in pages} == {150}
    assert [one["batch"] for one in pictures] == sorted((one["batch"] for one in pictures), reverse=True)
    assert {one["who"] for one in pictures} == {"person"}
    assert page.get("/api/category/999").status_code == 409
    assert page.get("/api/category/1?order=random").status_code == 422


def test_naming_is_an_event_and_stays(page: TestClient, workspace: Workspace) -> None:
    assert decide(page, "named", category=5, name="  four ")["said"] == "Category 5 is called “four”."
    assert cards(page)[5]["name"] == "four"
    event = workspace.events()[-1]
    assert event == Named(category=5, name="four").model_copy(update={"number": 3, "time": event.time})
    assert "is called" in overview(page)["history"][0]["said"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("one", "merge the two"),
        ("   ", "empty name"),
        ("unknown", "meaning of their own"),
        ("x" * 101, "at most 100"),
    ],
)
def test_a_name_that_can_not_be_given_is_a_sentence(
    page: TestClient, workspace: Workspace, name: str, sentence: str
) -> None:
    assert sentence in decide(page, "named", 409, category=5, name=name)["error"]
    assert len(workspace.events()) == 2


def test_merging_and_undoing(page: TestClient, workspace: Workspace) -> None:
    before = cards(page)
    decide(page, "merged", category=10, into=9)
    after = cards(page)
    assert 10 not in after
    assert after[9]["pictures"] == before[9]["pictures"] + before[10]["pictures"]
    assert send(page, "undo")["said"].startswith("Undone: category 10")
    assert cards(page) == before
    assert standing(workspace.events()) == []
    assert "nothing to undo" in send(page, "undo", 409)["error"]


def test_the_halves_that_were_shown_are_the_halves_that_are_made(page: TestClient) -> None:
    decide(page, "merged", category=2, into=1)
    shown = page.get("/api/category/1/halves").json()
    total = cards(page)[1]["pictures"]
    assert shown["stays"]["pictures"] + shown["leaves"]["pictures"] == total
    made = send(page, "split", category=1)["category"]
    after = cards(page)
    assert after[made]["pictures"] == shown["leaves"]["pictures"]
    assert after[1]["pictures"] == shown["stays"]["pictures"]
    assert after[made]["origin"] == "made"
    leaving = {tile["row"] for tile in shown["leaves"]["tiles"]}
    assert leaving <= {one["row"] for one in page.get(f"/api/category/{made}").json()["pictures"]}


def test_moving_to_a_new_category_with_a_name(page: TestClient, workspace: Workspace) -> None:
    made = send(page, "make", rows=[3, 5, 5, 4], name="seven")["category"]
    assert cards(page)[made] | {"name": "seven", "pictures": 3, "person": 3} == cards(page)[made]
    assert "already" in send(page, "make", 409, rows=[6], name="seven")["error"]
    assert "No picture" in decide(page, "moved", 409, rows=[], into=1)["error"]
    assert "not 4000" in decide(page, "moved", 409, rows=[4000], into=1)["error"]
    assert cards(page).keys() == {*range(1, 11), made}
    assert set(workspace.knowledge().images.source[[3, 4, 5]]) == {REVIEWED}


def test_discarding_everything_leaves_a_page_that_can_undo(page: TestClient, workspace: Workspace) -> None:
    decide(page, "discarded", rows=[0, 1])
    assert workspace.knowledge().images.category[0] == DISCARDED
    for id in cards(page):
        decide(page, "discarded", category=id)
    told = overview(page)
    assert (told["pictures"], told["discarded"], told["categories"]) == (0, 200, [])
    send(page, "undo")
    assert list(cards(page)) == [10]
    assert "either" in decide(page, "discarded", 409)["error"]


def test_what_changed_elsewhere_is_noticed_and_an_old_page_can_not_decide(
    page: TestClient, workspace: Workspace
) -> None:
    seen = overview(page)["events"]
    Workspace.open(Path(workspace.name)).decide(Named(category=6, name="five"))
    assert page.get("/api/events").json() == {"events": seen + 1}
    refused = page.post("/api/make", json={"events": seen, "rows": [1]})
    assert refused.status_code == 409
    assert "meanwhile" in refused.json()["error"]
    assert cards(page)[6]["name"] == "five"


def test_a_workspace_at_work_refuses_decisions(page: TestClient, workspace: Workspace) -> None:
    with Workspace.open(Path(workspace.name)).storage.lock():
        assert "Another process" in decide(page, "named", 409, category=5, name="four")["error"]
    decide(page, "named", category=5, name="four")


def test_numbers_after_decisions_are_those_of_a_fresh_look(page: TestClient, workspace: Workspace) -> None:
    decide(page, "merged", category=10, into=9)
    send(page, "make", rows=list(range(0, 60, 7)), name="seven")
    decide(page, "discarded", category=3)
    send(page, "undo")
    decide(page, "discarded", rows=[80, 81])
    with TestClient(review_app(Workspace.open(Path(workspace.name)))) as other:
        ours, fresh = overview(page), overview(other)
        assert ours["alike"] == fresh["alike"]
        for mine, theirs in zip(ours["categories"], fresh["categories"]):
            assert mine == theirs
        for id in (1, 9, 11):
            assert page.get(f"/api/category/{id}").json() == other.get(f"/api/category/{id}").json()


def test_the_map_is_bytes(page: TestClient, workspace: Workspace) -> None:
    images = workspace.knowledge().images
    answer = page.get("/api/map/positions")
    assert answer.headers["X-Events"] == "2"
    assert (np.frombuffer(answer.content, "<f4").reshape(-1, 2) == images.positions).all()
    categories = np.frombuffer(page.get("/api/map/categories").content, "<i4")
    assert (categories == images.category).all()


def test_batches_are_the_reports(page: TestClient) -> None:
    batches = page.get("/api/batches").json()["batches"]
    assert [one["folder"] for one in batches] == ["january", "february"]
    assert batches[1]["drift"]


def test_thumbnails_come_by_row_and_may_be_kept(page: TestClient) -> None:
    version = overview(page)["version"]
    answer = page.get(f"/thumbnails/{version}/0")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.content[:3] == b"\xff\xd8\xff"
    for path in (
        f"{version}/200",
        f"{version}/-1",
        "other/0",
        f"{version}/0.jpg",
        f"{version}/..%2f..%2fworkspace.json",
    ):
        assert page.get(f"/thumbnails/{path}").status_code in (404, 422), path


@pytest.mark.parametrize(
    "path",
    [
        "/page/../app.py",
        "/page/..%2fapp.py",
        "/page/%2e%2e/app.py",
        "/page/index.html",
        "/workspace.json",
        "/events.jsonl",
        "/thumbnails/..%2f..%2fworkspace.json",
        "//etc/passwd",
        "/page/%2fetc%2fpasswd",
        "/docs",
        "/openapi.json",
    ],
)
def test_no_other_file_is_served(page: TestClient, path: str) -> None:
    assert page.get(path).status_code == 404


def test_without_thumbnails_pictures_are_known_by_their_files(tmp_path: Path) -> None:
    workspace = small_workspace(tmp_path / "bare", count=60, thumbnails=False)
    with TestClient(review_app(workspace)) as page:
        picture = page.get("/api/category/1").json()["pictures"][0]
        assert picture["kept"] is False
        assert picture["file"].startswith("digits/")
        assert page.get(f"/thumbnails/{overview(page)['version']}/{picture['row']}").status_code == 404


@pytest.mark.parametrize(
    "body",
    [{}, {"category": 5}, {"category": "five", "name": "x"}, {"category": 5, "name": "x", "events": -1},
     {"category": 10**30, "name": "x"}, {"category": 5, "name": "\ud800"}],
)  # fmt: skip
def test_a_malformed_request_is_a_sentence(page: TestClient, workspace: Workspace, body: dict) -> None:
    answer = page.post(
        "/api/decide", content=json.dumps({"events": 2, "decision": {"kind": "named", **body}, **body})
    )
    assert answer.status_code in (409, 422)
    assert answer.json()["error"].endswith(".")
    assert len(workspace.events()) == 2


def test_a_workspace_that_has_learned_nothing_says_so(tmp_path: Path) -> None:
    with TestClient(review_app(Workspace.create(tmp_path / "new", WorkspaceSettings()))) as page:
        answer = page.get("/api/overview")
        assert answer.status_code == 409
        assert "learned nothing yet" in answer.json()["error"]


def test_what_is_different_is_not_asked_about_again(page: TestClient) -> None:
    a, b = overview(page)["alike"][0]
    decide(page, "apart", category=a, other=b)
    assert [a, b] not in overview(page)["alike"]
    assert "are different" in overview(page)["history"][0]["said"]
    send(page, "undo")
    assert [a, b] in overview(page)["alike"]


def test_every_decision_is_one_event_and_one_undo(page: TestClient, workspace: Workspace) -> None:
    """So that nothing between two events can leave half of it."""
    requests: list[tuple[str, dict[str, object]]] = [
        ("decide", {"decision": {"kind": "named", "category": 5, "name": "four"}}),
        ("decide", {"decision": {"kind": "merged", "category": 10, "into": 9}}),
        (
            "decide",
            {"decision": {"kind": "merged-several", "categories": [6, 10], "into": 9, "different": [7]}},
        ),
        ("decide", {"decision": {"kind": "discarded", "category": 5}}),
        ("make", {"rows": [0, 1], "name": "oval"}),
        ("split", {"category": 1}),
        ("name-group", {"rows": [0, 1], "name": "two", "category": 5, "main": True}),
        ("name-group", {"rows": [150, 151], "name": "four", "category": 5, "main": True}),
        ("name-group", {"rows": [0, 1], "name": "oval", "category": 1, "main": True}),
    ]
    for what, body in requests:
        before = overview(page)
        events = len(workspace.events())
        assert send(page, what, **body)["events"] == events + 1
        assert send(page, "undo")["events"] == events + 2
        after = overview(page)
        assert [(c["id"], c["title"], c["pictures"]) for c in after["categories"]] == [
            (c["id"], c["title"], c["pictures"]) for c in before["categories"]
        ]
    posts = {route.path for route in page.app.routes if "POST" in getattr(route, "methods", ())}  # type: ignore[attr-defined]
    kept = {"/api/kept/accept", "/api/kept/dismiss"}  # see test_review_kept
    assert posts == {f"/api/{what}" for what, _ in requests} | {"/api/undo"} | kept
