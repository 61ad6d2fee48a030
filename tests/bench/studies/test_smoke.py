"""Every study of the paper by its real command, tiny; and what it leaves."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from camp.bench.studies.paper_studies import STUDIES
from camp.bench.studies.study import smoke
from camp.cli import main

TABLES_ALONE = {"table1", "table2", "ablation"}


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all studies: they share runs."""
    return tmp_path_factory.mktemp("studies")


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_and_leaves_its_figure(
    store: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", name, "--smoke", "--out", str(store), "--quiet"]) == 0
    folder = store / f"{name}-smoke"
    said = capsys.readouterr().out
    assert str(folder / "page.html") in said
    assert (folder / "table.md").read_text().count("\n") >= 3
    assert (folder / "table.tex").read_text().startswith(r"\begin{tabular}")
    assert len((folder / "table.csv").read_text().splitlines()) > 1
    page = (folder / "page.html").read_text()
    assert STUDIES[name].title in page.replace("&#39;", "'")
    for point in smoke(STUDIES[name]).points():
        assert f'<a href="../runs/{point.address}/">' in page
    if name in TABLES_ALONE:
        assert not (folder / "figure.png").exists()
        return
    with Image.open(folder / "figure.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    assert len(np.unique(pixels, axis=0)) > 20  # something is drawn
    assert (folder / "figure.svg").read_text().rstrip().endswith("</svg>")
    assert (folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert "data-chart" in page


def test_nothing_is_left_to_do(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "centroid-distance", "--smoke", "--out", str(store), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["study", "centroid-distance", "--smoke", "--out", str(store), "--dry"]) == 0
    assert "1 of 1 runs are there." in capsys.readouterr().out


def test_the_same_numbers_give_the_same_files(store: Path) -> None:
    words = ["study", "centroid-distance", "--smoke", "--out", str(store), "--quiet"]
    assert main(words) == 0
    before = {path.name: path.read_bytes() for path in (store / "centroid-distance-smoke").iterdir()}
    assert main(words) == 0
    assert {path.name: path.read_bytes() for path in (store / "centroid-distance-smoke").iterdir()} == before


def test_the_list_names_every_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in STUDIES)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nothing", 'There is no study "nothing"'),
        ("--smoke", "needs the name of a study first"),
        ("beta --epoch 3", "did you mean epochs?"),
        ("beta --seeds one", "--seeds takes whole numbers"),
        ("beta --jobs 0", "--jobs must be at least 1"),
        ("beta --address here", "add --engine ray"),
        ("beta --gpus 1", "add --engine ray"),
        ("beta --cpus 0.5", "--cpus must be at least 1"),
        ("beta three", '"three" belongs to no option'),
        ("none.toml", "can not be read"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: str,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["study", *words.split()]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())
