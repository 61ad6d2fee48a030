"""A workspace that was made before events and reports were models opens unchanged.

`workspace-0.1.0` was written by commit ad98766 with `camp.CAMP(backbone="embeddings")`: two batches, four decisions
and an undo.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from small_images import tree

from camp import CAMP
from camp.app.export.onnx import export_onnx
from camp.app.prediction.model import open_model
from camp.app.review.app import review_app
from camp.app.workspace.status import status_text
from camp.app.workspace.workspace import Workspace

VECTORS = 4 * np.eye(6, dtype=np.float32)[:3]
"""The centres of heron, robin and wren."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).with_name("workspace-0.1.0"), tmp_path / "W"))


def test_reading_changes_nothing(old: Path, tmp_path: Path) -> None:
    before = tree(old)
    workspace = Workspace.open(old)
    text = status_text(workspace)
    assert "W: 4 categories, 1 without a name; 26 pictures from 2 batches." in text
    assert "category 3 is called “wren”" in text
    assert "2 pictures became category 4" in text
    assert "heron and robin are different" in text
    assert "discarded" not in text  # it was undone
    assert [report.n_images for report in workspace.reports()] == [18, 8]
    assert workspace.reports()[0].provenance is None
    assert CAMP.load(old).predict(VECTORS).tolist() == ["heron", "robin", "wren"]
    export_onnx(open_model(workspace), tmp_path / "birds.onnx")
    with TestClient(review_app(workspace)) as page:
        overview = page.get("/api/overview").json()
        assert [card["title"] for card in overview["categories"]] == ["heron", "robin", "wren", "category 4"]
        assert len(page.get("/api/batches").json()["batches"]) == 2
    assert tree(old) == before


def test_undoing_and_learning_go_on_from_there(old: Path) -> None:
    lines = (old / "events.jsonl").read_bytes()
    workspace = Workspace.open(old)
    for _ in range(3):
        workspace.undo()
    assert workspace.knowledge().named() == {"heron": 1, "robin": 2}
    CAMP.load(old).set_params(new=0).partial_fit(VECTORS + 0.1).rename(3, "wren").save(old)
    assert CAMP.load(old).predict(VECTORS).tolist() == ["heron", "robin", "wren"]
    workspace = Workspace.open(old)
    assert [report.step for report in workspace.reports()] == [1, 2, 3]
    provenance = workspace.reports()[2].provenance
    assert provenance is not None
    assert provenance.threads == 1
    assert (old / "events.jsonl").read_bytes().startswith(lines)
    assert workspace.knowledge().next_id() == 5  # the id of the undone decision is not used again
