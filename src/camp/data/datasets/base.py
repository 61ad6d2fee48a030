"""Data sets: keys of images, their classes, and a reader that loads and decodes them."""

import functools
import json
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from camp.core.errors import CampError
from camp.core.seeds import numpy_generator
from camp.data.images import UnreadableImageError, decode_image

MAX_FILE_BYTES = 1 << 29
"""Larger files are not read into memory."""


class Reader(Protocol):
    """Access to the images of a data set by key."""

    def read(self, key: str) -> bytes:
        """Return the bytes of image `key`; raise `UnreadableImageError` if there are none."""

    def decode(self, data: bytes, min_size: int | None = None) -> Image.Image | np.ndarray:
        """Decode the bytes to an RGB image or a vector (D,) float32; `min_size` as in `decode_image`."""


@dataclass(frozen=True)
class FileReader:
    """Reader of image files under `root`; a key is a path relative to it."""

    root: Path

    def read(self, key: str) -> bytes:
        """Read the whole file."""
        path = self.root / key
        try:
            about = path.stat()
            if not stat.S_ISREG(about.st_mode):  # reading a pipe could wait forever
                raise UnreadableImageError("it is not a file")
            if about.st_size > MAX_FILE_BYTES:
                raise UnreadableImageError(f"the file is larger than {MAX_FILE_BYTES:,} bytes")
            return path.read_bytes()
        except OSError as error:
            raise UnreadableImageError(f"the file cannot be read ({error.strerror or error})") from error

    def decode(self, data: bytes, min_size: int | None = None) -> Image.Image:
        """Decode an image file to RGB."""
        return decode_image(data, min_size=min_size)


@dataclass(frozen=True, eq=False)
class Dataset:
    """N images of C classes, each in the train or the test part, in the order of their keys."""

    name: str
    classes: tuple[str, ...]
    """C class names, in the order of the data set."""
    keys: tuple[str, ...]
    """N sorted keys, such as `train/dog/7.png`."""
    labels: np.ndarray
    """Class indices (N,) int64."""
    is_test: np.ndarray
    """Mask (N,) bool of the test images."""
    reader: Reader
    domains: tuple[str, ...] | None = None
    """Domain of each class, or None."""

    def __post_init__(self) -> None:
        count = len(self.keys)
        if not count:
            raise CampError(f"Data set {self.name} has no images.")
        if self.labels.shape != (count,) or self.is_test.shape != (count,):
            raise CampError(
                f"Data set {self.name} has {count} keys but labels of shape {self.labels.shape} "
                f"and test marks of shape {self.is_test.shape}; give one of each for every key."
            )
        if self.labels.dtype != np.int64 or self.is_test.dtype != np.bool_:
            raise CampError(f"Data set {self.name} needs int64 labels and bool test marks.")
        if any(before >= after for before, after in zip(self.keys, self.keys[1:])):
            raise CampError(f"Data set {self.name} needs keys that are sorted and different from each other.")
        if len(set(self.classes)) != len(self.classes):
            raise CampError(f"Data set {self.name} names a class twice; class names must differ.")
        if self.domains is not None and len(self.domains) != len(self.classes):
            raise CampError(
                f"Data set {self.name} needs one domain for each of its {len(self.classes)} classes."
            )
        if self.labels.min() < 0 or self.labels.max() >= len(self.classes):
            raise CampError(f"Data set {self.name} has labels outside 0..{len(self.classes) - 1}.")
        train = np.bincount(self.labels[~self.is_test], minlength=len(self.classes))
        if not train.all():
            missing = self.classes[int(np.argmin(train > 0))]
            raise CampError(
                f"Class {missing!r} of {self.name} has no train image; add some or remove the class."
            )

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, key: str) -> bytes:
        """Return the bytes of image `key`."""
        return self.reader.read(key)

    def decode(self, data: bytes, min_size: int | None = None) -> Image.Image | np.ndarray:
        """Decode the bytes to an RGB image, or to a float32 vector (D,) for embeddings."""
        return self.reader.decode(data, min_size)


@dataclass(frozen=True)
class Sample:
    """Key, class and part of one image."""

    key: str
    class_name: str
    is_test: bool


def dataset_from_samples(
    name: str,
    classes: Sequence[str],
    samples: Iterable[Sample],
    reader: Reader,
    domains: Sequence[str] | None = None,
) -> Dataset:
    """Build a data set from samples in any order."""
    ordered = sorted(samples, key=lambda sample: sample.key)
    position = {class_name: index for index, class_name in enumerate(classes)}
    return Dataset(
        name=name,
        classes=tuple(classes),
        keys=tuple(sample.key for sample in ordered),
        labels=np.array([position[sample.class_name] for sample in ordered], dtype=np.int64),
        is_test=np.array([sample.is_test for sample in ordered], dtype=bool),
        domains=None if domains is None else tuple(domains),
        reader=reader,
    )


def holdout_mask(labels: np.ndarray, share: float, *names: object) -> np.ndarray:
    """Draw a test mask (N,) with about `share`, but never all, of each class in `labels` (N,).

    The draw of a class is seeded by `names` and its label, so it does not depend on other classes.

    >>> int(holdout_mask(np.array([0] * 10 + [1] * 20), 0.3, "example").sum())
    9
    """
    if not 0 < share < 1:
        raise CampError(f"The test share must lie between 0 and 1, not {share}.")
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        count = min(round(share * len(rows)), len(rows) - 1)
        is_test[numpy_generator(0, "held out", *names, label).permutation(rows)[:count]] = True
    return is_test


def reference_split(members: Mapping[str, Iterable[str]]) -> list[Sample]:
    """Split the keys of each class 90/10 as the authors' code does.

    Sorted by file name, the images with index j <= 0.1 n are test images: a tenth, and one more.

    >>> sum(sample.is_test for sample in reference_split({"a": [f"a/{n:02d}.png" for n in range(60)]}))
    7
    """
    samples = []
    for class_name, keys in members.items():
        ordered = sorted(keys, key=lambda key: key.rsplit("/", 1)[-1])
        samples += [Sample(key, class_name, j <= 0.1 * len(ordered)) for j, key in enumerate(ordered)]
    return samples


@functools.cache
def official_names(dataset: str) -> tuple[str, ...]:
    """Return the class names of `cifar10`, `cifar100`, `stanford_cars` or `fgvc_aircraft`.

    >>> len(official_names("stanford_cars")), official_names("fgvc_aircraft")[0]
    (196, '707-320')
    """
    text = resources.files("camp.data.datasets").joinpath("class_names.json").read_text(encoding="utf-8")
    return tuple(json.loads(text)[dataset])
