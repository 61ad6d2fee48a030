"""Small models whose answers are of every kind: sure, doubtful, unknown."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from camp.app.prediction.model import Model
from camp.data.augmentations import normalise_, to_unit
from camp.data.datasets.base import FileReader, Reader
from camp.data.images import resize_image
from camp.data.vector_files import VectorReader
from camp.discovery.class_metric import ClassMetric
from camp.discovery.open_set import OpenSet
from camp.nn.backbones import make_backbone
from camp.nn.backbones.base import Backbone
from camp.nn.backbones.settings import BackboneSettings

IDS = (7, 2, 31, 4)
NAMES = ("heron", None, "marsh, wren", "Käfer")

KINDS = {
    "lite0": BackboneSettings(resolution=32),
    "lite0 on torch": BackboneSettings(resolution=32, engine="torch"),
    "lite0 mbconv": BackboneSettings(resolution=64, tip="mbconv", trained_blocks=2),
    "vit": BackboneSettings(backbone="vit-s16", weights="random", depth=2, resolution=32),
    "vit scaled": BackboneSettings(
        backbone="vit-s14", weights="random", depth=3, resolution=28, trained_blocks=2
    ),
    "conv-tiny": BackboneSettings(backbone="conv-tiny"),
    "conv-tiny odd": BackboneSettings(backbone="conv-tiny", resolution=20),
    "resnet18": BackboneSettings(backbone="resnet18"),
    "resnet18 large": BackboneSettings(backbone="resnet18", resolution=80),
    "embeddings": BackboneSettings(backbone="embeddings", dim=12),
}


def write_pictures(folder: Path, count: int) -> list[str]:
    """`count` JPEG and PNG files of coloured blobs; their names."""
    rng = np.random.default_rng(5)
    keys = []
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        blobs = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
        keys.append(f"{i:03d}.{('jpg', 'png')[i % 2]}")
        blobs.resize((90 + i, 70), Image.Resampling.BICUBIC).save(folder / keys[-1])
    return keys


def reader_for(settings: BackboneSettings, folder: Path, count: int) -> tuple[Reader, list[str]]:
    """Pictures below `folder`, or vectors, whichever the backbone takes."""
    if settings.backbone != "embeddings":
        return FileReader(folder), write_pictures(folder, count)
    keys = tuple(f"{i:03d}" for i in range(count))
    vectors = np.random.default_rng(5).normal(size=(count, settings.dim)).astype(np.float32)
    return VectorReader(vectors), list(keys)


def features_of(backbone: Backbone, reader: Reader, keys: list[str]) -> torch.Tensor:
    """(n, D), one picture at a time."""
    found = []
    for key in keys:
        content = reader.decode(reader.read(key))
        if isinstance(content, np.ndarray):
            batch = {"vector": torch.from_numpy(content)[None]}
        else:
            pixels = torch.from_numpy(resize_image(content, backbone.resolution))[None]
            x = normalise_(to_unit(pixels), backbone.mean, backbone.std)
            batch = {"pixels": x} if backbone.trunk is None else backbone.trunk(x)
        with torch.no_grad():
            found.append(backbone.tip.eval()(batch))
    return torch.cat(found)


def small_model(settings: BackboneSettings, reader: Reader, keys: list[str], categories: int = 4) -> Model:
    """A trained-looking model: each category lies near one of the pictures, some reach further than others."""
    generator = torch.Generator().manual_seed(3)
    backbone = make_backbone(settings, generator)
    with torch.no_grad():
        for name, tensor in backbone.tip.state_dict().items():
            if tensor.is_floating_point():
                noise = 0.05 * torch.randn(tensor.shape, generator=generator)
                tensor.add_(noise.abs() if "var" in name else noise)
    z = features_of(backbone, reader, keys)
    dim = min(8, z.shape[1])
    projection = torch.randn(z.shape[1], dim, generator=generator)
    metric = ClassMetric(z.mean(dim=0), projection, torch.randn(dim, generator=generator) / 10, unit=True)
    z = metric.transform(z)
    centroids = z[:categories] + 0.2 * (z[categories : 2 * categories] - z[:categories])
    squares = torch.cdist(z, centroids).square()
    reach = squares.amin(dim=1).median().sqrt()
    radii = torch.tensor([1.03, 0.7, 1.5, 0.7])[:categories] * reach
    classifier = OpenSet(centroids, radii, temperature=float(squares.mean()) / 4)
    return Model(backbone, metric, classifier, IDS[:categories], NAMES[:categories])
