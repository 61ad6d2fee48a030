"""Sources of images: one set of pictures, stored in every way, gives the same images, labels and bytes."""

import importlib.util
import io
import json
import tarfile
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_images import batch
from small_sources import KINDS, Pictures, png, write_parquet, write_saved_dataset, write_tars

from camp.app.inputs.listed import ListedImages, SourceImages
from camp.app.inputs.local_copy import CopyingReader
from camp.app.inputs.sources import Fields, learning_source, list_source, read_source
from camp.cli import main
from camp.core.errors import CampError
from camp.data.images import UnreadableImageError


@pytest.fixture
def pictures() -> Pictures:
    """Seven labelled pictures of two kinds, and three without a label."""
    return {
        f"{n:03d}": (png(kind, n), kind if n < 7 else None)
        for n, kind in enumerate(
            ["heron", "robin", "heron", "robin", "heron", "heron", "robin", "wren", "wren", "owl"]
        )
    }


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def content(images: ListedImages) -> list[tuple[bytes, str | None]]:
    return [(images.reader.read(key), label) for key, label in zip(images.keys, images.labels)]


def by_bytes(found: list[tuple[bytes, str | None]]) -> list[tuple[bytes, str | None]]:
    return sorted(found, key=lambda one: one[0])


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_has_the_images_and_labels_that_were_stored(
    kind: str, pictures: Pictures, tmp_path: Path
):
    source = KINDS[kind](pictures, tmp_path / "birds")
    images = read_source(source)
    assert by_bytes(content(images)) == by_bytes(list(pictures.values()))
    assert len(set(images.keys)) == len(pictures)
    assert list_source(source).keys == images.keys
    assert set(list_source(source).labels) == {None}
    assert set(read_source(source, fields=Fields(label="none")).labels) == {None}
    assert images.reader_of(images.keys[2:4]).read(images.keys[3]) == images.reader.read(images.keys[3])


@pytest.mark.parametrize("kind", KINDS)
def test_a_csv_file_labels_the_images_of_every_source(kind: str, pictures: Pictures, tmp_path: Path):
    source = KINDS[kind](pictures, tmp_path / "birds")
    images = read_source(source)
    free = next(key for key, label in zip(images.keys, images.labels) if label is None)
    taken = next(key for key, label in zip(images.keys, images.labels) if label == "heron")
    (tmp_path / "labels.csv").write_text(f"file,label\n{free},stork\n{taken},heron\n")
    added = read_source(source, tmp_path / "labels.csv")
    assert dict(zip(added.keys, added.labels)) == dict(zip(images.keys, images.labels)) | {free: "stork"}
    (tmp_path / "labels.csv").write_text(f"file,label\n{taken},stork\n")
    with pytest.raises(CampError, match="labels that contradict each other"):
        read_source(source, tmp_path / "labels.csv")


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_is_slow_to_read_again_is_copied_when_it_is_learned(
    kind: str, pictures: Pictures, tmp_path: Path
):
    source = KINDS[kind](pictures, tmp_path / "birds")
    images, expected = learning_source(source), content(read_source(source))
    assert content(images) == expected
    if not isinstance(images, SourceImages) or images.access == "local":
        assert not isinstance(images.reader, CopyingReader)
        return
    part = images.reader_of(images.keys[1:4])
    images.reader._reader = None  # nothing is left to read from but the copy
    assert content(images) == expected
    assert [part.read(key) for key in images.keys[1:4]] == [data for data, _ in expected[1:4]]
    with pytest.raises(UnreadableImageError):
        part.read(images.keys[0])


def test_keys_name_the_file_and_the_place_in_it(pictures: Pictures, tmp_path: Path):
    assert read_source(write_tars(pictures, tmp_path / "tars")).keys[5:7] == (
        "birds-000.tar/005.png",
        "birds-001.tar/006.png",
    )
    assert read_source(write_parquet(pictures, tmp_path / "parquet")).keys[5:7] == (
        "birds-0.parquet/000005",
        "birds-1.parquet/000000",
    )
    assert read_source(write_saved_dataset(pictures, tmp_path / "saved")).keys[9] == "000009"


def tar(path: Path, *members: tuple[str, bytes]) -> str:
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return str(path)


def test_labels_in_tar_files(tmp_path: Path):
    image = png("owl", 1)
    source = tar(
        tmp_path / "x.tar",
        ("a.jpg", image), ("a.txt", b"robin\n"),
        ("b.json", json.dumps({"label": "wren"}).encode()), ("b.png", image),
        ("c.png", image), ("c.json", b"{}"),
        ("d.png", image), ("d.cls", b"3"), ("d.txt", b"a photo of a crow"),
        ("e.png", image), ("e.cls", b"-1"),
        (".f.png", image), ("g/unreadable.txt", b"?"),
        ("heron.v2/IMG.1.jpg", image), ("heron.v2/IMG.2.jpg", image), ("heron.v2/IMG.cls", b"heron"),
    )  # fmt: skip
    images = read_source(source)
    assert dict(zip(images.keys, images.labels)) == {
        "x.tar/a.jpg": "robin",
        "x.tar/b.png": "wren",
        "x.tar/c.png": None,
        "x.tar/d.png": "3",
        "x.tar/e.png": None,
        "x.tar/heron.v2/IMG.1.jpg": "heron",
        "x.tar/heron.v2/IMG.2.jpg": "heron",
    }
    chosen = read_source(source, fields=Fields(label="txt"))
    assert [label for label in chosen.labels if label] == ["robin", "a photo of a crow"]


def test_a_tar_file_that_ends_too_early(tmp_path: Path):
    data = np.random.default_rng(0).bytes(5000)
    source = tar(tmp_path / "x.tar", ("a.jpg", data), ("b.jpg", data))
    images = read_source(source)
    (tmp_path / "x.tar").write_bytes((tmp_path / "x.tar").read_bytes()[:7000])
    assert images.reader.read(images.keys[0]) == data
    with pytest.raises(UnreadableImageError, match="ends within it"):
        images.reader.read(images.keys[1])
    with pytest.raises(
        CampError, match=r"x.tar is damaged, or not an uncompressed tar file \(unexpected end"
    ):
        read_source(source)


def test_a_parquet_row_without_a_picture_is_unreadable(tmp_path: Path):
    pq.write_table(pa.table({"photo": [png("owl", 1), None], "n": [1, 2]}), tmp_path / "x.parquet")
    images = read_source(str(tmp_path / "x.parquet"))
    assert images.reader.read(images.keys[0]) == png("owl", 1)
    with pytest.raises(UnreadableImageError, match="holds no picture"):
        images.reader.read(images.keys[1])


def test_bad_sources_are_refused_with_a_sentence(tmp_path: Path):
    pq.write_table(pa.table({"a": [b"1"], "b": [b"2"]}), tmp_path / "two.parquet")
    pq.write_table(pa.table({"image": [b"1"], "label": ["unknown"]}), tmp_path / "label.parquet")
    (tmp_path / "no.parquet").write_bytes(b"nothing of this kind")
    (tmp_path / "no.tar").write_bytes(b"nothing of this kind")
    (tmp_path / "no.tar.gz").write_bytes(b"nothing of this kind")
    tar(tmp_path / "empty.tar", ("a.txt", b"?"))
    tar(tmp_path / "twice.tar", ("a.png", b"?"), ("a.png", b"?"))
    tar(tmp_path / "word.tar", ("a.png", b"?"), ("a.json", b"?"))
    dataset = datasets.Dataset.from_dict({"x": [1]})
    datasets.DatasetDict(train=dataset, test=dataset).save_to_disk(tmp_path / "parts")
    for source, words in {
        "two.parquet": "Which column of .*two.parquet holds the pictures. It has a, b; give --image-field",
        "label.parquet": "Row 0 of .*label.parquet: .unknown. cannot be the name of a category",
        "no.parquet": "cannot be read as a Parquet file",
        "no.tar": "not an uncompressed tar file",
        "no.tar.gz": "not an uncompressed tar file .*; decompress it",
        "empty.tar": "holds no pictures",
        "twice.tar": "holds two members called a.png",
        "word.tar": "a.json of .*word.tar is not valid JSON",
        "parts": "has the parts train, test; choose one, as in .*parts/train",
        "parts/train": "Which column of .*train holds the pictures. It has x",
        "*.pq": "There are no files",
        "missing.tar": "There is no file .*missing.tar",
    }.items():
        with pytest.raises(CampError, match=words):
            read_source(str(tmp_path / source))
    with pytest.raises(CampError, match="has no column c; it has a, b"):
        read_source(str(tmp_path / "two.parquet"), fields=Fields(image="c"))
    with pytest.raises(CampError, match="has no column c; it has image, label"):
        read_source(str(tmp_path / "label.parquet"), fields=Fields(label="c"))
    with pytest.raises(CampError, match="memory://nowhere/at-all holds no pictures"):
        read_source("memory://nowhere/at-all")
    with pytest.raises(CampError, match="Protocol not known"):
        read_source("nowhere://birds")
    (tmp_path / "mixed").mkdir()
    tar(tmp_path / "mixed" / "x.tar")
    pq.write_table(pa.table({"a": [b"1"]}), tmp_path / "mixed" / "x.parquet")
    with pytest.raises(CampError, match="holds both tar and Parquet files"):
        read_source(str(tmp_path / "mixed"))


def test_a_missing_package_of_a_file_system_is_named():
    if importlib.util.find_spec("s3fs") is not None:
        pytest.skip("it is installed")
    with pytest.raises(CampError, match=r"s3://birds/january cannot be opened: Install s3fs"):
        read_source("s3://birds/january")


@pytest.mark.parametrize("kind", ["memory", "tars", "Parquet", "saved data set"])
def test_learning_and_predicting_is_the_same_from_every_source(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    folder = batch(tmp_path / "birds", {"heron": 6, "robin": 6}, {"wren": 8})
    stored: Pictures = {}
    for path in sorted(folder.rglob("*.png")):
        label = path.parent.name
        stored[f"{len(stored):03d}"] = path.read_bytes(), None if label == "unlabelled" else label
    source = KINDS[kind](stored, tmp_path / "stored" / "birds" if kind == "memory" else tmp_path / "stored")
    options = ["--backbone", "conv-tiny", "--thumbnails", "2", "--new", "1", "--epochs", "2", "--quiet"]
    rows = {}
    for place, words in {"A": str(folder), "B": source}.items():
        table = tmp_path / f"{place}.csv"
        assert main(["learn", str(tmp_path / place), words, *options]) == 0
        assert main(["predict", str(tmp_path / place), words, "--out", str(table), "--quiet"]) == 0
        rows[place] = [line.split(",", 1)[1] for line in table.read_text().splitlines()]
    assert len(rows["A"]) == 21
    assert rows["A"] == rows["B"]
