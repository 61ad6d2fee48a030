"""A workspace whose model is on the fake CUDA device: learn, predict, keep unknown images, export, and the estimator."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from small_images import batch, picture

from camp import CAMP
from camp.app.prediction.model import open_model
from camp.app.prediction.predict import load_image, predict_loaded
from camp.app.workspace.workspace import Workspace
from camp.cli import main
from fake_cuda import CUDA, FakeCuda, fake_cuda

NETWORKS = {
    "conv-tiny": ("--backbone", "conv-tiny"),
    "vit": ("--backbone", "vit-s16", "--weights", "random", "--resolution", "32"),
    "efficientnet": ("--resolution", "96"),
}


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    with fake_cuda() as device:
        yield device


def learned(folder: Path, options: tuple[str, ...], epochs: str) -> Path:
    """A workspace that has learned two batches with these options."""
    workspace, january, february = folder / "BIRDS", folder / "january", folder / "february"
    batch(january, {"heron": 6, "robin": 6}, {"wren": 8, "heron": 4})
    batch(february, {"crow": 6}, {"wren": 5, "owl": 8}, first=100)
    common = ("--epochs", epochs, "--quiet")
    assert main(["learn", str(workspace), str(january), *options, "--thumbnails", "3", *common]) == 0
    assert main(["learn", str(workspace), str(february), *common]) == 0
    return workspace


def check_whole_life(folder: Path, options: tuple[str, ...], epochs: str, cuda: FakeCuda) -> None:
    workspace = learned(folder, (*options, "--device", "cuda"), epochs)
    assert cuda.operations > 100
    out, graph = folder / "new.csv", folder / "birds.onnx"
    new = batch(folder / "new", {"crow": 3}, {"owl": 3}, first=200)
    assert main(["predict", str(workspace), str(new), "--out", str(out), "--keep-unknown"]) == 0
    rows = list(csv.DictReader(out.open(encoding="utf-8")))
    assert len(rows) == 6
    assert main(["export", str(workspace), str(graph)]) == 0

    model = open_model(Workspace.open(workspace))
    assert model.backbone.device == CUDA
    pictures = [load_image(model, (new / row["file"]).read_bytes()) for row in rows]
    together = predict_loaded(model, [(row["file"], pixels) for row, pixels in zip(rows, pictures)])
    assert [row.name for row, _ in together] == [row["name"] for row in rows]
    session = onnxruntime.InferenceSession(graph.read_bytes())
    features = session.run(["features"], {session.get_inputs()[0].name: np.stack(pictures)})[0]
    on_device = torch.stack([z for _, z in together])
    torch.testing.assert_close(torch.from_numpy(features), on_device, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_a_workspace_on_a_gpu(
    network: str, tmp_path: Path, cuda: FakeCuda, capfd: pytest.CaptureFixture[str]
) -> None:
    check_whole_life(tmp_path, NETWORKS[network], "1", cuda)


def test_the_estimator_on_a_gpu_answers_as_on_the_cpu(cuda: FakeCuda) -> None:
    pictures = [picture(kind, number) for kind in ("heron", "robin", "wren") for number in range(6)]
    labels = [kind if kind != "wren" else None for kind in ("heron", "robin", "wren") for _ in range(6)]
    answers = []
    for device in ("cpu", "cuda"):
        model = CAMP("conv-tiny", device=device).partial_fit(pictures, labels)
        answers.append(model.predict(pictures).tolist())
    assert answers[0] == answers[1]
    assert cuda.operations


def test_the_estimator_for_vectors_on_a_gpu(cuda: FakeCuda) -> None:
    draw = np.random.default_rng(0)
    vectors = np.concatenate([draw.normal(centre, 0.1, (8, 12)) for centre in (-1, 0, 1)]).astype(np.float32)
    labels = ["low"] * 8 + ["middle"] * 8 + [None] * 8
    model = CAMP("embeddings", device="cuda").partial_fit(vectors, labels)
    assert model.predict(vectors[:16]).tolist() == labels[:16]
    assert cuda.operations
