"""Rate of building a view bank from JPEG files, relative to the forward rate of the trunk alone.

The images are crops of the two photographs in scikit-learn, saved as JPEG files of 500 x 375 pixels, about the
size of the images of CUB-200.
"""

import io
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from camp.core.progress import Progress
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.fill import fill
from camp.data.bank.pipeline import TRUNK_BATCH
from camp.data.datasets import load_dataset
from camp.data.view_settings import Augmentation, ViewSettings
from camp.nn.backbones import make_backbone
from camp.nn.backbones.settings import BackboneSettings


def write_images(folder: Path, count: int) -> None:
    """Write `count` different JPEG files below `folder`, in two classes."""
    photographs = [Image.fromarray(photo) for photo in load_sample_images().images]
    rng = np.random.default_rng(0)
    for i in range(count):
        photo = photographs[i % 2]
        left, top = int(rng.integers(0, 140)), int(rng.integers(0, 52))
        cut = photo.crop((left, top, left + 500, top + 375))
        path = folder / ("train", "test")[i % 4 == 3] / ("china", "flower")[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = io.BytesIO()
        cut.save(data, format="JPEG", quality=90)
        path.write_bytes(data.getvalue())


def share(name: str, images: int, augmentations: int) -> tuple[float, float, float]:
    """Return the ratio of the views/s of building to those of the trunk alone, and both rates."""
    settings = BackboneSettings(backbone=name, weights="random" if name.startswith("vit") else None)
    backbone = make_backbone(settings, torch.Generator().manual_seed(0))
    assert backbone.trunk is not None
    pixels = torch.randn(TRUNK_BATCH, 3, 224, 224)
    total = images * (1 + augmentations)

    def bare() -> float:
        backbone.trunk(pixels)
        passes = max(2, total // TRUNK_BATCH // 2)
        begun = time.perf_counter()
        for _ in range(passes):
            backbone.trunk(pixels)
        return passes * len(pixels) / (time.perf_counter() - begun)

    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder) / "images", images)
        dataset = load_dataset("folder", Path(folder) / "images")
        spec = BankSpec.for_encoder(
            backbone, ViewSettings(augmentations=augmentations), Augmentation(crop_scale=0.3)
        )
        bank = Bank(Path(folder) / "bank", spec)
        before = bare()
        begun = time.perf_counter()
        filled = fill(bank, backbone, dataset, dataset.keys, set(dataset.keys), Progress(quiet=True))
        built = filled.new_views / (time.perf_counter() - begun)
        # The speed of the machine varies, so the trunk is timed before and after the build.
        rate = (before + bare()) / 2
    return built / rate, built, rate


def measure() -> dict[str, float]:
    """Measure ViT-S/16 and EfficientNet-Lite0."""
    vit, vit_built, vit_bare = share("vit-s16", images=96, augmentations=8)
    lite, lite_built, lite_bare = share("efficientnet-lite0", images=400, augmentations=8)
    return {
        "bank_share": round(vit, 3),
        "bank_views_per_second": round(vit_built, 1),
        "trunk_views_per_second": round(vit_bare, 1),
        "bank_share_lite0": round(lite, 3),
        "bank_views_per_second_lite0": round(lite_built, 1),
        "trunk_views_per_second_lite0": round(lite_bare, 1),
    }


if __name__ == "__main__":
    print(measure())
