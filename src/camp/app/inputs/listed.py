"""Images that were listed, with labels, and are read one at a time."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self, TypeVar

import numpy as np
from PIL import Image

from camp.app.inputs.base import MAX_UNREADABLE, ImageInput, ReadableImages
from camp.app.inputs.names import UNLABELLED_FOLDERS, check_name, near_misses, normalised, read_label
from camp.core.errors import CampError
from camp.data.datasets.base import Reader
from camp.data.images import decode_image

MAX_CONTRADICTIONS = 20
"""Contradictions that an error message lists."""

Access = Literal["local", "remote", "sequential"]
"""How images are read: any of them quickly; any of them over a network; or quickly only in the order of the listing."""


class SourceReader(ABC):
    """Reader of the images of a source. It is small and can be sent to other processes."""

    @abstractmethod
    def read(self, key: str) -> bytes:
        """Return the bytes of image `key`; raise `UnreadableImageError` if there are none."""

    def decode(self, data: bytes, min_size: int | None = None) -> Image.Image:
        """Decode an image file to RGB."""
        return decode_image(data, min_size=min_size)

    def part(self, keys: Sequence[str]) -> "SourceReader":
        """Return a reader of only these images, which may be smaller."""
        return self


class ListedImages(ImageInput):
    """The images of a folder or of another source, with labels."""

    root: Path | str
    """The source, as it was given."""
    keys: tuple[str, ...]
    labels: tuple[str | None, ...]
    access: Access = "local"

    @property
    def source(self) -> str:
        """The source, in the same words from every folder of this machine."""
        is_path = isinstance(self.root, Path) or not re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:", self.root)
        return os.path.abspath(self.root) if is_path else str(self.root)  # noqa: PTH100 (it may be a pattern)

    @abstractmethod
    def select(self, keys: Sequence[str], labels: Sequence[str | None]) -> Self:
        """Return some of the images, with these labels."""

    def location(self, key: str) -> str:
        """Return where an image is, for messages."""
        return located(self.root, key)

    @abstractmethod
    def reader_of(self, keys: Sequence[str]) -> Reader:
        """Return a reader of some of the images, to be sent to another process."""

    @abstractmethod
    def places(self) -> Sequence[Path]:
        """Return the absolute paths of files and folders that another machine must see to read the images."""

    @abstractmethod
    def files_read(self) -> Iterator[Path]:
        """Yield the files of this machine that are read."""

    def warnings(self, names: Sequence[str]) -> list[str]:
        """Return a sentence for each label that looks like a misspelled name."""
        return near_misses([label for label in self.labels if label is not None], names)

    def readable(
        self, contents: Mapping[str, bytes], faults: Mapping[str, str], learned: np.ndarray, step: int
    ) -> ReadableImages:
        """Select the readable images, each once; refuse a batch most of which cannot be read."""
        images, remarks = merge_copies(self, contents)
        if faults and len(faults) > MAX_UNREADABLE * (len(images.keys) + len(faults)):
            first = min(faults)
            raise CampError(
                f"{len(faults)} of {len(images.keys) + len(faults)} pictures cannot be read (first: {first}: "
                f"{faults[first]}), so nothing was learned; repair or remove them."
            )
        return ReadableImages(
            keys=images.keys,
            files=[f"{self.name}/{key}" for key in images.keys],
            digests=np.array([list(contents[key]) for key in images.keys], dtype=np.uint8),
            labels=images.labels,
            remarks=remarks,
        )


@dataclass
class SourceImages(ListedImages):
    """The images of a source other than a folder of this machine."""

    root: str
    name: str
    """What the batch is called."""
    reader: SourceReader
    keys: tuple[str, ...]
    labels: tuple[str | None, ...]
    access: Access = "local"
    files: tuple[Path, ...] = ()
    """Files of this machine that hold the images."""

    def select(self, keys: Sequence[str], labels: Sequence[str | None]) -> Self:
        """Return some of the images, with these labels."""
        return replace(self, keys=tuple(keys), labels=tuple(labels))

    def reader_of(self, keys: Sequence[str]) -> Reader:
        """Return a reader of some of the images, to be sent to another process."""
        return self.reader.part(keys)

    def places(self) -> Sequence[Path]:
        """Return the files that hold the images."""
        return self.files

    def files_read(self) -> Iterator[Path]:
        """Yield the files of this machine that are read."""
        yield from self.files


def located(root: Path | str, key: str) -> str:
    """Return where an image of a source is, for messages.

    >>> located("s3://birds/", "heron/1.jpg")
    's3://birds/heron/1.jpg'
    """
    return str(root / key) if isinstance(root, Path) else f"{root.rstrip('/')}/{key}"


Images = TypeVar("Images", bound=ListedImages)


def merge_copies(images: Images, digests: Mapping[str, bytes]) -> tuple[Images, list[str]]:
    """Keep each readable image once, and return sentences about what was merged.

    Of equal files the first labelled one is kept, or the first one. An image under two labels is a contradiction.
    `digests` holds the hashes of the readable files by key; the other files are left out.
    """
    label_of = dict(zip(images.keys, images.labels))
    copies: dict[bytes, list[str]] = {}
    for key in sorted(label_of.keys() & digests.keys()):
        copies.setdefault(digests[key], []).append(key)

    kept, contradictions, repeated, partly_labelled = [], [], 0, 0
    for files in copies.values():
        labelled = {label: key for key in reversed(files) if (label := label_of[key]) is not None}
        if len(labelled) > 1:
            (label, key), *others = sorted(labelled.items(), key=lambda item: item[1])
            same = [f"the same picture {images.location(key)} says {label}" for label, key in others]
            contradictions.append(f"{images.location(key)}: the label says {label}, {', '.join(same)}")
        kept.append(min(labelled.values(), default=files[0]))
        repeated += len(files) > 1
        partly_labelled += bool(labelled) and any(label_of[key] is None for key in files)
    refuse_contradictions(contradictions)

    remarks = []
    if repeated:
        counts = "counts" if repeated == 1 else "count"
        remarks.append(f"{_pictures(repeated, 'is', 'are')} there more than once and {counts} once.")
    if partly_labelled:
        pictures = _pictures(partly_labelled, "is", "are")
        remarks.append(f"{pictures} there both with and without a label: the label counts.")
    keys = tuple(sorted(kept))
    return images.select(keys, [label_of[key] for key in keys]), remarks


def _pictures(number: int, singular: str, plural: str) -> str:
    """Return a number of pictures with the form of a verb."""
    return f"1 picture {singular}" if number == 1 else f"{number} pictures {plural}"


def refuse_contradictions(contradictions: Sequence[str]) -> None:
    """Raise an error that lists the contradictions, if there are any."""
    if not contradictions:
        return
    more = len(contradictions) - MAX_CONTRADICTIONS
    lines = [
        f"{_pictures(len(contradictions), 'has', 'have')} labels that contradict each other, so nothing was learned; correct them and try again.",
        *contradictions[:MAX_CONTRADICTIONS],
        *([f"and {more} more"] if more > 0 else []),
    ]
    raise CampError("\n".join(lines))


def label_of(value: object, where: str) -> str | None:
    """Return the label that a field of a source holds: a name, a number, or None.

    Args:
        value: The content of the field.
        where: The image and the field, for the message about a name that is not valid.

    >>> label_of("heron", ""), label_of(3, ""), label_of("-1", ""), label_of(" ", "")
    ('heron', '3', None, None)
    """
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]+\s*", value):
        value = int(value)
    try:
        if not isinstance(value, str):
            return read_label(value)[0]
        name = normalised(value)
        return None if not name or name.casefold() in UNLABELLED_FOLDERS else check_name(name)
    except CampError as error:
        raise CampError(f"{where}: {error}") from None
