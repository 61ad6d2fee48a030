"""Rate of `camp predict` on JPEG files, relative to the rate of the backbone alone, and its rate on vectors.

The backbone alone is trunk and tip on batches in memory, with one thread per core. `camp predict` also reads,
decodes and resizes the images and computes the predictions.

Vectors are read from a file, compared with the centroids, and their predictions are written to a file, as by
`camp predict W vectors.npy --out new.csv`. They are counted per second of processor time, on however many cores.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from bank import write_images

from camp.app.prediction.inputs import PredictionInput
from camp.app.prediction.model import Model
from camp.app.prediction.predict import Prediction, predict
from camp.app.prediction.unfinished import Question, predict_to_file
from camp.core.parallel import threaded_map
from camp.core.progress import Progress
from camp.data.datasets.base import FileReader
from camp.discovery.class_metric import ClassMetric
from camp.discovery.open_set import OpenSet
from camp.discovery.open_world_discoverer import MIN_COMPONENTS
from camp.nn.backbones import make_backbone
from camp.nn.backbones.settings import BackboneSettings

BATCH = 8
CATEGORIES = 30
ROUNDS = 5
VECTORS, DIM, VECTOR_CATEGORIES = 100_000, 128, 500


def random_model(settings: BackboneSettings, categories: int, components: int) -> Model:
    """Return a model of `categories` random centroids under a metric of `components`."""
    backbone = make_backbone(settings, torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1)
    projection = torch.randn(backbone.dim, components, generator=draw)
    origin, offset = np.zeros(backbone.dim, np.float32), np.zeros(components, np.float32)
    metric = ClassMetric(origin, projection.numpy(), offset, unit=True)
    centroids = torch.randn(categories, components, generator=draw)
    classifier = OpenSet(centroids, torch.full((categories,), 1e3), temperature=100.0)
    return Model(backbone, metric, classifier, tuple(range(categories)), (None,) * categories)


def vectors_per_second() -> float:
    """Return the number of vectors that one core predicts in a second."""
    model = random_model(BackboneSettings(backbone="embeddings", dim=DIM), VECTOR_CATEGORIES, DIM)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw = np.random.default_rng(0)
        np.save(folder / "new.npy", draw.normal(size=(VECTORS, DIM)).astype(np.float32))
        images = PredictionInput.of_vectors(folder / "new.npy", DIM)
        question = Question.of(model, images, "csv")
        seconds = []
        for _ in range(ROUNDS):
            begun = time.process_time()
            counts = predict_to_file(model, images, folder / "new.csv", question, Progress(quiet=True))
            seconds.append(time.process_time() - begun)
            assert counts.predicted == VECTORS
    return VECTORS / sorted(seconds)[ROUNDS // 2]


def share(name: str, images: int) -> tuple[float, float, float]:
    """Return the ratio of the images/s of `predict` to those of the backbone alone, and both rates."""
    settings = BackboneSettings(backbone=name, weights="random" if name.startswith("vit") else None)
    model = random_model(settings, CATEGORIES, MIN_COMPONENTS)
    backbone = model.backbone
    trunk = backbone.single_threaded_trunk()
    assert trunk is not None
    batches = torch.randn(BATCH, 3, 224, 224).expand(images // BATCH, -1, -1, -1, -1)

    def alone() -> float:
        begun = time.perf_counter()
        for _ in threaded_map(lambda pixels: model.features(trunk(pixels)), batches):
            pass
        return images / (time.perf_counter() - begun)

    def whole(folder: Path) -> float:
        keys = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.jpg"))
        begun = time.perf_counter()
        rows = list(predict(model, FileReader(folder), keys))
        seconds = time.perf_counter() - begun
        assert all(isinstance(row, Prediction) for row in rows)
        return images / seconds

    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), images)
        alone()
        # The speed of the machine varies, so both are timed alternately and the median ratio is returned.
        rounds = sorted(
            (rate / bare, rate, bare)
            for bare, rate in ((alone(), whole(Path(folder))) for _ in range(ROUNDS))
        )
    return rounds[ROUNDS // 2]


def measure() -> dict[str, float]:
    """Measure EfficientNet-Lite0, ViT-S/16 and vectors."""
    lite, lite_rate, lite_alone = share("efficientnet-lite0", images=240)
    vit, vit_rate, vit_alone = share("vit-s16", images=48)
    return {
        "predict_share": round(lite, 3),
        "predict_images_per_second": round(lite_rate, 1),
        "backbone_images_per_second": round(lite_alone, 1),
        "predict_share_vit_s16": round(vit, 3),
        "predict_images_per_second_vit_s16": round(vit_rate, 1),
        "backbone_images_per_second_vit_s16": round(vit_alone, 1),
        "predict_vectors_per_second": round(vectors_per_second()),
    }


if __name__ == "__main__":
    print(measure())
