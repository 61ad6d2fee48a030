"""Images and labels that a Python program gives."""

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from camp.app.inputs.base import ImageInput, InputError, ReadableImages
from camp.app.inputs.names import read_label
from camp.data.datasets.base import FileReader
from camp.data.digests import groups, rows_in
from camp.data.images import UnreadableImageError, decode_image, image_digest, to_rgb

ImageLike = str | os.PathLike[str] | Image.Image | np.ndarray
Label = int | str
_EXPECTED = "expected paths, Pillow images, or uint8 arrays (H, W, 3) or (H, W)"


class ImageReader:
    """A `Reader` of n images; their keys are their positions.

    Args:
        images: A sequence of paths, Pillow images and arrays (H, W, 3), (H, W) or (H, W, 1); or an array of n images.
    """

    def __init__(self, images: Iterable[ImageLike]) -> None:
        self.images = [_checked(position, image) for position, image in enumerate(_listed(images))]
        self.keys = [str(position) for position in range(len(self.images))]
        self._lock = threading.Lock()  # Pillow reads a file when its pixels are first used

    def file(self, key: str) -> str:
        """Return the path of an image, or its position in words."""
        image = self.images[int(key)]
        if isinstance(image, Path):
            return os.fsencode(image).decode(errors="replace")
        return f"image {key}"

    def read(self, key: str) -> bytes:
        """Read the file, or encode the pixels as a PPM or PGM file."""
        image = self.images[int(key)]
        if isinstance(image, Path):
            return FileReader(Path()).read(str(image))
        if isinstance(image, Image.Image):
            try:
                with self._lock:
                    image = np.asarray(to_rgb(image))
            except Exception as error:  # of every kind, as in `decode`
                raise UnreadableImageError(
                    f"damaged or truncated ({error or type(error).__name__})"
                ) from error
        height, width = image.shape[:2]
        kind = "P6" if image.ndim == 3 else "P5"
        return f"{kind} {width} {height} 255\n".encode() + image.tobytes()

    def decode(self, data: bytes, min_size: int | None = None) -> Image.Image:
        """Decode an image as RGB."""
        return decode_image(data, min_size=min_size)


@dataclass
class ArrayImages(ImageInput):
    """A batch of images of a Python program."""

    reader: ImageReader
    keys: Sequence[str]
    files: Sequence[str]
    """What each image is called."""
    labels: Sequence[str | None]
    numeric_labels: bool

    name = "Python"

    @classmethod
    def of_images(cls, images: Iterable[ImageLike], labels: ArrayLike | None) -> "ArrayImages":
        """Make a batch of images."""
        reader = ImageReader(images)
        files = [reader.file(key) for key in reader.keys]
        return cls(reader, reader.keys, files, *read_labels(labels, len(files)))

    def readable(
        self, contents: Mapping[str, bytes], faults: Mapping[str, str], learned: np.ndarray, step: int
    ) -> ReadableImages:
        """Select all images; refuse a batch with an unreadable one."""
        for key, file in zip(self.keys, self.files):
            if key in faults:
                raise InputError(f"{file} cannot be read: {faults[key]}; nothing was learned.")
        found = np.array([list(contents[key]) for key in self.keys], dtype=np.uint8)
        return ReadableImages(self.keys, self.files, unique_digests(found, learned, step), self.labels)


def _listed(images: Iterable[ImageLike]) -> list[ImageLike]:
    """Return the images as a list."""
    if isinstance(images, np.ndarray) and images.ndim > 1 and images.dtype != object:
        shape = images.shape
        if len(shape) == 2 or (len(shape) == 3 and shape[-1] in (1, 3)):
            raise InputError(f"An array of shape {shape} is one image; give a list of images, [image].")
        if len(shape) > 4:
            raise InputError(
                f"An array of shape {shape} is not a sequence of images; expected (n, H, W, 3) or (n, H, W)."
            )
    elif isinstance(images, str | bytes | os.PathLike | Image.Image) or not isinstance(images, Iterable):
        raise InputError(f"A {type(images).__name__} is not a list of images; {_EXPECTED}, in a list.")
    listed = list(images)
    if not listed:
        raise InputError("There are no images; give at least one.")
    return listed


def _checked(position: int, image: object) -> Path | Image.Image | np.ndarray:
    """Return a path, a Pillow image or an array of pixels."""
    if isinstance(image, str | os.PathLike):
        return Path(image)
    if isinstance(image, Image.Image):
        return image
    if not isinstance(image, np.ndarray):
        raise InputError(f"Image {position} is of the type {type(image).__name__}; {_EXPECTED}.")
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    if image.dtype != np.uint8 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
        raise InputError(
            f"Image {position} is an array of shape {image.shape} and type {image.dtype}; {_EXPECTED}, with values 0..255."
        )
    if not image.size:
        raise InputError(f"Image {position} has no pixels (shape {image.shape}); leave it out.")
    return image


def read_labels(labels: ArrayLike | None, count: int) -> tuple[list[str | None], bool]:
    """Return the names that the labels of `count` images stand for, and whether the labels are integers.

    Args:
        labels: Names or integers, with -1, None or NaN for unlabelled images; None if no image has a label.

    >>> read_labels([3, None, -1, float("nan")], 4)
    (['3', None, None, None], True)
    """
    if labels is None:
        return [None] * count, False
    if not hasattr(labels, "dtype"):
        labels = np.array(labels, dtype=object)  # numpy would turn NaN or -1 among names into names
    from sklearn.utils import column_or_1d  # takes long to import

    values = column_or_1d(labels, warn=True).tolist()
    if len(values) != count:
        raise InputError(f"There are {len(values)} labels for {count} images; give one for each.")
    known = [read_label(value) for value in values]
    if len({numeric for name, numeric in known if name is not None}) > 1:
        raise InputError("Some labels are names and others numbers; give either.")
    return [name for name, _ in known], any(numeric for _, numeric in known)


def unique_digests(digests: np.ndarray, learned: np.ndarray, step: int) -> np.ndarray:
    """Return digests (n, 16) that differ for all images, even for images with equal digests (n, 16).

    In a program, equal rows are still several rows: only the first one keeps the hash of its content, unless it was
    `learned` (m, 16) before.
    """
    first, group = groups(digests)
    again = (first[group] != np.arange(len(digests))) | (rows_in(digests, learned) >= 0)
    found = digests.copy()
    for row in np.flatnonzero(again):
        text = digests[row].tobytes() + f" {step} {row}".encode()
        found[row] = np.frombuffer(image_digest(text), dtype=np.uint8)
    return found
