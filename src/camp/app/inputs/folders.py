"""A folder of images with labels from the names of its folders, from a CSV file, or from both."""

import functools
import io
import unicodedata
from collections.abc import Mapping, Sequence
from csv import DictReader, Error
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

import numpy as np

from camp.app.inputs.base import MAX_UNREADABLE, ImageInput, ReadableImages
from camp.app.inputs.names import UNLABELLED_FOLDERS, check_name, near_misses, normalised
from camp.core.csv_output import unescape_cell
from camp.core.errors import CampError
from camp.data.datasets.base import FileReader
from camp.data.datasets.folders import image_files

SEPARATORS = ",;\t"
"""Characters that may separate the columns of a CSV file."""
MAX_CONTRADICTIONS, MAX_MISSING = 20, 5
"""Contradictions, and rows of missing files, that an error message lists."""


@dataclass
class FolderImages(ImageInput):
    """The images of a folder, with labels."""

    root: Path
    """The folder, as it was given."""
    keys: tuple[str, ...]
    """The image files, sorted, relative to the root with forward slashes."""
    labels: tuple[str | None, ...]

    def __post_init__(self) -> None:
        self.name, self.reader = self.root.resolve().name, FileReader(self.root)

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


def read_folder(folder: Path, csv: Path | None = None) -> FolderImages:
    """List the images below `folder`, labelled by the first folder they are in, by the rows of `csv`, or by both.

    Loose files and those in a folder `unlabelled` have a label only if the CSV file gives one. If the folder and
    the CSV file, or two rows, disagree, a `CampError` lists every contradiction.
    """
    keys = _image_keys(folder)
    by_folder = _folder_labels(folder, keys)
    if csv is None:
        return FolderImages(folder, tuple(keys), tuple(by_folder.values()))
    by_csv = _csv_labels(csv, folder, keys)
    labels, contradictions = [], []
    for key, label in by_folder.items():
        rows = by_csv.get(key, {})
        given = {*rows, label} - {None}
        if len(given) > 1:
            claims = [f"the folder says {label}"] if label else []
            names = [f"{name} (line {line})" if len(rows) > 1 else name for name, line in rows.items()]
            claims.append(f"{csv.name} says {' and '.join(names)}")
            contradictions.append(f"{folder / key}: {', '.join(claims)}")
        labels.append(next(iter(given), None))
    _refuse(contradictions)
    return FolderImages(folder, tuple(keys), tuple(labels))


def merge_copies(images: FolderImages, digests: Mapping[str, bytes]) -> tuple[FolderImages, list[str]]:
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
            same = [f"the same picture {images.root / key} says {label}" for label, key in others]
            contradictions.append(f"{images.root / key}: the label says {label}, {', '.join(same)}")
        kept.append(min(labelled.values(), default=files[0]))
        repeated += len(files) > 1
        partly_labelled += bool(labelled) and any(label_of[key] is None for key in files)
    _refuse(contradictions)

    remarks = []
    if repeated:
        counts = "counts" if repeated == 1 else "count"
        remarks.append(f"{_pictures(repeated, 'is', 'are')} there more than once and {counts} once.")
    if partly_labelled:
        pictures = _pictures(partly_labelled, "is", "are")
        remarks.append(f"{pictures} there both with and without a label: the label counts.")
    keys = tuple(sorted(kept))
    return FolderImages(images.root, keys, tuple(label_of[key] for key in keys)), remarks


def _pictures(number: int, singular: str, plural: str) -> str:
    """Return a number of pictures with the form of a verb."""
    return f"1 picture {singular}" if number == 1 else f"{number} pictures {plural}"


def _refuse(contradictions: Sequence[str]) -> None:
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


def _folder_labels(root: Path, keys: Sequence[str]) -> dict[str, str | None]:
    """Return the label of each image by the first folder below `root`."""

    @functools.cache
    def label(first: str) -> str | None:
        if normalised(first).casefold() in UNLABELLED_FOLDERS:
            return None
        where = f"Rename the folder {root / first}, or call it unlabelled if its pictures have no label"
        return _named(first, where)

    return {key: label(key.partition("/")[0]) if "/" in key else None for key in keys}


def _csv_labels(csv: Path, root: Path, keys: Sequence[str]) -> dict[str, dict[str, int]]:
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


def _relative(file: str, where: str, root: Path) -> str:
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
