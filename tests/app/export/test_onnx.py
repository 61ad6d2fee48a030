"""An exported file gives the answers of `predict`, in standard operators, and says how to use it."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from small_models import IDS, KINDS, features_of, reader_for, small_model
from torch import nn

from camp.app.export.onnx import export_onnx
from camp.app.prediction.model import Model
from camp.app.prediction.predict import Prediction, predict
from camp.core.errors import CampError
from camp.data.datasets.base import Reader
from camp.data.images import resize_image
from camp.discovery.class_metric import ClassMetric
from camp.discovery.open_set import OpenSet

FLOATS = ("confidence", "runner_up_confidence")


def exported(path: Path, model: Model, reader: Reader, keys: list[str]) -> dict[str, np.ndarray]:
    """What onnxruntime says about the pictures."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    contents = [reader.decode(reader.read(key)) for key in keys]
    arrays = [
        resize_image(content, model.backbone.resolution) if isinstance(content, Image.Image) else content
        for content in contents
    ]
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {given.name: np.stack(arrays)})))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "categories"), [*((kind, 4) for kind in KINDS), ("lite0", 1), ("embeddings", 1)]
)
def test_it_answers_as_predict_does(kind: str, categories: int, tmp_path: Path) -> None:
    reader, keys = reader_for(KINDS[kind], tmp_path / "pictures", 16)
    model = small_model(KINDS[kind], reader, keys, categories)
    path = tmp_path / "model.onnx"
    export_onnx(model, path)
    found = exported(path, model, reader, keys)
    rows = list(predict(model, reader, keys))
    assert {row.category is None for row in rows if isinstance(row, Prediction)} == {True, False}
    for i, row in enumerate(rows):
        assert isinstance(row, Prediction)
        assert found["category"][i] == (-1 if row.category is None else row.category)
        assert found["runner_up"][i] == (-1 if row.runner_up is None else row.runner_up)
        assert found["confidence"][i] == pytest.approx(row.confidence, abs=1e-4)
        assert found["runner_up_confidence"][i] == pytest.approx(row.runner_up_confidence or 0, abs=1e-4)
    expected = features_of(model.backbone, reader, keys)
    error = torch.from_numpy(found["features"]) - expected
    assert error.norm() < 1e-4 * expected.norm()
    assert found["probabilities"].shape == (16, categories)
    np.testing.assert_allclose(
        found["probabilities"],
        model.classifier.log_probabilities(model.metric.transform(expected)).exp(),
        atol=1e-4,
    )


@pytest.mark.parametrize("kind", ["lite0", "vit scaled"])
def test_it_needs_no_operators_of_our_own_runtime(kind: str, tmp_path: Path) -> None:
    reader, keys = reader_for(KINDS[kind], tmp_path / "pictures", 8)
    export_onnx(small_model(KINDS[kind], reader, keys), tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    assert {node.domain for node in proto.graph.node} == {""}
    assert [(version.domain, version.version) for version in proto.opset_import] == [("", 17)]


def test_it_says_what_it_is(tmp_path: Path) -> None:
    reader, keys = reader_for(KINDS["conv-tiny"], tmp_path / "pictures", 8)
    export_onnx(small_model(KINDS["conv-tiny"], reader, keys), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (given,) = session.get_inputs()
    assert (given.name, given.type, given.shape) == ("pixels", "tensor(uint8)", ["B", 16, 16, 3])
    about = session.get_modelmeta().custom_metadata_map
    assert about["resolution"] == "16"
    assert "bicubic" in about["resize"]
    assert json.loads(about["categories"]) == [
        {"id": id, "name": name} for id, name in zip(IDS, ["heron", "category 2", "marsh, wren", "Käfer"])
    ]


def test_close_centroids_far_from_zero_are_told_apart(tmp_path: Path) -> None:
    """|z|^2 - 2 z.c in float32 would know the distances here to no better than their own size."""
    reader, keys = reader_for(KINDS["embeddings"], tmp_path, 8)
    model = small_model(KINDS["embeddings"], reader, keys)
    with torch.no_grad():
        for parameter in model.backbone.tip.parameters():
            parameter.zero_()
    for scale in ("gain", "input_rms"):
        model.backbone.tip.get_buffer(scale).fill_(1)
    vectors = np.full((4, 12), 1000, dtype=np.float32)
    vectors[np.arange(4), np.arange(4)] += 0.25
    as_it_is = ClassMetric(
        np.zeros(12, np.float32), np.eye(12, dtype=np.float32), np.zeros(12, np.float32), unit=False
    )
    classifier = OpenSet(torch.from_numpy(vectors), torch.full((4,), 0.1), model.classifier.temperature)
    model = dataclasses.replace(model, metric=as_it_is, classifier=classifier)
    export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert session.run(["category"], {"vector": vectors})[0].tolist() == list(IDS)


def test_networks_of_other_makes_are_refused(tmp_path: Path) -> None:
    reader, keys = reader_for(KINDS["lite0"], tmp_path, 8)
    model = small_model(KINDS["lite0"], reader, keys)
    model.backbone.tip = nn.Linear(2, 2)
    with pytest.raises(CampError, match=r"A Linear cannot be exported to ONNX"):
        export_onnx(model, tmp_path / "model.onnx")
    model.backbone.trunk = lambda pixels: {"vector": pixels}
    with pytest.raises(CampError, match="trunk of efficientnet-lite0 cannot"):
        export_onnx(model, tmp_path / "model.onnx")


def test_a_path_that_can_not_be_written_is_a_sentence(tmp_path: Path) -> None:
    reader, keys = reader_for(KINDS["conv-tiny"], tmp_path / "pictures", 8)
    with pytest.raises(CampError, match="Could not write"):
        export_onnx(small_model(KINDS["conv-tiny"], reader, keys), tmp_path / "pictures" / keys[0] / "a.onnx")
