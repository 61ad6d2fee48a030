"""Prediction on a real Ray cluster of two nodes on this machine; actors are killed for real."""

import csv
from pathlib import Path

import pytest
from small_cluster import killed_once
from small_images import batch
from small_sources import KINDS, Pictures

from camp.app.engines import ray_predict
from camp.app.engines.ray_predict import open_for_ray, predict_on_ray
from camp.app.inputs.sources import list_source
from camp.app.prediction.predict import _BLOCK, Prediction, Row, Unreadable, predict
from camp.app.workspace.workspace import Workspace
from camp.cli import main
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.core.ray_cluster import RayCluster, Resources
from camp.data.bank.pipeline import TRUNK_BATCH

parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.slow
QUIET = Progress(quiet=True)
NEED = Resources()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("learned")
    folder = batch(place / "birds", {"heron": 20, "robin": 20}, {"wren": 20})
    assert (
        main(["learn", str(place / "W"), str(folder), "--backbone", "conv-tiny", "--new", "1", "--quiet"])
        == 0
    )
    return place / "W"


def here(workspace: Path, source: str | Path) -> list[Row]:
    """The predictions of one machine."""
    images = list_source(str(source))
    model = open_for_ray(Workspace.open(workspace), 0.05, NEED)
    return sorted(predict(model, images.reader, images.keys), key=lambda row: row.file)


def there(cluster: RayCluster, workspace: Path, source: str | Path, out: Path):
    model = open_for_ray(Workspace.open(workspace), 0.05, NEED)
    return predict_on_ray(cluster, model, list_source(str(source)), str(out), NEED, QUIET)


def written(out: Path) -> list[Row]:
    """What the Parquet files hold."""
    rows: list[Row] = [Prediction(**row) for row in parquet.read_table(out / "predictions").to_pylist()]
    if (out / "unreadable").exists():
        rows += [Unreadable(**row) for row in parquet.read_table(out / "unreadable").to_pylist()]
    return sorted(rows, key=lambda row: row.file)


def test_an_actor_killed_in_the_middle_changes_no_prediction(
    cluster, workspace: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ray_predict, "IMAGES_PER_PART", 8)
    out = tmp_path / "out"
    with killed_once("MapWorker(Map(_Predictor))", lambda: any(out.glob("predictions/*.parquet"))) as killed:
        summary = there(cluster, workspace, pictures, out)
    assert killed
    rows = here(workspace, pictures)
    assert written(out) == rows
    assert len(rows) == 152
    assert summary.counts.predicted == 150
    assert summary.counts.unreadable == 2
    assert summary.counts.unknown == sum(isinstance(row, Prediction) and row.category is None for row in rows)
    assert not list(out.rglob(".*"))


def test_the_same_command_continues_with_the_parts_that_are_missing(
    cluster, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ray_predict, "IMAGES_PER_PART", 24)
    folder, out = batch(tmp_path / "birds", {}, {"heron": 50, "owl": 50}), tmp_path / "out"
    first = there(cluster, workspace, folder, out)
    expected = written(out)
    assert expected == here(workspace, folder)
    (out / "predictions" / "part-00001.parquet").unlink()
    (out / "predictions" / ".part-00004.parquet.999999999.tmp").write_bytes(b"half of it")
    before = {path: path.stat().st_ino for path in out.rglob("*.parquet")}
    assert there(cluster, workspace, folder, out).counts == first.counts
    assert written(out) == expected
    assert {path: path.stat().st_ino for path in before} == before  # the others were left alone
    assert not list(out.rglob(".*"))
    other = batch(tmp_path / "more birds", {}, {"heron": 50, "owl": 50})
    with pytest.raises(CampError, match="holds predictions of other pictures"):
        there(cluster, workspace, other, out)
    batch(tmp_path / "birds", {}, {"wren": 1})
    with pytest.raises(CampError, match="holds predictions of other pictures"):
        there(cluster, workspace, folder, out)
    with pytest.raises(CampError, match="holds other files; choose a new folder"):
        there(cluster, workspace, folder, folder / "unlabelled")


@pytest.mark.parametrize("kind", ["URL", "tars", "Parquet", "Parquet of paths", "saved data set"])
def test_every_source_is_predicted_as_on_one_machine(
    kind: str, cluster, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ray_predict, "IMAGES_PER_PART", 24)
    folder = batch(tmp_path / "birds", {}, {"heron": 30, "owl": 30})
    stored: Pictures = {path.stem: (path.read_bytes(), None) for path in sorted(folder.rglob("*.png"))}
    monkeypatch.chdir(tmp_path)
    source = KINDS[kind](stored, tmp_path / "stored" if kind == "URL" else Path("stored"))
    there(cluster, workspace, source, tmp_path / "out")
    rows = written(tmp_path / "out")
    assert len(rows) == 60
    assert rows == here(workspace, source)


def test_the_command_writes_what_one_machine_writes(
    address: str, workspace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    folder = batch(tmp_path / "birds", {}, {"heron": 30, "crow": 30})
    (folder / "bad.png").write_bytes(b"?")
    words = ["predict", str(workspace), str(folder), "--quiet", "--out"]
    assert main([*words, str(tmp_path / "local.csv")]) == 0
    said = capfd.readouterr().out
    assert main([*words, f"file://{tmp_path}/out", "--engine", "ray", "--address", address]) == 0
    printed = capfd.readouterr().out.splitlines()[
        -1:
    ]  # Ray may have reported the actor that was killed before
    assert printed == said.replace(f"{tmp_path}/local.csv", f"file://{tmp_path}/out").splitlines()
    with (tmp_path / "local.csv").open() as file:
        local = list(csv.DictReader(file))
    rows = [row for row in written(tmp_path / "out") if isinstance(row, Prediction)]
    assert len(rows) == 60
    for row, line in zip(rows, sorted(local, key=lambda line: line["file"]), strict=True):
        values = (
            row.file,
            row.category,
            row.name,
            round(row.confidence, 6),
            row.runner_up,
            row.runner_up_name,
        )
        columns = ("file", "category", "name", "confidence", "runner_up", "runner_up_name")
        assert ["" if value is None else str(value) for value in values] == [line[name] for name in columns]


def test_what_the_nodes_do_not_see_is_refused(cluster, workspace: Path, tmp_path: Path):
    folder = batch(tmp_path / "birds", {}, {"heron": 3})
    model = open_for_ray(Workspace.open(workspace), 0.05, NEED)
    with pytest.raises(CampError, match="does not see memory://out; give a URL, or a folder on a disk"):
        predict_on_ray(cluster, model, list_source(str(folder)), "memory://out", NEED, QUIET)
    images = list_source(str(folder))
    folder.rename(tmp_path / "gone")
    with pytest.raises(CampError, match=r"The node .* does not see .*birds; give a URL, or put the pictures"):
        predict_on_ray(cluster, model, images, str(tmp_path / "out"), NEED, QUIET)


def test_images_that_are_decoded_by_other_processes_give_the_same(
    cluster, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As for GPUs, where actors have fewer CPUs than decoding needs."""
    monkeypatch.setattr(ray_predict, "IMAGES_PER_PART", 24)
    monkeypatch.setattr(ray_predict, "_decodes_before", lambda *_: True)
    folder = batch(tmp_path / "birds", {}, {"heron": 30, "owl": 30})
    (folder / "bad.png").write_bytes(b"?")
    summary = there(cluster, workspace, folder, tmp_path / "out")
    assert summary.counts.unreadable == 1
    assert written(tmp_path / "out") == here(workspace, folder)
    images = list_source(str(folder))
    folder.rename(tmp_path / "gone")
    model = open_for_ray(Workspace.open(workspace), 0.05, NEED)
    with pytest.raises(CampError, match=r"The node .* does not see .*birds"):
        predict_on_ray(cluster, model, images, str(tmp_path / "new"), NEED, QUIET)


def test_parts_consist_of_whole_blocks():
    assert ray_predict.IMAGES_PER_PART % _BLOCK == ray_predict.IMAGES_PER_PART % TRUNK_BATCH == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "ray"], "give it a folder or URL with --out"),
        (["--engine", "ray", "--out", "x", "--keep-unknown"], "neither --format nor --keep-unknown"),
        (["--engine", "ray", "--out", "{W}/x"], "which is read; choose another place"),
        (["--engine", "ray", "--out", "file://{W}/x"], "which is read; choose another place"),
        (["--engine", "ray", "--out", "{W}/workspace.json"], "is a file; --engine ray writes a folder"),
        (
            ["--engine", "ray", "--out", "x", "--address", "127.0.0.1:1"],
            "There is no Ray cluster at 127.0.0.1:1",
        ),
        (["--engine", "ray", "--out", "x", "--cpus", "-1"], "cannot be negative"),
        (["--engine", "ray", "--out", "x", "--address", "{address}", "--gpus", "2"], "An actor needs 2 GPUs"),
        (["--out", "s3://birds/new.csv"], "is a URL, to which only --engine ray writes"),
        (["--gpus", "1"], "--gpus is about a Ray cluster: add --engine ray"),
    ],
)
def test_mistakes_are_sentences(
    address: str, workspace: Path, tmp_path: Path, words: list[str], said: str, capfd, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    batch(tmp_path / "birds", {}, {"heron": 1})
    words = [word.replace("{W}", str(workspace)).replace("{address}", address) for word in words]
    assert main(["predict", str(workspace), "birds", "--quiet", *words]) == 2
    assert said in capfd.readouterr().err
    assert not (tmp_path / "x").exists()
