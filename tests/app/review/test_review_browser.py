"""A person at the page: a real browser, a real server behind the guard, a real workspace."""

import contextlib
import http.server
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright
from small_workspace import small_workspace
from starlette.types import Message, Receive, Scope, Send

from camp.app.prediction.keep_unknown import unknown_keeper
from camp.app.review.app import review_app
from camp.app.web.guard import Guard
from camp.app.workspace.decisions import Decision, Elsewhere, Named, Propagated
from camp.app.workspace.history import standing
from camp.app.workspace.kept_unknown import tip_fingerprint
from camp.app.workspace.workspace import Workspace

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
]
TOKEN = "a-token-of-this-test"


@dataclass
class Site:
    """A served workspace."""

    workspace: Workspace
    address: str
    posts: list[tuple[str, int]]
    """Paths that something was sent to, and the status of the answer."""

    @property
    def decisions(self) -> list[Decision]:
        return standing(self.workspace.events())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_workspace(tmp_path_factory.mktemp("made") / "digits", count=200).storage.path


@pytest.fixture
def site(made: Path, tmp_path: Path) -> Iterator[Site]:
    shutil.copytree(made, tmp_path / "digits")
    workspace = Workspace.open(tmp_path / "digits")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        app = Guard(review_app(Workspace.open(Path(workspace.name))), frozenset({host}), TOKEN)
        posts: list[tuple[str, int]] = []

        async def noting(scope: Scope, receive: Receive, send: Send) -> None:
            async def note(message: Message) -> None:
                if message["type"] == "http.response.start" and scope["method"] == "POST":
                    posts.append((scope["path"], message["status"]))
                await send(message)

            await app(scope, receive, note)

        server = uvicorn.Server(uvicorn.Config(noting, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield Site(workspace, f"http://{host}", posts)
        finally:
            server.should_exit = True
            thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """The opened page; whatever it complains about in the console fails the test, but for refused decisions."""
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(f"{site.address}/?token={TOKEN}#/categories")
    expect(page.locator(".card").first).to_be_visible()
    yield page
    words = page.locator("body").inner_text()
    context.close()
    assert not any(slip in words for slip in ("undefined", "NaN", "null", "[object"))
    assert [fault for fault in faults if "409 (Conflict)" not in fault] == []


def card(page: Page, id: int):  # type: ignore[no-untyped-def]
    return page.locator(f'.card[data-id="{id}"]')


def toast(page: Page, text: str) -> None:
    expect(page.locator("#toast")).to_contain_text(text)


def test_the_overview_shows_what_needs_a_person_first(page: Page) -> None:
    expect(page.locator(".summary .lead")).to_have_text(
        "200 pictures in 10 categories. 6 of them have no name yet, "
        + page.locator(".summary .lead b").nth(3).inner_text()
        + " pictures are doubtful."
    )
    assert "token" not in page.url
    assert page.locator(".card").first.get_attribute("data-id") in ("9", "10")
    page.locator("select").select_option("name")
    expect(page.locator(".card .name").first).to_have_text("nought")
    page.locator("#filter").fill("category 1")
    expect(page.locator(".card")).to_have_count(1)
    loaded = "image => image.complete && image.naturalWidth > 0"
    expect(card(page, 10).locator(".mosaic img")).to_have_count(5)
    page.wait_for_function(f"() => [...document.querySelectorAll('.card .mosaic img')].every({loaded})")


def test_a_name_is_typed_saved_and_stays(page: Page, site: Site) -> None:
    card(page, 5).get_by_role("button", name="category 5").click()
    page.keyboard.type("four gs m?")  # keys of the page are letters here
    page.keyboard.press("Enter")
    expect(card(page, 5).locator(".name")).to_have_text("four gs m?")
    toast(page, "is called “four gs m?”")
    expect(card(page, 5)).to_be_focused()
    page.reload()
    expect(card(page, 5).locator(".name")).to_have_text("four gs m?")
    assert [(event.kind, event.category, event.name) for event in site.decisions] == [
        ("named", 5, "four gs m?")
    ]
    card(page, 5).locator(".name").click()
    page.keyboard.type("something else")
    page.keyboard.press("Escape")
    expect(card(page, 5).locator(".name")).to_have_text("four gs m?")
    assert len(site.decisions) == 1


def test_a_name_that_is_taken_offers_to_merge(page: Page, site: Site) -> None:
    card(page, 10).locator(".name").click()
    page.keyboard.type("one")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Choose another name").click()
    assert site.decisions == []
    card(page, 10).locator(".name").click()
    page.keyboard.type("one")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Merge the two").click()
    expect(card(page, 10)).to_have_count(0)
    assert [(event.kind, event.category, event.into) for event in site.decisions] == [("merged", 10, 2)]


def test_a_name_that_can_not_be_is_refused_with_a_sentence(page: Page, site: Site) -> None:
    card(page, 5).locator(".name").click()
    page.keyboard.type("unlabelled")
    with page.expect_response("**/api/decide") as answer:
        page.keyboard.press("Enter")
    assert answer.value.status == 409
    toast(page, "cannot be the name of a category")
    expect(card(page, 5).locator(".name")).to_have_text("category 5")


def test_look_alikes_are_merged_and_undone(page: Page, site: Site) -> None:
    size = len(site.workspace.knowledge().rows_of(9)) + len(site.workspace.knowledge().rows_of(10))
    pair = page.locator(".pair", has_text="category 10").filter(has_text="category 9")
    pair.get_by_role("button", name="Merge as").click()
    toast(page, "is category")
    merged = site.decisions[0]
    expect(card(page, merged.into).locator(".count")).to_have_text(str(size))
    expect(card(page, merged.category)).to_have_count(0)
    expect(page.locator("#history .count")).to_have_text("1")
    page.locator("#toast").get_by_role("button", name="Undo").click()
    expect(card(page, merged.category)).to_have_count(1)
    assert site.decisions == []
    pair.get_by_role("button", name="Different").click()
    expect(pair).to_have_count(0)


def test_split_shows_the_halves_first(page: Page, site: Site) -> None:
    card(page, 2).hover()
    card(page, 2).get_by_role("button", name="Split").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".halves section")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert site.decisions == []
    card(page, 2).get_by_role("button", name="Split").click()
    dialog.get_by_role("button", name="Split", exact=True).click()
    expect(card(page, 11)).to_be_focused()
    event = site.decisions[0]
    assert (event.kind, event.into, event.made) == ("moved", 11, True)
    expect(card(page, 11).locator(".count")).to_have_text(str(len(event.rows)))


def test_the_history_lists_decisions_and_undoes_the_last(page: Page, site: Site) -> None:
    card(page, 3).focus()
    page.keyboard.press("d")
    toast(page, "discarded")
    expect(card(page, 3)).to_have_count(0)
    page.keyboard.press("h")
    expect(page.get_by_role("dialog").locator("li")).to_have_count(1)
    page.get_by_role("button", name="Undo the last one").click()
    expect(card(page, 3)).to_have_count(1)
    page.keyboard.press("Control+z")
    toast(page, "nothing to undo")


def test_pictures_are_chosen_and_moved(page: Page, site: Site) -> None:
    card(page, 1).locator("a.mosaic").click()
    tiles = page.locator(".tile")
    expect(tiles).to_have_count(len(site.workspace.knowledge().rows_of(1)))
    rows = [int(tiles.nth(index).get_attribute("data-row") or -1) for index in range(5)]
    tiles.nth(0).click()
    tiles.nth(2).click(modifiers=["Shift"])
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tip")).to_contain_text(".png")
    expect(page.locator("#tip")).to_contain_text("% sure")
    page.keyboard.press("Space")
    expect(page.locator("#bar b")).to_have_text("4 pictures")
    page.keyboard.press("x")
    page.keyboard.press("Shift+ArrowRight")
    page.get_by_role("button", name="Move to").click()
    page.keyboard.type("thr")
    page.keyboard.press("Enter")
    toast(page, "moved to three")
    expect(page.locator("#bar")).to_be_hidden()
    expect(page.locator(f'.tile[data-row="{rows[0]}"]')).to_have_count(0)
    moved = site.decisions[0]
    assert (moved.into, set(rows[:3]) <= set(moved.rows)) == (4, True)
    page.get_by_role("button", name="Select all shown").click()
    page.get_by_role("button", name="Discard", exact=True).click()
    toast(page, "discarded")
    assert len(site.workspace.knowledge().rows_of(1)) == 0


def test_a_lasso_on_the_map_makes_a_category(page: Page, site: Site) -> None:
    page.get_by_role("link", name="Map", exact=True).first.click()
    canvas = page.locator(".stage canvas").first
    expect(page.locator(".legend li")).to_have_count(10)
    box = canvas.bounding_box()
    assert box is not None
    page.get_by_role("button", name="Lasso").click()
    corners = [(0.02, 0.15), (0.5, 0.15), (0.5, 0.98), (0.02, 0.98)]
    spots = [(box["x"] + u * box["width"], box["y"] + v * box["height"]) for u, v in corners]
    page.mouse.move(*spots[0])
    page.mouse.down()
    for spot in spots[1:]:
        page.mouse.move(*spot, steps=8)
    page.mouse.up()
    expect(page.locator("#bar b")).to_contain_text("picture")
    count = int(page.locator("#bar b").inner_text().split()[0])
    page.get_by_role("button", name="Look at them").click()
    expect(page.locator("h1")).to_have_text(f"{count} chosen pictures")
    page.locator(".tile").first.click()
    page.get_by_role("button", name="Move to").click()
    page.keyboard.type("left side")
    page.keyboard.press("Enter")
    toast(page, f"{count - 1} pictures became left side")
    known = site.workspace.knowledge()
    inside = known.images.positions[known.rows_of(known.named()["left side"])]
    middle = (known.images.positions[:, 0].min() + known.images.positions[:, 0].max()) / 2
    assert len(inside) == count - 1
    # The canvas shows everything, so its left half is the left half of the positions.
    assert (inside[:, 0] <= middle + 1e-3).all()
    # Back on the map, the new category is there to be shown.
    page.get_by_role("button", name="left side").click()
    expect(page).to_have_url(f"{site.address}/#/map/11")


def test_shift_drag_is_a_lasso_too_and_hovering_shows_a_picture(page: Page, site: Site) -> None:
    page.goto(f"{site.address}/#/map")
    expect(page.locator(".legend li")).to_have_count(10)
    box = page.locator(".stage canvas").first.bounding_box()
    assert box is not None
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 2)
    page.mouse.down()
    for u, v in ((0.999, 0.001), (0.999, 0.999), (0.001, 0.999), (0.001, 0.001)):
        page.mouse.move(box["x"] + u * box["width"], box["y"] + v * box["height"], steps=5)
    page.mouse.up()
    page.keyboard.up("Shift")
    expect(page.locator("#bar b")).to_have_text("200 pictures")
    page.keyboard.press("Escape")
    expect(page.locator("#bar")).to_be_hidden()
    positions = site.workspace.knowledge().images.positions
    low, high = positions.min(axis=0), positions.max(axis=0)
    scale = min((box["width"] - 60) / (high[0] - low[0]), (box["height"] - 60) / (high[1] - low[1]))
    # The picture furthest to the right has few neighbours.
    spot = (positions[positions[:, 0].argmax()] - (low + high) / 2) * scale
    page.mouse.move(
        box["x"] + box["width"] / 2 + float(spot[0]), box["y"] + box["height"] / 2 + float(spot[1])
    )
    file = Path(site.workspace.knowledge().images.files[positions[:, 0].argmax()])
    expect(page.locator("#tip")).to_contain_text(file.name)
    expect(page.locator("#tip")).to_contain_text(f"batch 2, in {file.parent}")


def test_batches_tell_what_happened(page: Page) -> None:
    page.keyboard.press("g")
    page.keyboard.press("b")
    batches = page.locator(".batch")
    expect(batches).to_have_count(2)
    expect(batches.first).to_contain_text("february")
    expect(batches.first).to_contain_text("1 could not be read")
    expect(batches.first.locator(".bars li")).to_have_count(5)
    expect(batches.first.locator("svg circle")).to_have_count(1)
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page.locator(".card")).to_have_count(10)


def ask(page: Page, site: Site, kind: str, category: int | None = None) -> dict:
    """Open the queue, skip to the first question of a kind, perhaps about one category, and return it."""
    page.goto(f"{site.address}/#/batches")
    page.goto(f"{site.address}/#/")
    for skip in range(60):
        question = page.request.get(f"{site.address}/api/queue?skip={skip}").json()["question"]
        expect(page.locator(f'.question[data-skipped="{skip}"]:not([aria-busy]) h1')).to_be_visible()
        if question["kind"] == kind and (
            category is None or category in [picture["proposed"] for picture in question["pictures"]]
        ):
            expect(page.locator(".question .tile, .question .kind")).to_have_count(
                len(question["pictures"]) or 1 + len(question["others"])
            )
            return question
        page.keyboard.press("s")
    raise AssertionError(f"There is no question of the kind {kind}.")


def test_the_queue_is_the_first_view_and_names_a_group(page: Page, site: Site) -> None:
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.locator("nav a[aria-current]")).to_have_text("Queue")
    expect(page.locator(".progress")).to_contain_text("0 of about")
    question = ask(page, site, "name")
    expect(page.locator(".question h1")).to_have_text("What are most of these?")
    page.keyboard.press("n")
    page.keyboard.type("eight sums")  # s, m and u are keys elsewhere
    page.keyboard.press("Enter")
    toast(page, "called “eight sums”")
    expect(page.locator(".progress")).to_contain_text("1 of about")
    known = site.workspace.knowledge()
    rows = [picture["row"] for picture in question["pictures"]]
    assert set(known.images.category[rows]) == {known.named()["eight sums"]}
    assert [event.kind for event in site.decisions] == ["propagated"]
    page.keyboard.press("u")
    expect(page.locator(".progress")).to_contain_text("0 of about")
    assert site.decisions == []


def test_the_same_kind_is_a_yes_or_no(page: Page, site: Site) -> None:
    question = ask(page, site, "same")
    expect(page.locator(".question h1")).to_have_text("The same kind?")
    page.keyboard.press("n")
    toast(page, "not" if len(question["others"]) > 1 else "are different")
    expect(page.locator(".progress")).to_contain_text("1 of about")
    assert len(site.decisions) == 1
    page.keyboard.press("u")
    expect(page.locator(".progress")).to_contain_text("0 of about")
    question = ask(page, site, "same")
    page.keyboard.press("y")
    toast(page, "is" if len(question["others"]) == 1 else "are")
    merged = site.workspace.knowledge().categories
    assert {merged[id].merged_into for id in question["others"]} == {question["category"]}
    assert len(site.decisions) == 1


def test_several_categories_are_merged_and_one_is_left_out(page: Page, site: Site) -> None:
    asked = {
        "kind": "same",
        "category": 9,
        "others": [10, 8],
        "pictures": [],
        "main": False,
        "gain": 9,
        "cost": 1,
    }
    events = len(site.workspace.events())
    answer = {"events": events, "question": asked, "settled": 0.5, "decisions": 0, "left": 1}
    page.route("**/api/queue?skip=0", lambda route: route.fulfill(json=answer), times=1)
    page.goto(f"{site.address}/#/")
    page.locator("button.kind", has_text="category 8").click()
    expect(page.locator("button.kind", has_text="category 8")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("y")
    toast(page, "Category 10 is category 9")
    [merged] = site.decisions
    assert (merged.kind, merged.categories, merged.different) == ("merged-several", [10], [8])


def test_a_group_is_accepted_with_exceptions_by_keyboard(page: Page, site: Site) -> None:
    question = ask(page, site, "check")
    pictures = question["pictures"]
    page.locator(".question .tile").first.focus()
    page.keyboard.press("Space")
    first = page.locator(".question .tile").first
    expect(first).to_have_attribute("aria-pressed", "true")
    expect(first).to_be_focused()
    other = site.workspace.knowledge().title(pictures[0]["choices"][0])
    expect(first.locator(".goes")).to_have_text(f"→ {other}")
    page.locator(".question .tile").nth(1).hover()
    page.keyboard.press("2")  # the second category that is offered for the picture under the pointer
    second = site.workspace.knowledge().title(pictures[1]["choices"][1])
    expect(page.locator(".question .tile").nth(1).locator(".goes")).to_have_text(f"→ {second}")
    for _ in range(len(pictures[1]["choices"][:4])):  # those after the second, something else, and back
        page.keyboard.press("Space")
    expect(page.locator(".question .tile").nth(1)).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("y")
    toast(page, "1 is")
    [checked] = site.decisions
    assert [part.category for part in checked.parts] == list(
        dict.fromkeys(one["proposed"] for one in pictures)
    )
    assert checked.parts[0].moved[0].rows == [pictures[0]["row"]]
    assert sorted(row for part in checked.parts for row in part.rows) == sorted(
        picture["row"] for picture in pictures[1:]
    )
    known = site.workspace.knowledge()
    assert int(known.images.category[pictures[0]["row"]]) == pictures[0]["choices"][0]
    expect(page.locator(".progress")).to_contain_text("1 of about")
    page.keyboard.press("u")
    expect(page.locator(".progress")).to_contain_text("0 of about")
    assert site.decisions == []


def test_pictures_that_look_like_corrected_ones_are_shown_before_they_move(page: Page, site: Site) -> None:
    known = site.workspace.knowledge()
    # Half of the ones are put among the threes, as a clustering may do; the others show where they belong.
    rows = [int(row) for row in known.rows_of(2) if known.images.source[row] == 0]
    half = rows[: len(rows) // 2]
    site.workspace.decide(Propagated(moves=[Elsewhere(rows=half, into=4)]))
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(page.locator("#history .count")).to_have_text("1")
    question = ask(page, site, "check", 2)
    come = {one["row"] for one in question["pictures"] if one["proposed"] == 2} & set(half)
    assert len(come) > len(half) / 2
    page.keyboard.press("y")
    expect(page.locator("#history .count")).to_have_text("2")
    assert set(site.workspace.knowledge().images.category[sorted(come)]) == {2}
    page.keyboard.press("u")
    expect(page.locator("#history .count")).to_have_text("1")
    assert set(site.workspace.knowledge().images.category[sorted(come)]) == {4}


def test_a_click_with_shift_does_the_same_to_all_in_between(page: Page, site: Site) -> None:
    question = ask(page, site, "check")
    rows = [picture["row"] for picture in question["pictures"]]
    into = question["pictures"][3]["choices"][1]
    tiles = page.locator(".question .tile")
    tiles.nth(3).hover()
    page.keyboard.press("2")
    tiles.nth(1).click(modifiers=["Shift"], position={"x": 75, "y": 140})
    expect(page.locator('.question .tile[aria-pressed="true"]')).to_have_count(3)
    expect(tiles.nth(1).locator(".goes")).to_have_text(f"→ {site.workspace.knowledge().title(into)}")
    page.keyboard.press("y")
    expect(page.locator("#history .count")).to_have_text("1")
    [checked] = site.decisions
    moved = [(move.into, move.rows) for part in checked.parts for move in part.moved]
    assert moved == [(into, sorted(rows[1:4]))]


def test_pictures_that_are_something_else_get_a_new_name_together(page: Page, site: Site) -> None:
    question = ask(page, site, "check")
    rows = [picture["row"] for picture in question["pictures"]]
    tiles = page.locator(".question .tile")
    for place in (0, 2):
        tiles.nth(place).hover()
        page.keyboard.press("0")
        expect(tiles.nth(place).locator(".goes")).to_have_text("something else")
    tiles.nth(1).hover()
    offered = [site.workspace.knowledge().title(id) for id in question["pictures"][1]["choices"]]
    keys = page.locator(".keysof > span")
    expect(keys).to_have_text(
        [
            *(f"{place} {title}" for place, title in enumerate(offered, start=1)),
            "0 something else",
            "m search",
        ]
    )
    page.keyboard.press("m")
    page.keyboard.type("eleven")
    page.keyboard.press("Enter")
    expect(page.locator("#history .count")).to_have_text("1")
    [made] = site.decisions
    assert (made.kind, made.name, made.rows) == ("moved", "eleven", sorted(rows[:3]))


def test_a_walk_without_a_mouse(page: Page, site: Site) -> None:
    page.keyboard.press("j")
    first = page.locator(".card").first
    expect(first).to_be_focused()
    named = int(first.get_attribute("data-id") or 0)
    page.keyboard.press("n")
    page.keyboard.type("eight")
    page.keyboard.press("Enter")
    expect(card(page, named)).to_be_focused()
    page.keyboard.press("j")
    second = page.locator(".card").nth(1)
    expect(second).to_be_focused()
    merged = int(second.get_attribute("data-id") or 0)
    page.keyboard.press("m")
    page.keyboard.type("eig")
    page.keyboard.press("Enter")
    expect(card(page, merged)).to_have_count(0)
    assert [event.kind for event in site.decisions] == ["named", "merged"]
    assert (site.decisions[1].category, site.decisions[1].into) == (merged, named)
    expect(page.locator(".card").nth(1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("eight")
    expect(page.locator(".tile").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator('.tile[aria-pressed="true"]')).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator(".card").first).to_be_visible()
    page.keyboard.press("u")
    expect(card(page, merged)).to_have_count(1)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("nou")
    expect(page.locator(".card")).to_have_count(1)


def test_what_another_process_did_is_shown(page: Page, site: Site) -> None:
    site.workspace.decide(Named(category=6, name="five"))
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(card(page, 6).locator(".name")).to_have_text("five")
    toast(page, "The workspace changed")


@pytest.mark.parametrize("view", ["", "categories", "category/1", "map", "batches"])
def test_a_narrow_screen_needs_no_sideways_scrolling(page: Page, site: Site, view: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{site.address}/#/{view}")
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize(
    ("headers", "cookie"),
    [
        ({"Origin": "http://evil.example"}, True),
        ({"Origin": "null"}, True),
        ({"Host": "evil.example"}, True),
        ({}, False),
    ],
    ids=["foreign origin", "null origin", "foreign host", "no token"],
)
def test_strangers_are_refused(site: Site, headers: dict[str, str], cookie: bool) -> None:
    with httpx.Client(base_url=site.address, trust_env=False) as client:
        if cookie:
            assert client.get(f"/?token={TOKEN}").status_code == 303
        body = {"events": 2, "decision": {"kind": "named", "category": 5, "name": "mine"}}
        assert client.post("/api/decide", json=body, headers=headers).status_code == 403
        assert client.get("/thumbnails/x/0", headers=headers).status_code == 403
    assert site.decisions == []


def test_no_path_leads_out(site: Site) -> None:
    with httpx.Client(base_url=site.address, trust_env=False) as client:
        client.get(f"/?token={TOKEN}")
        assert client.get("/api/events").status_code == 200
    # httpx tidies paths up; a socket sends them as they are.
    host, _, port = site.address.removeprefix("http://").partition(":")
    for path in ("/../workspace.json", "/page/../../workspace/folder.py", "/thumbnails/../workspace.json"):
        with socket.create_connection((host, int(port)), timeout=10) as line:
            cookie = f"camp-token-{port}={TOKEN}"
            line.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n".encode()
            )
            assert line.recv(12) in (b"HTTP/1.1 404", b"HTTP/1.1 422"), path


def test_another_page_in_the_same_browser_can_not_decide(browser: Browser, site: Site) -> None:
    class Foreign(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>foreign</title>")

        def log_message(self, *_: object) -> None:
            pass

    foreign = http.server.HTTPServer(("127.0.0.1", 0), Foreign)
    threading.Thread(target=foreign.serve_forever, daemon=True).start()
    with contextlib.closing(browser.new_context()) as context:
        try:
            page = context.new_page()
            page.goto(f"{site.address}/?token={TOKEN}#/categories")
            expect(page.locator(".card").first).to_be_visible()
            stranger = context.new_page()
            # The same machine: to a browser this is the same site, so that the cookie is sent along.
            stranger.goto(f"http://127.0.0.1:{foreign.server_port}/")
            body = '{"events": 2, "decision": {"kind": "named", "category": 5, "name": "mine"}}'
            stranger.evaluate(
                """([url, body]) => fetch(url, {method: "POST", mode: "no-cors", credentials: "include",
                headers: {"Content-Type": "text/plain"}, body}).catch(() => {})""",
                [f"{site.address}/api/decide", body],
            )
            assert site.posts == [("/api/decide", 403)]
        finally:
            foreign.shutdown()
            foreign.server_close()
    assert site.decisions == []


def test_kept_unknown_pictures_become_a_category(page: Page, site: Site) -> None:
    keeper = unknown_keeper(site.workspace)
    for number in range(6):
        features = np.random.default_rng(number).normal(0, 0.2, 16) + 40 * np.eye(16)[15]
        image = Image.new("RGB", (20, 20), (200, number, 0))
        keeper.keep(
            tip_fingerprint({}), f"new/{number}.png", b"%d" % number, image, features.astype(np.float16)
        )
    keeper.flush()
    expect(page.locator("#kept")).to_have_count(0)
    page.reload()
    section = page.locator("#kept")
    expect(section.get_by_role("heading")).to_have_text("Kept unknown pictures")
    expect(section.locator("li img")).to_have_count(6)
    section.get_by_label("Name of the new category").fill("nine")
    section.get_by_role("button", name="Make a category").click()
    expect(page.locator("#toast")).to_contain_text("6 unknown pictures became nine.")
    expect(page.locator("#kept")).to_have_count(0)
    expect(page.locator(".card", has_text="nine").first).to_be_visible()
    assert [decision.kind for decision in site.decisions] == ["accepted"]
    page.get_by_role("button", name="Undo").first.click()
    expect(page.locator("#kept")).to_be_visible()
    page.locator("#kept").get_by_role("button", name="Dismiss").click()
    expect(page.locator("#kept")).to_have_count(0)
