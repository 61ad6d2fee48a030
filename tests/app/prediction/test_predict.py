"""Recognising files: the features that were learned from, one answer a file, and what is written of them."""

import dataclasses
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import KINDS, features_of, reader_for, small_model, write_pictures

from camp.app.prediction.model import Model
from camp.app.prediction.predict import (
    Prediction,
    Unreadable,
    load_image,
    predict,
    predict_loaded,
    write_predictions,
)
from camp.core.output_file import is_stream
from camp.core.progress import Bar, Progress
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.fill import fill
from camp.data.bank.views import BankViews, FreshViews, ViewRenderer
from camp.data.datasets.base import FileReader
from camp.data.images import UnreadableImageError
from camp.data.view_settings import Augmentation, ViewSettings
from camp.nn.backbones.settings import BackboneSettings

CPU = torch.device("cpu")
COLUMNS = [column.name for column in dataclasses.fields(Prediction)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pictures(tmp_path / "pictures", 60)
    return tmp_path / "pictures"


@pytest.fixture
def model(folder: Path) -> Model:
    keys = sorted(path.name for path in folder.iterdir())
    return small_model(KINDS["conv-tiny"], FileReader(folder), keys)


def agree(row: Prediction | Unreadable, model: Model, z: torch.Tensor) -> None:
    """`row` says of features z (1, D) what a plain reading of the rules does."""
    assert isinstance(row, Prediction)
    distances = (model.classifier.centroids - z).norm(dim=1)
    weights = torch.softmax(-(distances**2) / model.classifier.temperature, dim=0)
    best, second = (int(i) for i in distances.argsort()[:2])
    names = [name or f"category {id}" for id, name in zip(model.ids, model.names)]
    assert row.confidence == pytest.approx(float(weights[best]), abs=1e-4)
    if bool((distances > model.classifier.radii).all()):
        assert (row.category, row.name) == (None, "unknown")
        second = best
    else:
        assert (row.category, row.name) == (model.ids[best], names[best])
    assert (row.runner_up, row.runner_up_name) == (model.ids[second], names[second])
    assert row.runner_up_confidence == pytest.approx(float(weights[second]), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lite0", "lite0 mbconv", "vit", "conv-tiny", "embeddings"])
def test_answers_are_those_of_the_features(kind: str, tmp_path: Path) -> None:
    reader, keys = reader_for(KINDS[kind], tmp_path, 60)
    model = small_model(KINDS[kind], reader, keys)
    rows = list(predict(model, reader, keys))
    assert [row.file for row in rows] == keys
    assert {isinstance(row, Prediction) and row.category is None for row in rows} == {True, False}
    for row, z in zip(rows, model.metric.transform(features_of(model.backbone, reader, keys))):
        agree(row, model, z)


@pytest.mark.parametrize(
    ("kind", "views"), [("lite0", "bank"), ("vit", "bank"), ("conv-tiny", "fresh"), ("embeddings", "fresh")]
)
def test_features_are_those_of_a_filled_bank(
    kind: str, views: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, keys = reader_for(KINDS[kind], tmp_path / "pictures", 30)
    model = small_model(KINDS[kind], reader, keys)
    settings = ViewSettings(augmentations=2, views=views)  # type: ignore[arg-type]
    bank = Bank(tmp_path / "bank", BankSpec.for_encoder(model.backbone, settings, Augmentation()))
    digests = [*fill(bank, model.backbone, reader, keys, set(), Progress(quiet=True)).digests.values()]
    if views == "bank":
        kept = BankViews(bank, digests, CPU)
    else:
        renderer = ViewRenderer(model.backbone, Augmentation(), model.backbone.mean, model.backbone.std)
        kept = FreshViews(bank, digests, CPU, renderer)
    expected = model.features(kept.clean(torch.arange(len(keys))))
    seen: list[torch.Tensor] = []
    features = Model.features
    monkeypatch.setattr(Model, "features", lambda m, batch: seen.append(features(m, batch)) or seen[-1])
    list(predict(model, reader, keys))
    # The bank keeps a ViT's tokens in half precision.
    tolerance = 5e-3 if kind == "vit" else 1e-5
    torch.testing.assert_close(torch.cat(seen), expected, rtol=0, atol=tolerance)


def test_broken_files_are_reported_in_their_places(folder: Path, model: Model) -> None:
    keys = sorted(path.name for path in folder.iterdir())
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.jpg").write_text("no picture")
    (folder / "half.png").write_bytes((folder / keys[1]).read_bytes()[:-2000])
    given = ["empty.jpg", *keys[:30], "text.jpg", "gone.jpg", *keys[30:], "half.png"]
    bar = Bar("predict", len(given))
    rows = list(predict(model, FileReader(folder), given, bar))
    assert [row.file for row in rows] == given
    reasons = {row.file: row.reason for row in rows if isinstance(row, Unreadable)}
    assert list(reasons) == ["empty.jpg", "text.jpg", "gone.jpg", "half.png"]
    assert reasons["empty.jpg"] == "the file is empty"
    assert "No such file" in reasons["gone.jpg"]
    assert bar.done == len(given)
    assert [row for row in rows if isinstance(row, Prediction)] == list(
        predict(model, FileReader(folder), keys)
    )


def test_a_file_given_twice_has_two_answers(folder: Path, model: Model) -> None:
    rows = list(predict(model, FileReader(folder), ["000.jpg", "000.jpg"]))
    assert len(rows) == 2
    assert rows[0] == rows[1]


def test_files_are_taken_as_they_are_needed(folder: Path, model: Model) -> None:
    """An endless folder has a first answer."""
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "000.jpg"

    rows = predict(model, FileReader(folder), endless())
    next(rows)
    assert 0 < taken <= 6 * 8
    rows.close()  # type: ignore[attr-defined]


def test_nothing_is_asked_and_nothing_answered(folder: Path, model: Model) -> None:
    assert list(predict(model, FileReader(folder), [])) == []


def test_one_picture_in_memory(folder: Path, model: Model) -> None:
    (expected,) = predict(model, FileReader(folder), ["003.png"])
    image = load_image(model, (folder / "003.png").read_bytes())
    [(found, _)] = predict_loaded(model, [("003.png", image)])
    assert found == expected
    with pytest.raises(UnreadableImageError, match="empty"):
        load_image(model, b"")


def test_one_vector_in_memory(tmp_path: Path) -> None:
    reader, keys = reader_for(KINDS["embeddings"], tmp_path, 8)
    model = small_model(KINDS["embeddings"], reader, keys)
    (expected,) = predict(model, reader, keys[:1])
    [(found, _)] = predict_loaded(model, [(keys[0], load_image(model, reader.read(keys[0])))])
    assert found == expected
    for data, reason in (
        (b"\0" * 9, "9 bytes are not float32"),
        (b"\0" * 8, r"shape \(2,\), where embeddings takes \(12,\)"),
        (np.full(12, np.nan, "<f4").tobytes(), "not finite"),
    ):
        with pytest.raises(UnreadableImageError, match=reason):
            load_image(model, data)


def test_vectors_of_another_length_are_unreadable(tmp_path: Path) -> None:
    reader, keys = reader_for(KINDS["embeddings"], tmp_path, 8)
    model = small_model(KINDS["embeddings"], reader, keys)
    longer, _ = reader_for(BackboneSettings(backbone="embeddings", dim=13), tmp_path, 8)
    (row,) = predict(model, longer, keys[:1])
    assert isinstance(row, Unreadable)
    assert "(13,)" in row.reason


ROWS = [
    Prediction("a, b.jpg", 7, "heron", 0.123456789, 31, "marsh, wren", 0.1),
    Unreadable("broken.jpg", "the file is empty"),
    Prediction("ü.jpg", None, "unknown", 0.5, 4, "Käfer", 0.5),
    Prediction(os.fsdecode(b"\xff.jpg"), 4, "Käfer", 1.0, None, None, None),
]


def test_stdout_has_each_row_at_once(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def watched() -> Iterator[Prediction | Unreadable]:
        yield ROWS[0]
        assert capfdbinary.readouterr().out.splitlines()[1].startswith(b'"a, b.jpg",7,heron,')
        yield from ROWS[1:3]

    counts = write_predictions(watched(), None, "csv")
    sys.stderr.flush()
    captured = capfdbinary.readouterr()
    assert captured.out.decode() == "ü.jpg,,unknown,0.5,4,Käfer,0.5\n"
    assert captured.err == b"broken.jpg: the file is empty\n"
    assert counts.predicted == 2


def test_a_fifo_is_written_through(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    write_predictions(iter(ROWS), fifo, "csv")
    reader.join(timeout=20)
    sys.stderr.flush()
    assert capfdbinary.readouterr().err == b"broken.jpg: the file is empty\n"
    assert len(read[0].splitlines()) == 4
    assert is_stream(fifo)
    assert write_predictions(iter(ROWS), Path("/dev/null"), "csv").unreadable == 1
