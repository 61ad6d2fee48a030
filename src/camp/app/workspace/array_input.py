"""What a Python program gives instead of folders: pictures as paths, Pillow images or arrays, and labels of its own."""

import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.utils import column_or_1d

from camp.app.workspace.names import check_name
from camp.core.errors import CampError
from camp.data.bank.bank import digest_of
from camp.data.datasets.base import FileReader
from camp.data.images import BadImage, decode, rgb

_EXPECTED = "expected paths, Pillow images, or uint8 arrays (H, W, 3) or (H, W)"


class NotUsable(CampError, ValueError):
    """A `CampError` where scikit-learn expects a `ValueError`."""


class GivenImages:
    """n pictures of any kind as a `Reader`; their keys are their places."""

    def __init__(self, images: Any) -> None:
        """`images`: a sequence of paths, Pillow images and arrays (H, W, 3), (H, W) or (H, W, 1); or an array of n such."""
        self.images = [_checked(place, image) for place, image in enumerate(_listed(images))]
        self.keys = [str(place) for place in range(len(self.images))]
        self._one_at_a_time = threading.Lock()  # Pillow reads a file when its pixels are first asked for

    def file(self, key: str) -> str:
        """What the picture is called: its path, or its place."""
        image = self.images[int(key)]
        if isinstance(image, Path):
            return os.fsencode(image).decode(errors="replace")
        return f"image {key}"

    def read(self, key: str) -> bytes:
        """The file, or the pixels as a PPM or PGM file."""
        image = self.images[int(key)]
        if isinstance(image, Path):
            return FileReader(Path()).read(str(image))
        if isinstance(image, Image.Image):
            try:
                with self._one_at_a_time:
                    image = np.asarray(rgb(image))
            except Exception as error:  # of every kind, as in `decode`
                raise BadImage(f"damaged or truncated ({error or type(error).__name__})") from error
        height, width = image.shape[:2]
        kind = "P6" if image.ndim == 3 else "P5"
        return f"{kind} {width} {height} 255\n".encode() + image.tobytes()

    def decode(self, data: bytes, at_least: int | None = None) -> Image.Image:
        """The picture as RGB."""
        return decode(data, at_least=at_least)


def _listed(images: Any) -> list[Any]:
    """The single pictures."""
    if isinstance(images, np.ndarray) and images.ndim > 1 and images.dtype != object:
        if images.ndim == 2 or (images.ndim == 3 and images.shape[-1] in (1, 3)):
            raise NotUsable(
                f"An array of shape {images.shape} is one picture; give a list of pictures, [picture]."
            )
        if images.ndim > 4:
            raise NotUsable(
                f"An array of shape {images.shape} is no pictures; expected (n, H, W, 3) or (n, H, W)."
            )
    elif isinstance(images, str | bytes | os.PathLike | Image.Image) or not isinstance(images, Iterable):
        raise NotUsable(f"A {type(images).__name__} is no list of pictures; {_EXPECTED}, in a list.")
    listed = list(images)
    if not listed:
        raise NotUsable("There are no pictures; give at least one.")
    return listed


def _checked(place: int, image: Any) -> Path | Image.Image | np.ndarray:
    """`image` as one of three kinds."""
    if isinstance(image, str | os.PathLike):
        return Path(image)
    if isinstance(image, Image.Image):
        return image
    if not isinstance(image, np.ndarray):
        raise NotUsable(f"Image {place} is of the type {type(image).__name__}; {_EXPECTED}.")
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    if image.dtype != np.uint8 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
        raise NotUsable(
            f"Image {place} is an array of shape {image.shape} and type {image.dtype}; {_EXPECTED}, with values 0..255."
        )
    if not image.size:
        raise NotUsable(f"Image {place} has no pixels (shape {image.shape}); leave it out.")
    return image


@dataclass(frozen=True)
class Labels:
    """Labels of n pictures."""

    names: list[str | None]
    """Whole numbers as their digits; None where unlabelled."""
    numbers: bool | None
    """Whether they are whole numbers; None where nothing is labelled."""


def read_labels(labels: Any, count: int) -> Labels:
    """Labels of `count` pictures: names or whole numbers, and -1, None or NaN for unlabelled; None: all are unlabelled.

    >>> read_labels([3, None, -1, float("nan")], 4)
    Labels(names=['3', None, None, None], numbers=True)
    """
    if labels is None:
        return Labels([None] * count, None)
    if not hasattr(labels, "dtype"):
        labels = np.array(labels, dtype=object)  # numpy itself would turn NaN or -1 among names into names
    values = column_or_1d(labels, warn=True).tolist()
    if len(values) != count:
        raise NotUsable(f"There are {len(values)} labels for {count} pictures; give one for each.")
    known = [read_label(value) for value in values]
    kinds = {number for name, number in known if name is not None}
    if len(kinds) > 1:
        raise NotUsable("Some labels are names and others numbers; give either.")
    return Labels([name for name, _ in known], next(iter(kinds), None))


def read_label(value: Any) -> tuple[str | None, bool]:
    """The name that a label is, None for unlabelled, and whether it is a number."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and np.isnan(value)) or value == -1:
        return None, False
    if isinstance(value, str):
        name = check_name(value)
        if name != value:
            raise NotUsable(f"The label {value!r} would be called {name!r}; give it as it is to be called.")
        return name, False
    if not isinstance(value, int | float) or value != value // 1:
        raise NotUsable(
            f"Unknown label type: {value!r} is neither a name nor a whole number; use -1 or None for unlabelled."
        )
    if value < 0:
        raise NotUsable(
            f"The label {value} is negative; -1 means unlabelled, and other negative numbers are discovered categories."
        )
    return str(int(value)), True


def own_digests(contents: Sequence[bytes], taken: Iterable[bytes], step: int) -> np.ndarray:
    """(n, 16) uint8 fingerprints under which each of `contents` counts, though the same may have come before.

    In a program rows that are equal are still several rows: only the first one goes by the fingerprint of its content.
    """
    used, digests = set(taken), []
    for row, content in enumerate(contents):
        digest = content if content not in used else digest_of(content + f" {step} {row}".encode())
        used.add(digest)
        digests.append(list(digest))
    return np.array(digests, dtype=np.uint8)
