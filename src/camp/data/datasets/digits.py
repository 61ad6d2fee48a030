"""Handwritten digits of scikit-learn: 1,797 images of 8 x 8 pixels, installed with the library."""

from pathlib import Path

import numpy as np
from PIL import Image

from camp.data.datasets.base import Dataset, holdout_mask
from camp.data.datasets.info import DatasetInfo
from camp.data.images import UnreadableImageError

SIDE = 8
TEST_SHARE = 0.3


class RasterReader:
    """Reader of images in memory: `rasters` (N, side, side[, 3]) uint8, one per key."""

    def __init__(self, keys: tuple[str, ...], rasters: np.ndarray) -> None:
        self.rows = {key: row for row, key in enumerate(keys)}
        self.rasters = rasters

    def read(self, key: str) -> bytes:
        """Return the pixels, row by row."""
        return bytes(self.rasters[self.rows[key]].tobytes())

    def decode(self, data: bytes, min_size: int | None = None) -> Image.Image:
        """Decode the pixels to an RGB image."""
        shape = self.rasters.shape[1:]
        if len(data) != np.prod(shape):
            raise UnreadableImageError(f"{len(data)} bytes are not an image of shape {shape}")
        return Image.fromarray(np.frombuffer(data, dtype=np.uint8).reshape(shape)).convert("RGB")


def load(data: Path | None = None) -> Dataset:
    """Load the digits 0..9; a fixed 30 % of each class are test images."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    # Grey levels are 0..16.
    rasters = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    labels = digits.target.astype(np.int64)
    keys = tuple(f"{index:04d}" for index in range(len(labels)))
    return Dataset(
        name="digits",
        classes=tuple(str(digit) for digit in range(10)),
        keys=keys,
        labels=labels,
        is_test=holdout_mask(labels, TEST_SHARE, "digits"),
        reader=RasterReader(keys, rasters),
    )


INFO = DatasetInfo(
    name="digits",
    title="Handwritten digits (scikit-learn)",
    loader=load,
    n_classes=10,
    images="1,797 of 8 x 8",
    size="installed",
    licence="CC BY 4.0 (UCI)",
    how_to_get="It is installed with scikit-learn; there is nothing to get.",
    layouts="nothing: it is installed",
    embedded=True,
    tasks=2,
    crop_scale=0.5,
    flip=False,
    saturation=0.0,
    colour=False,
    backbone="conv-tiny",
)
