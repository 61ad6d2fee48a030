"""Thumbnails of discovered categories, kept in the run folder so that a report needs no data set."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from camp.core.files import atomic_write
from camp.data.datasets.base import Dataset

_SIDE = 112


def save_thumbnails(dataset: Dataset, keys: Sequence[str], out: Path, name: str) -> list[str]:
    """Write `thumbnails/<name>-<i>.jpg` for each image and return the paths relative to `out`; none for vectors."""
    written: list[str] = []
    for key in keys:
        image = dataset.decode(dataset.read(key))
        if not isinstance(image, Image.Image):
            return []
        if max(image.size) < _SIDE:  # enlarge small images without blur
            scale = _SIDE // max(image.size)
            image = image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
        image.thumbnail((_SIDE, _SIDE))
        path = f"thumbnails/{name}-{len(written)}.jpg"
        with atomic_write(out / path) as file:
            image.save(file, format="JPEG", quality=80)
        written.append(path)
    return written
