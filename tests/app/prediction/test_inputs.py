"""Sources of images as inputs of `camp predict`."""

import os
from pathlib import Path

import pytest
from small_images import batch
from small_sources import KINDS, Pictures

from camp.app.inputs.sources import list_source
from camp.app.prediction.inputs import PredictionInput
from camp.app.workspace.workspace import Workspace
from camp.cli import main
from camp.core.progress import Progress

QUIET = Progress(quiet=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = batch(tmp_path / "learned", {"heron": 6, "robin": 6})
    assert main(["learn", str(tmp_path / "W"), str(folder), "--backbone", "conv-tiny", "--quiet"]) == 0
    return tmp_path / "W"


@pytest.mark.parametrize("kind", ["tars", "Parquet", "saved data set"])
def test_a_source_is_another_one_once_its_files_have_changed(kind: str, workspace: Path, tmp_path: Path):
    folder = batch(tmp_path / "birds", {}, {"heron": 5, "owl": 5})
    stored: Pictures = {path.stem: (path.read_bytes(), None) for path in sorted(folder.rglob("*.png"))}
    source = KINDS[kind](stored, tmp_path / "stored")
    images = PredictionInput.open(source, Workspace.open(workspace), QUIET)
    assert images.keys == list_source(source).keys
    assert PredictionInput.open(source, Workspace.open(workspace), QUIET).identity == images.identity
    files = list(images.files(tmp_path / "out.csv"))
    assert files
    assert all(file.is_file() for file in files)
    os.utime(files[-1], ns=(1, 1))
    assert PredictionInput.open(source, Workspace.open(workspace), QUIET).identity != images.identity


def test_the_file_of_a_source_is_not_overwritten(workspace: Path, tmp_path: Path, capfd):
    folder = batch(tmp_path / "birds", {}, {"heron": 5})
    stored: Pictures = {path.stem: (path.read_bytes(), None) for path in sorted(folder.rglob("*.png"))}
    KINDS["tars"](stored, tmp_path / "stored")
    tar = tmp_path / "stored" / "birds-000.tar"
    before = tar.read_bytes()
    assert main(["predict", str(workspace), str(tar), "--out", str(tar), "--quiet"]) == 2
    assert "would replace" in capfd.readouterr().err
    assert tar.read_bytes() == before
