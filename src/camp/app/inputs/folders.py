"""A folder of images with labels from the names of its folders, from a CSV file, or from both."""

import functools
import io
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from csv import DictReader, Error
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from typing import Self

from camp.app.inputs.listed import ListedImages, located, refuse_contradictions
from camp.app.inputs.names import UNLABELLED_FOLDERS, check_name, normalised
from camp.core.csv_output import unescape_cell
from camp.core.errors import CampError
from camp.data.datasets.base import FileReader, Reader
from camp.data.datasets.folders import image_files

SEPARATORS = ",;\t"
"""Characters that may separate the columns of a CSV file."""
MAX_MISSING = 5
"""Rows of missing files that an error message lists."""


@dataclass
class FolderImages(ListedImages):
    """The images of a folder, with labels."""

    root: Path
    """The folder, as it was given."""
    keys: tuple[str, ...]
    """The image files, sorted, relative to the root with forward slashes."""
    labels: tuple[str | None, ...]

    def __post_init__(self) -> None:
        self.name, self.reader = self.root.resolve().name, FileReader(self.root)

    def select(self, keys: Sequence[str], labels: Sequence[str | None]) -> Self:
        """Return some of the images, with these labels."""
        return replace(self, keys=tuple(keys), labels=tuple(labels))

    def reader_of(self, keys: Sequence[str]) -> Reader:
        """Return a reader that does not depend on the present folder."""
        return FileReader(self.root.absolute())

    def places(self) -> Sequence[Path]:
        """Return the folder."""
        return (self.root.absolute(),)

    def files_read(self) -> Iterator[Path]:
        """Yield the image files."""
        yield from (self.root / key for key in self.keys)


def read_folder(folder: Path, csv: Path | None = None) -> FolderImages:
    """List the images below `folder`, labelled by the first folder they are in, by the rows of `csv`, or by both.

    Loose files and those in a folder `unlabelled` have a label only if the CSV file gives one. If the folder and
    the CSV file, or two rows, disagree, a `CampError` lists every contradiction.
    """
    keys = _image_keys(folder)
    by_folder = folder_labels(folder, keys)
    labels = by_folder if csv is None else with_csv_labels(folder, by_folder, csv, "the folder")
    return FolderImages(folder, tuple(keys), tuple(labels.values()))


def with_csv_labels(
    root: Path | str, own: Mapping[str, str | None], csv: Path, source: str
) -> dict[str, str | None]:
    """Add the labels of the CSV file to those that the images have already; a contradiction is an error.

    Args:
        root: Where the images are, for messages.
        own: The label of each image, by key.
        csv: The file, with keys in its column `file`.
        source: What has given the images their own labels, for messages.
    """
    by_csv = _csv_labels(csv, root, list(own))
    labels, contradictions = dict[str, str | None](), []
    for key, label in own.items():
        rows = by_csv.get(key, {})
        given = {*rows, label} - {None}
        if len(given) > 1:
            claims = [f"{source} says {label}"] if label else []
            names = [f"{name} (line {line})" if len(rows) > 1 else name for name, line in rows.items()]
            claims.append(f"{csv.name} says {' and '.join(names)}")
            contradictions.append(f"{located(root, key)}: {', '.join(claims)}")
        labels[key] = next(iter(given), None)
    refuse_contradictions(contradictions)
    return labels


def _image_keys(folder: Path) -> list[str]:
    """List the images below `folder`, sorted."""
    try:
        if not folder.exists():
            raise CampError(
                f"There is no folder {folder}; give a folder of pictures, as in january/heron/1.jpg."
            )
        if not folder.is_dir():
            raise CampError(f"{folder} is not a folder; give the folder that holds the pictures.")
        keys = image_files(folder)
    except OSError as error:
        raise CampError(f"Could not read the folder {folder}: {error.strerror or error}.") from error
    if not keys:
        raise CampError(f"{folder} holds no pictures; expected files such as 1.jpg or heron/1.png in it.")
    return keys


def folder_labels(root: Path | str, keys: Sequence[str]) -> dict[str, str | None]:
    """Return the label of each image by the first folder below `root`."""

    @functools.cache
    def label(first: str) -> str | None:
        if normalised(first).casefold() in UNLABELLED_FOLDERS:
            return None
        where = (
            f"Rename the folder {located(root, first)}, or call it unlabelled if its pictures have no label"
        )
        return _named(first, where)

    return {key: label(key.partition("/")[0]) if "/" in key else None for key in keys}


def _csv_labels(csv: Path, root: Path | str, keys: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the labels that `csv` gives each image, with the first line that gives each."""
    # Names typed in one way of composing accents must find files stored in another; exact names go first.
    known = {unicodedata.normalize("NFC", key): key for key in keys} | {key: key for key in keys}
    labels: dict[str, dict[str, int]] = {}
    missing = []
    for line, file, label in _rows(csv):
        key = known.get(file) or known.get(_relative(file, f"Line {line} of {csv.name}", root))
        if key is None:
            missing.append(f"{file!r} (line {line})")
        elif normalised(label):
            where = f"Change line {line} of {csv.name}, or leave its label empty"
            labels.setdefault(key, {}).setdefault(_named(label, where), line)
    if missing:
        rows = "1 row" if len(missing) == 1 else f"{len(missing)} rows"
        dots = ", ..." if len(missing) > MAX_MISSING else ""
        raise CampError(
            f"{csv.name} has {rows} whose file is not among the pictures of {root}: "
            f"{', '.join(missing[:MAX_MISSING])}{dots}; give files relative to {root}."
        )
    return labels


def _rows(csv: Path) -> list[tuple[int, str, str]]:
    """Return line, file and label of each row of `csv` that is not blank."""
    text = _text(csv)
    header = text.splitlines()[0]
    separator = max(SEPARATORS, key=header.count)
    table = DictReader(io.StringIO(text, newline=""), restval="", delimiter=separator, strict=True)
    rows = []
    try:
        columns = [name.strip().casefold() for name in table.fieldnames or ()]
        if columns.count("file") != 1 or columns.count("label") != 1:
            raise CampError(
                f"{csv} needs one column called file and one called label; its first line is {header[:80].rstrip()!r}."
            )
        table.fieldnames = columns
        for row in table:
            if any(field.strip() for field in row.pop(None, ())):
                raise CampError(
                    f"Line {table.line_num} of {csv.name} has more fields than the header; "
                    f"put a field that contains {separator!r} into double quotes."
                )
            if any(field.strip() for field in row.values()):
                rows.append((table.line_num, unescape_cell(row["file"]), unescape_cell(row["label"])))
    except Error as error:
        raise CampError(f"Line {table.line_num} of {csv.name} is not valid CSV: {error}.") from error
    if not rows:
        raise CampError(
            f"{csv} has a header but no rows; expected a file and its label in each, or no CSV at all."
        )
    return rows


def _text(csv: Path) -> str:
    """Read `csv`, which must be neither binary nor empty."""
    try:
        text = csv.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise CampError(f"There is no file {csv}; expected a CSV with the columns file and label.") from None
    except OSError as error:
        raise CampError(f"Could not read {csv}: {error.strerror or error}.") from error
    except UnicodeDecodeError:
        raise CampError(f"{csv} is not text in UTF-8; save the table as CSV in UTF-8.") from None
    if "\0" in text:
        raise CampError(f"{csv} is binary or not in UTF-8; save the table as CSV in UTF-8.")
    if not text.strip():
        raise CampError(f"{csv} is empty; expected the line file,label and then a row per picture.")
    return text


def _relative(file: str, where: str, root: Path | str) -> str:
    """Return the key of `file`, with slashes of either kind."""
    path = PureWindowsPath(file.strip())
    if path.anchor or ".." in path.parts:
        raise CampError(
            f"{where} names {file!r}, which leads out of the folder; give files relative to {root}."
        )
    return unicodedata.normalize("NFC", path.as_posix())


def _named(name: str, where: str) -> str:
    """Check a name; the error says `where` it was found."""
    try:
        return check_name(name)
    except CampError as error:
        raise CampError(f"{where}: {error}") from None
