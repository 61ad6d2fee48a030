"""A data set: names of pictures, their classes, and a reader from names to bytes and from bytes to pixels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from camp.core.errors import CampError
from camp.core.seeds import numpy_generator
from camp.data.images import BadImage, decode

MAX_FILE_BYTES = 1 << 29
"""A larger picture file is a mistake; it is not read into memory."""


class Reader(Protocol):
    """Where the pictures of a data set are."""

    def read(self, key: str) -> bytes:
        """The bytes that identify picture `key`; `BadImage` if there are none."""

    def decode(self, data: bytes, at_least: int | None = None) -> Image.Image | np.ndarray:
        """An RGB picture, or a vector (D,) float32; `at_least` as in `camp.data.images.decode`."""


@dataclass(frozen=True)
class FileReader:
    """Pictures that are files under `root`; a key is a path relative to it."""

    root: Path

    def read(self, key: str) -> bytes:
        """The whole file."""
        path = self.root / key
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise BadImage(f"the file is larger than {MAX_FILE_BYTES:,} bytes")
            return path.read_bytes()
        except OSError as error:
            raise BadImage(f"the file cannot be read ({error.strerror or error})") from error

    def decode(self, data: bytes, at_least: int | None = None) -> Image.Image:
        """Whatever the file holds, as RGB."""
        return decode(data, at_least=at_least)


@dataclass(frozen=True, eq=False)
class Dataset:
    """N pictures in C classes, each in the train or the test part; nothing depends on the order of a disk."""

    name: str
    classes: tuple[str, ...]
    """C class names, in the data set's own order."""
    keys: tuple[str, ...]
    """N names, such as `train/dog/7.png`."""
    labels: np.ndarray
    """(N,) int64, positions in `classes`."""
    is_test: np.ndarray
    """(N,) bool."""
    domains: tuple[str, ...] | None
    """The domain of each class, where classes have one."""
    reader: Reader

    def __post_init__(self) -> None:
        count = len(self.keys)
        if not count:
            raise CampError(f"Data set {self.name} has no pictures.")
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
                f"Class {missing!r} of {self.name} has no train picture; add some or remove the class."
            )

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, key: str) -> bytes:
        """The raw bytes that identify the picture."""
        return self.reader.read(key)

    def decode(self, data: bytes, at_least: int | None = None) -> Image.Image | np.ndarray:
        """Those bytes as an RGB picture, or as a float32 vector (D,) for embeddings."""
        return self.reader.decode(data, at_least)


@dataclass(frozen=True)
class Listed:
    """One picture as a data set's files list it."""

    key: str
    class_name: str
    is_test: bool


def listed_dataset(
    name: str,
    classes: Sequence[str],
    pictures: Iterable[Listed],
    reader: Reader,
    domains: Sequence[str] | None = None,
) -> Dataset:
    """A data set from a list of pictures in any order."""
    ordered = sorted(pictures, key=lambda picture: picture.key)
    position = {class_name: index for index, class_name in enumerate(classes)}
    return Dataset(
        name=name,
        classes=tuple(classes),
        keys=tuple(picture.key for picture in ordered),
        labels=np.array([position[picture.class_name] for picture in ordered], dtype=np.int64),
        is_test=np.array([picture.is_test for picture in ordered], dtype=bool),
        domains=None if domains is None else tuple(domains),
        reader=reader,
    )


def held_out(labels: np.ndarray, share: float, *names: object) -> np.ndarray:
    """Test marks (N,) for about `share` of each class in `labels` (N,); train keeps one picture at least.

    The draw of a class is called by `names` and its label, so that no class depends on another.

    >>> int(held_out(np.array([0] * 10 + [1] * 20), 0.3, "example").sum())
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


def reference_split(members: Mapping[str, Iterable[str]]) -> list[Listed]:
    """The reference's 90/10 split of the keys of each class.

    By file name, the pictures with index j <= 0.1 n are test pictures: a tenth, and one more.

    >>> sum(picture.is_test for picture in reference_split({"a": [f"a/{n:02d}.png" for n in range(60)]}))
    7
    """
    pictures = []
    for class_name, keys in members.items():
        ordered = sorted(keys, key=lambda key: key.rsplit("/", 1)[-1])
        pictures += [Listed(key, class_name, j <= 0.1 * len(ordered)) for j, key in enumerate(ordered)]
    return pictures
