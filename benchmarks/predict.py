"""Recognising JPEG files: pictures per second as a share of the bare backbone's rate.

The bare backbone is trunk and tip over batches that are ready, a thread a core; recognising adds reading, decoding,
resizing and the answers.
"""

import tempfile
import time
from pathlib import Path

import torch
from bank import write_pictures

from camp.app.prediction.model import Model
from camp.app.prediction.predict import Prediction, predict
from camp.app.workspace.learning import DIRECTIONS
from camp.data.bank.pipeline import ahead
from camp.data.datasets.base import FileReader
from camp.discovery.class_metric import Metric
from camp.discovery.open_set import OpenSet
from camp.nn.backbones import make_backbone
from camp.nn.backbones.settings import BackboneSettings

BATCH = 8
CATEGORIES = 30
ROUNDS = 5


def share(name: str, pictures: int) -> tuple[float, float, float]:
    """(pictures/s of `predict` over those of the backbone alone, both rates)."""
    settings = BackboneSettings(backbone=name, weights="random" if name.startswith("vit") else None)
    backbone = make_backbone(settings, torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1)
    projection = torch.randn(backbone.dim, DIRECTIONS, generator=draw)
    metric = Metric(torch.zeros(backbone.dim), projection, torch.zeros(DIRECTIONS), unit=True)
    centroids = torch.randn(CATEGORIES, DIRECTIONS, generator=draw)
    classifier = OpenSet(centroids, torch.full((CATEGORIES,), 1e3), temperature=100.0)
    model = Model(backbone, metric, classifier, tuple(range(CATEGORIES)), (None,) * CATEGORIES)
    trunk = backbone.single_threaded_trunk()
    assert trunk is not None
    batches = torch.randn(BATCH, 3, 224, 224).expand(pictures // BATCH, -1, -1, -1, -1)

    def alone() -> float:
        begun = time.perf_counter()
        for _ in ahead(lambda pixels: model.features(trunk(pixels)), batches):
            pass
        return pictures / (time.perf_counter() - begun)

    def whole(folder: Path) -> float:
        keys = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.jpg"))
        begun = time.perf_counter()
        rows = list(predict(model, FileReader(folder), keys))
        seconds = time.perf_counter() - begun
        assert all(isinstance(row, Prediction) for row in rows)
        return pictures / seconds

    with tempfile.TemporaryDirectory() as folder:
        write_pictures(Path(folder), pictures)
        alone()
        # The machine's speed wanders: both are timed in turn, and the middle of the shares counts.
        rounds = sorted(
            (rate / bare, rate, bare)
            for bare, rate in ((alone(), whole(Path(folder))) for _ in range(ROUNDS))
        )
    return rounds[ROUNDS // 2]


def measure() -> dict[str, float]:
    lite, lite_rate, lite_alone = share("efficientnet-lite0", pictures=240)
    vit, vit_rate, vit_alone = share("vit-s16", pictures=48)
    return {
        "predict_share": round(lite, 3),
        "predict_pictures_per_second": round(lite_rate, 1),
        "backbone_pictures_per_second": round(lite_alone, 1),
        "predict_share_vit_s16": round(vit, 3),
        "predict_pictures_per_second_vit_s16": round(vit_rate, 1),
        "backbone_pictures_per_second_vit_s16": round(vit_alone, 1),
    }


if __name__ == "__main__":
    print(measure())
