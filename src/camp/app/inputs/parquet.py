"""Images in Parquet files: a column of image files, of Hugging Face's `{"bytes", "path"}`, or of paths."""

import functools
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from camp.app.inputs.listed import SourceImages, SourceReader, label_of
from camp.app.inputs.urls import is_url, local_file, open_url, read_range, reason_of, short_names
from camp.core.errors import CampError
from camp.core.extras import import_extra
from camp.data.images import UnreadableImageError

IMAGE_COLUMN, LABEL_COLUMN = "image", "label"
PATH_COLUMNS = ("file", "path", "file_name")
"""Names of columns that may hold paths of images."""
_GROUPS_HELD = 2
"""Row groups in memory: that which is read now, and the one before for threads that are behind."""

_lock = threading.Lock()


@dataclass(frozen=True)
class ParquetReader(SourceReader):
    """Reader of the images in Parquet files; a key is the name of a file, a slash, and the number of a row in six
    digits.

    It holds two row groups in memory, so reading is fast in the order of the rows and slow in any other.
    """

    files: tuple[tuple[str, str], ...]
    """Name and URL (or path) of each file."""
    column: str

    def read(self, key: str) -> bytes:
        """Read the image in a row."""
        name, _, row = key.rpartition("/")
        file = dict(self.files)[name]
        try:
            with _lock:  # of several threads that want a row group one reads it
                cell = _cell(file, self.column, int(row))
        except Exception as error:  # each package raises errors of its own
            raise UnreadableImageError(f"the row cannot be read ({reason_of(error)})") from error
        return image_bytes(cell, file.rpartition("/")[0])


def image_bytes(cell: object, folder: str) -> bytes:
    """Return the bytes of the image that a cell holds, or whose path, relative to `folder`, it holds."""
    if isinstance(cell, dict):
        cell = cell.get("bytes") if cell.get("bytes") is not None else cell.get("path")
    if isinstance(cell, bytes):
        return cell
    if not isinstance(cell, str) or not cell:
        raise UnreadableImageError("the row holds no picture")
    return read_range(cell if is_url(cell) or cell.startswith("/") or not folder else f"{folder}/{cell}")


@functools.lru_cache(maxsize=16)
def open_parquet(file: str) -> Any:
    """Open a Parquet file."""
    parquet = import_extra("pyarrow.parquet", "formats", "Reading Parquet files")
    system, path = open_url(file)
    try:
        return parquet.ParquetFile(system.open(path, "rb"))
    except Exception as error:  # each package raises errors of its own
        raise CampError(f"{file} cannot be read as a Parquet file ({reason_of(error)}).") from error


@functools.lru_cache(maxsize=_GROUPS_HELD)
def _row_group(file: str, column: str, group: int) -> Any:
    """Return a column of a row group."""
    return open_parquet(file).read_row_group(group, columns=[column]).column(column)


def _cell(file: str, column: str, row: int) -> object:
    """Return the value in a row of a file."""
    metadata, group = open_parquet(file).metadata, 0
    while row >= metadata.row_group(group).num_rows:
        row -= metadata.row_group(group).num_rows
        group += 1
    value: object = _row_group(file, column, group)[row].as_py()
    return value


def read_parquet(
    source: str, files: Sequence[str], image_field: str | None, label_field: str | None, labelled: bool
) -> SourceImages:
    """List the rows of Parquet files; of their content only labels are read.

    Args:
        source: The source as it was given.
        files: URLs or paths of the files.
        image_field: Column of the images; None looks for one.
        label_field: Column of the labels; None takes `label` if there is one.
        labelled: Whether labels are read.
    """
    column = _image_column(files[0], image_field)
    keys: list[str] = []
    labels: list[str | None] = []
    names = short_names(files)
    for file, name in zip(files, names):
        opened = open_parquet(file)
        if column not in opened.schema_arrow.names:
            raise CampError(f"{file} has no column {column}, which {files[0]} has.")
        rows = opened.metadata.num_rows
        keys += [f"{name}/{row:06d}" for row in range(rows)]
        labels += _labels(file, label_field) if labelled else [None] * rows
    if not keys:
        raise CampError(f"{source} holds no rows.")
    local = [path for file in files if (path := local_file(file)) is not None]
    reader = ParquetReader(tuple(zip(names, files)), column)
    name = PurePosixPath(source.rstrip("/")).name
    return SourceImages(source, name, reader, tuple(keys), tuple(labels), "sequential", tuple(local))


def _image_column(file: str, given: str | None) -> str:
    """Return the column of the images: the given one, `image`, the only one of bytes, or one of paths."""
    arrow = import_extra("pyarrow", "formats", "Reading Parquet files")
    schema = open_parquet(file).schema_arrow
    if given is not None:
        return check_column(file, given, schema.names)
    if IMAGE_COLUMN in schema.names:
        return IMAGE_COLUMN
    binary = [
        field.name
        for field in schema
        if arrow.types.is_binary(field.type)
        or arrow.types.is_large_binary(field.type)
        or (arrow.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0)
    ]
    if len(binary) == 1:
        return str(binary[0])
    paths = [name for name in PATH_COLUMNS if name in schema.names]
    if not binary and paths:
        return paths[0]
    raise CampError(
        f"Which column of {file} holds the pictures? It has {', '.join(schema.names)}; give --image-field."
    )


def check_column(source: str, column: str, columns: Sequence[str]) -> str:
    """Return `column`, or raise a `CampError` if it is not among the `columns` of a source."""
    if column not in columns:
        raise CampError(f"{source} has no column {column}; it has {', '.join(columns)}.")
    return column


def _labels(file: str, column: str | None) -> list[str | None]:
    """Return the label of each row."""
    opened = open_parquet(file)
    names = opened.schema_arrow.names
    if column is None and LABEL_COLUMN not in names:
        return [None] * opened.metadata.num_rows
    column = check_column(file, column or LABEL_COLUMN, names)
    try:
        values = opened.read(columns=[column]).column(column).to_pylist()
    except Exception as error:  # each package raises errors of its own
        raise CampError(f"The column {column} of {file} cannot be read ({reason_of(error)}).") from error
    classes = _class_names(opened.schema_arrow.metadata or {}, column)
    if classes:
        values = [classes[v] if isinstance(v, int) and 0 <= v < len(classes) else v for v in values]
    return [label_of(value, f"Row {row} of {file}") for row, value in enumerate(values)]


def _class_names(metadata: dict[bytes, bytes], column: str) -> list[str]:
    """Return the names of the classes that the numbers of a column stand for, as Hugging Face notes them."""
    try:
        names = json.loads(metadata[b"huggingface"])["info"]["features"][column]["names"]
        return [str(name) for name in names]
    except (KeyError, TypeError, ValueError):
        return []
