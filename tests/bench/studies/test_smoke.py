"""Every study of the paper by its real command, tiny; and what it leaves."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from camp.bench.executors.in_process import InProcessExecutor
from camp.bench.studies.paper_studies import STUDIES
from camp.cli import main
from camp.core.files import read_json
from camp.core.progress import Progress

TABLES_ALONE = {"table1", "table2", "ablation", "long-tails"}
SMALLER = "--epochs 1 --images-per-class 12 --test-per-class 4 --n-init 2"
FEWER = {
    "distillers-adapters": "--distiller fd,mlp --adapter none,linear,mlp",
    "scenarios": "--novel-fraction 0.2,0.8 --labelled-fraction 0.25,1.0",
}
"""Some of the values of large studies."""


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all studies: they share runs."""
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Carry out runs in this process: starting another one takes longer than a run."""
    executor = InProcessExecutor(Progress(quiet=True))
    monkeypatch.setattr("camp.bench.executors.local.LocalExecutor", lambda *_: executor)


def words_of(name: str, store: Path) -> list[str]:
    more = FEWER.get(name, "").split()
    return ["study", name, "--smoke", *SMALLER.split(), *more, "--out", str(store), "--quiet"]


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_and_leaves_its_figure(
    store: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words_of(name, store)) == 0
    folder = store / f"{name}-smoke"
    said = capsys.readouterr().out
    assert str(folder / "page.html") in said
    assert (folder / "table.md").read_text().count("\n") >= 3
    assert (folder / "table.tex").read_text().startswith(r"\begin{tabular}")
    assert len((folder / "table.csv").read_text().splitlines()) > 1
    page = (folder / "page.html").read_text()
    assert STUDIES[name].title in page.replace("&#39;", "'")
    for run in read_json(folder / "study.json")["runs"]:
        assert f'<a href="../runs/{run["run"]}/">' in page
    if name in TABLES_ALONE:
        assert not (folder / "figure.png").exists()
        return
    with Image.open(folder / "figure.png") as figure:
        pixels = np.asarray(figure.convert("RGB")).reshape(-1, 3)
    assert len(np.unique(pixels, axis=0)) > 20  # something is drawn
    assert (folder / "figure.svg").read_text().rstrip().endswith("</svg>")
    assert (folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert "data-chart" in page


def test_nothing_is_left_to_do(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = words_of("centroid-distance", store)
    assert main(words) == 0
    capsys.readouterr()
    assert main([*words, "--dry"]) == 0
    assert "2 of 2 runs are done." in capsys.readouterr().out


def test_the_same_numbers_give_the_same_files(store: Path) -> None:
    words = words_of("centroid-distance", store)
    assert main(words) == 0
    before = {path.name: path.read_bytes() for path in (store / "centroid-distance-smoke").iterdir()}
    assert main(words) == 0
    assert {path.name: path.read_bytes() for path in (store / "centroid-distance-smoke").iterdir()} == before


def test_the_list_names_every_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in STUDIES)


def test_options_of_camp_run_are_not_hidden_by_those_of_the_study(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = words_of("centroid-distance", store)
    assert main(words) == 0
    capsys.readouterr()
    for more in (["--engine", "torch"], ["--data", "2023", "--executor", "local"]):
        assert main([*words, "--dry", *more]) == 0
        assert "2 of 2 runs are done." in capsys.readouterr().out  # where and by what does not matter


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nothing", 'There is no study "nothing"'),
        ("--smoke", "needs the name of a study first"),
        ("beta --epoch 3", "did you mean epochs?"),
        ("beta --seeds one", "--seeds takes whole numbers"),
        ("beta --jobs 0", "--jobs must be at least 1"),
        ("beta --address here", "add --executor ray"),
        ("beta --gpus 1", "add --executor ray"),
        ("beta --cpus 0.5", "--cpus must be at least 1"),
        ("beta --cpus nan", "--cpus must be a number above 0, not nan."),
        ("beta --cpus inf", "--cpus must be a number above 0, not inf."),
        ("beta --executor ray --cpus nan", "--cpus must be a number above 0, not nan."),
        ("beta --executor ray --gpus nan", "--gpus must be 0 or more, not nan."),
        ("beta --epochs three", "epochs takes a whole number, not 'three'"),
        ("beta three", '"three" belongs to no option'),
        ("none.toml", "cannot be read"),
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
