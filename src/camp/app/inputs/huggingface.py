"""Data sets of Hugging Face's `datasets`: a folder that `save_to_disk` has written, or a name."""

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camp.app.inputs.listed import SourceImages, SourceReader, label_of
from camp.app.inputs.parquet import IMAGE_COLUMN, LABEL_COLUMN, check_column, image_bytes
from camp.app.inputs.urls import reason_of
from camp.core.errors import CampError
from camp.core.extras import import_extra
from camp.data.images import UnreadableImageError

PREFIX = "hf:"
"""Begins the name of a data set, as in hf:OWNER/NAME:train."""


def is_saved_dataset(folder: Path) -> bool:
    """Return whether `save_to_disk` has written a folder."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


@functools.lru_cache(maxsize=4)
def _open(source: str) -> Any:
    """Open a data set without decoding its images; each process does that once."""
    datasets = import_extra("datasets", "formats", "Reading a data set of Hugging Face")
    datasets.disable_progress_bars()
    name, split = source, ""
    try:
        if source.startswith(PREFIX):
            name, _, split = source.removeprefix(PREFIX).partition(":")
            found = datasets.load_dataset(name)
        else:
            found = datasets.load_from_disk(source)
    except Exception as error:  # of every kind: wrong names, no network, damaged files
        raise CampError(f"The data set {name} cannot be opened ({reason_of(error)}).") from error
    if not isinstance(found, datasets.DatasetDict):
        return found
    if not split and len(found) == 1:
        split = next(iter(found))
    if split not in found:
        example = (
            f"{PREFIX}{name}:{next(iter(found))}"
            if source.startswith(PREFIX)
            else f"{source}/{next(iter(found))}"
        )
        raise CampError(f"The data set {name} has the parts {', '.join(found)}; choose one, as in {example}.")
    return found[split]


@functools.lru_cache(maxsize=4)
def _images(source: str, column: str) -> Any:
    """Return the column of a data set with the images as they are stored."""
    datasets = import_extra("datasets", "formats", "Reading a data set of Hugging Face")
    found = _open(source).select_columns([column])
    if isinstance(found.features[column], datasets.Image):
        found = found.cast_column(column, datasets.Image(decode=False))
    return found


@dataclass(frozen=True)
class DatasetReader(SourceReader):
    """Reader of the images of a data set, which is a memory map on disk; a key is the number of a row in six digits."""

    source: str
    column: str

    def read(self, key: str) -> bytes:
        """Read the image in a row."""
        try:
            cell = _images(self.source, self.column)[int(key)][self.column]
        except CampError:
            raise
        except Exception as error:  # of every kind, if files are damaged
            raise UnreadableImageError(f"the row cannot be read ({reason_of(error)})") from error
        return image_bytes(cell, "")


def read_dataset(
    source: str, image_field: str | None, label_field: str | None, labelled: bool
) -> SourceImages:
    """List the rows of a data set; of their content only labels are read.

    Args:
        source: Folder of `save_to_disk`, or `hf:NAME` or `hf:NAME:PART`.
        image_field: Column of the images; None takes the first that holds images.
        label_field: Column of the labels; None takes `label` if there is one.
        labelled: Whether labels are read.
    """
    if not source.startswith(PREFIX):
        source = os.path.realpath(source)  # the same in other processes
    found = _open(source)
    datasets = import_extra("datasets", "formats", "Reading a data set of Hugging Face")
    if image_field is not None:
        column = check_column(source, image_field, found.column_names)
    else:
        of_images = [name for name, kind in found.features.items() if isinstance(kind, datasets.Image)]
        if not of_images and IMAGE_COLUMN not in found.column_names:
            raise CampError(
                f"Which column of {source} holds the pictures? It has {', '.join(found.column_names)}; "
                "give --image-field."
            )
        column = of_images[0] if of_images else IMAGE_COLUMN
    if not len(found):
        raise CampError(f"{source} holds no rows.")
    labels = _labels(source, found, label_field) if labelled else [None] * len(found)
    name = source.removeprefix(PREFIX).rstrip("/").rpartition("/")[2]
    keys = tuple(f"{row:06d}" for row in range(len(found)))
    folder = () if source.startswith(PREFIX) else tuple(Path(file["filename"]) for file in found.cache_files)
    return SourceImages(source, name, DatasetReader(source, column), keys, tuple(labels), files=folder)


def _labels(source: str, found: Any, column: str | None) -> list[str | None]:
    """Return the label of each row."""
    if column is None and LABEL_COLUMN not in found.column_names:
        return [None] * len(found)
    column = check_column(source, column or LABEL_COLUMN, found.column_names)
    names: list[str] = getattr(found.features[column], "names", None) or []
    labels = []
    for row, value in enumerate(found.select_columns([column])[:][column]):
        if isinstance(value, int) and 0 <= value < len(names):
            value = names[value]
        labels.append(label_of(value, f"Row {row} of {source}"))
    return labels
