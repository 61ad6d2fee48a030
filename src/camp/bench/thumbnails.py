"""Small pictures of discovered categories, kept in the run folder so that a report needs no data set."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from camp.core.files import replacing
from camp.data.datasets.base import Dataset

_SIDE = 112


def save_thumbnails(dataset: Dataset, keys: Sequence[str], out: Path, name: str) -> list[str]:
    """Write `thumbnails/<name>-<i>.jpg` for each picture; their paths relative to `out`. Vectors have none."""
    written: list[str] = []
    for key in keys:
        picture = dataset.decode(dataset.read(key))
        if not isinstance(picture, Image.Image):
            return []
        if max(picture.size) < _SIDE:  # a raster of few pixels is enlarged as it is, not blurred
            scale = _SIDE // max(picture.size)
            picture = picture.resize(
                (picture.width * scale, picture.height * scale), Image.Resampling.NEAREST
            )
        picture.thumbnail((_SIDE, _SIDE))
        path = f"thumbnails/{name}-{len(written)}.jpg"
        with replacing(out / path) as file:
            picture.save(file, format="JPEG", quality=80)
        written.append(path)
    return written
