"""Read, decode and encode images."""

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from camp.data.datasets.base import Reader
from camp.data.images import UnreadableImageError, resize_image
from camp.data.views import Batch, Trunk

TRUNK_BATCH = 24
"""Views per forward pass of the trunk: enough to be efficient, few enough to stay in the cache."""
_MIN_SIZE_FACTOR = 4
"""A JPEG is decoded at a fraction of its size if that is at least this many times the resolution."""


def read_image(reader: Reader, key: str) -> bytes:
    """Read the bytes of image `key`; raise `UnreadableImageError` with the reason if that fails."""
    try:
        return reader.read(key)
    except OSError as error:
        raise UnreadableImageError(f"could not be read ({error.strerror or error})") from error


def decode_resized(
    decode: Callable[..., Image.Image | np.ndarray], data: bytes, resolution: int
) -> np.ndarray:
    """Decode `data` with `Reader.decode` to pixels (R, R, 3) uint8 or a vector (D,) float32."""
    try:
        image = decode(data, min_size=_MIN_SIZE_FACTOR * resolution)
    except OSError as error:
        raise UnreadableImageError(str(error)) from error
    return resize_image(image, resolution) if isinstance(image, Image.Image) else image


def run_trunk(trunk: Trunk | None, x: Tensor, batch_size: int) -> Batch:
    """Compute the trunk's fields for normalised views x (n, 3, R, R); without a trunk, return the pixels."""
    if trunk is None:
        return {"pixels": x}
    parts = [trunk(part) for part in torch.split(x, batch_size)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
