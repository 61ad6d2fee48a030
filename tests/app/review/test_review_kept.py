"""Kept unknown pictures on the review page."""

from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from small_workspace import small_workspace

from camp.app.prediction.keep_unknown import unknown_keeper
from camp.app.review.app import review_app
from camp.app.workspace.kept_unknown import tip_fingerprint
from camp.app.workspace.workspace import Workspace

NINES = 8


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return small_workspace(tmp_path / "W")


def keep(workspace: Workspace, count: int = NINES, tip: str | None = None) -> None:
    """Keep pictures far from every digit, and alike."""
    keeper = unknown_keeper(workspace)
    centre = np.zeros(16)
    centre[-1] = 40
    for number in range(count):
        features = centre + np.random.default_rng(number).normal(0, 0.2, 16)
        image = Image.new("RGB", (20, 20), (200, number, 0))
        fingerprint = tip_fingerprint({}) if tip is None else tip
        keeper.keep(fingerprint, f"new/{number}.png", b"%d" % number, image, features.astype(np.float16))
    keeper.flush()


def test_a_proposal_is_accepted_and_undone(workspace: Workspace) -> None:
    with TestClient(review_app(workspace)) as page:
        before = page.get("/api/overview").json()
        assert page.get("/api/kept").json() == {
            "events": before["events"],
            "pictures": 0,
            "outdated": 0,
            "proposals": [],
        }
        keep(workspace)  # by another process, without an event
        found = page.get("/api/kept").json()
        (proposal,) = found["proposals"]
        assert (found["pictures"], len(proposal["digests"])) == (NINES, NINES)
        assert proposal["nearest"] in [card["title"] for card in before["categories"]]
        for tile in proposal["tiles"]:
            assert tile["kept"]
            assert page.get(f"/thumbnails/kept/{tile['digest']}").headers["content-type"] == "image/jpeg"
        body = {"events": found["events"], "digests": proposal["digests"], "name": "nine"}
        outcome = page.post("/api/kept/accept", json=body).json()
        assert outcome["said"] == f"{NINES} unknown pictures became nine."
        after = page.get("/api/overview").json()
        assert after["pictures"] == before["pictures"] + NINES
        card = next(card for card in after["categories"] if card["id"] == outcome["category"])
        assert (card["name"], card["pictures"], card["person"], card["origin"]) == (
            "nine",
            NINES,
            NINES,
            "made",
        )
        assert after["version"] != before["version"]
        row = card["typical"][0]["row"]
        assert page.get(f"/thumbnails/{after['version']}/{row}").status_code == 200
        # Pictures that the page asked for before are still the same ones; the others are only in the present version.
        assert page.get(f"/thumbnails/{before['version']}/0").status_code == 200
        assert page.get(f"/thumbnails/{before['version']}/{row}").status_code == 404
        assert len(page.get("/api/map/positions").content) == 8 * after["pictures"]
        assert page.get("/api/kept").json()["pictures"] == 0
        undone = page.post("/api/undo", json={"events": outcome["events"]}).json()
        assert undone["said"].startswith(f"Undone: {NINES} unknown pictures became")
        assert page.get("/api/overview").json()["pictures"] == before["pictures"]
        assert page.get(f"/thumbnails/{after['version']}/0").status_code == 200
        assert page.get(f"/thumbnails/{after['version']}/{row}").status_code == 404
        assert page.get("/api/kept").json()["pictures"] == NINES


def test_a_dismissed_proposal_does_not_come_again(workspace: Workspace) -> None:
    keep(workspace)
    with TestClient(review_app(workspace)) as page:
        found = page.get("/api/kept").json()
        body = {"events": found["events"], "digests": found["proposals"][0]["digests"]}
        assert (
            page.post("/api/kept/dismiss", json=body).json()["said"] == f"{NINES} unknown pictures dismissed."
        )
        assert page.get("/api/kept").json()["proposals"] == []
        refused = page.post("/api/kept/accept", json={**body, "events": body["events"] + 1})
        assert refused.status_code == 409
        assert "learned or dismissed" in refused.json()["error"]
        stale = page.post("/api/kept/accept", json=body)
        assert stale.status_code == 409
    with TestClient(review_app(Workspace.open(Path(workspace.name)))) as page:
        assert page.get("/api/kept").json()["pictures"] == 0


def test_mistakes_are_sentences(workspace: Workspace) -> None:
    keep(workspace, 3, tip="another")
    with TestClient(review_app(workspace)) as page:
        found = page.get("/api/kept").json()
        assert (found["pictures"], found["outdated"], found["proposals"]) == (0, 3, [])
        taken = {"events": found["events"], "digests": ["0" * 32], "name": "one"}
        answer = page.post("/api/kept/accept", json=taken)
        assert (answer.status_code, answer.json()["error"]) == (
            409,
            'There is a category called "one" already; choose another name.',
        )
        assert page.post("/api/kept/accept", json={**taken, "digests": ["../x"]}).status_code == 422
        assert page.get("/thumbnails/kept/" + "f" * 32).status_code == 404
        assert page.get("/thumbnails/kept/..%2f..%2fworkspace.json").status_code in (404, 422)
        assert page.get("/api/kept").json()["events"] == found["events"]
