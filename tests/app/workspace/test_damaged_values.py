"""JSON of the wrong type in a file of a workspace: a sentence on the command line, and an answer of the review page."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from small_workspace import small_workspace

from camp.app.review.app import review_app
from camp.app.workspace.decisions import (
    Confirmed,
    Elsewhere,
    Merged,
    Moved,
    Named,
    Propagated,
)
from camp.app.workspace.status import status_text
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError

WRONG: tuple[Any, ...] = (None, -1, 999, "x", [None], {}, float("nan"))
WORDS = {"shown", "refused"}
STEP = Path("steps/0002")


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with two learning steps and some decisions, without checksums of their files."""
    path = tmp_path_factory.mktemp("learned") / "W"
    workspace = small_workspace(path, count=120, thumbnails=False)
    for decision in (
        Named(category=5, name="five"),
        Merged(category=9, into=10),
        Moved(rows=[7], into=11, made=True),
        Confirmed(category=1, rows=[3], others=[Elsewhere(rows=[4], into=2)]),
        Propagated(moves=[Elsewhere(rows=[9], into=2)], name=None),
    ):
        workspace.decide(decision)
    workspace.undo()
    for checksums in path.rglob("checksums.json"):
        checksums.unlink()
    return path


@pytest.fixture
def workspace(learned: Path, tmp_path: Path) -> Path:
    shutil.copytree(learned, tmp_path / "W")
    return tmp_path / "W"


def changed(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield `value` with each of its parts replaced by each wrong one, or missing; of lists the first part."""
    yield from copy.deepcopy(WRONG)
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: other for name, other in value.items() if name != key}
            for other in changed(part, depth + 1):
                yield {**value, key: other}
    if isinstance(value, list) and value:
        yield from ([other, *value[1:]] for other in changed(value[0], depth + 1))
        yield [*value, value[0]]


def shown_or_refused(path: Path) -> str:
    """Whether `camp status` shows the workspace or refuses it in one line."""
    try:
        assert status_text(Workspace.open(path))
    except CampError as error:
        return "refused" if "\n" not in str(error) else str(error)
    return "shown"


def answered(client: TestClient, address: str) -> str:
    """What the review page answers, in the same words."""
    code = client.get(address).status_code
    return {200: "shown", 409: "refused"}.get(code, f"{address} {code}")


@pytest.mark.parametrize("name", ["categories.json", "files.json", "report.json"])
def test_every_changed_file_of_a_step(workspace: Path, name: str) -> None:
    path, outcomes = workspace / STEP / name, set()
    for value in changed(json.loads(path.read_text())):
        path.write_text(json.dumps(value))
        outcome = shown_or_refused(workspace)
        outcomes.add(outcome if outcome in WORDS else f"{outcome} for {json.dumps(value)[:300]}")
    assert "refused" in outcomes
    assert outcomes <= WORDS


@pytest.mark.parametrize("value", [float("nan"), 10**400, "x"])
def test_the_page_with_a_changed_report(workspace: Path, value: object) -> None:
    path, outcomes = workspace / STEP / "report.json", set()
    whole = json.loads(path.read_text())
    for key in ("confidence", "seconds", "pictures", "categories", "curve"):
        path.write_text(json.dumps({**whole, key: value}))
        client = TestClient(review_app(Workspace.open(workspace)), raise_server_exceptions=False)
        outcomes.add(answered(client, "/api/batches"))
    assert outcomes <= WORDS


def test_the_page_with_every_changed_event(workspace: Path) -> None:
    log, outcomes = workspace / "events.jsonl", set()
    (workspace / "events-end.json").unlink(missing_ok=True)
    client = TestClient(review_app(Workspace.open(workspace)), raise_server_exceptions=False)
    lines = log.read_text().splitlines()
    for number, line in enumerate(lines):
        for value in changed(json.loads(line)):
            log.write_text("\n".join([*lines[:number], json.dumps(value), *lines[number + 1 :], ""]))
            outcome = answered(client, "/api/overview")
            outcomes.add(outcome if outcome in WORDS else f"{outcome} for {json.dumps(value)}")
    assert outcomes == WORDS


@pytest.mark.parametrize(
    "text", ["[]", "{}", "7", '"x"', "null", "[null]", '{"x": 1}', "{", "\udcff", "[" * 99_999]
)
@pytest.mark.parametrize(
    "name", ["workspace.json", "events.jsonl", *(f"{STEP}/{name}.json" for name in ("categories", "files", "report"))]
)  # fmt: skip
def test_other_json_in_the_place_of_a_file(workspace: Path, name: str, text: str) -> None:
    (workspace / name).write_text(text + "\n", errors="surrogateescape")
    with pytest.raises(CampError) as caught:
        status_text(Workspace.open(workspace))
    assert "\n" not in str(caught.value)
