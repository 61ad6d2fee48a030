"""A batch of pictures as a person brings it: a folder, with labels from folder names, a CSV, or both."""

import io
import unicodedata
from collections.abc import Mapping, Sequence
from csv import DictReader, Error
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from camp.app.workspace.names import UNLABELLED, check_name
from camp.core.errors import CampError
from camp.data.datasets.folders import image_files

SEPARATORS = ",;\t"
"""What may stand between the columns of a CSV."""

CONTRADICTIONS_SHOWN = 20
"""Contradictions that are listed one by one."""

STRANGERS_SHOWN = 5
"""Rows of files that are not there, listed one by one."""


@dataclass(frozen=True)
class Arrivals:
    """The pictures of a batch, and what is known of them."""

    root: Path
    """The folder, as it was given."""
    keys: tuple[str, ...]
    """The picture files, sorted, relative to the root with forward slashes."""
    labels: tuple[str | None, ...]
    """The name each picture is labelled with, None where it is not."""


def read_arrivals(folder: Path, csv: Path | None = None) -> Arrivals:
    """The pictures below `folder`, labelled by the first folder they are in, by the rows of `csv`, or by both.

    Loose files and those in a folder `unlabelled` have a label only if the CSV gives one. Where folder and
    CSV, or two rows, disagree, every contradiction is listed in a `CampError`.
    """
    keys = _pictures(folder)
    by_folder = _folder_labels(folder, keys)
    if csv is None:
        return Arrivals(folder, tuple(keys), tuple(by_folder.values()))
    by_csv = _csv_labels(csv, folder, keys)
    labels, contradictions = [], []
    for key, label in by_folder.items():
        rows = by_csv.get(key, {})
        said = {*rows, label} - {None}
        if len(said) > 1:
            claims = [f"the folder says {label}"] if label else []
            names = [f"{name} (line {line})" if len(rows) > 1 else name for name, line in rows.items()]
            claims.append(f"{csv.name} says {' and '.join(names)}")
            contradictions.append(f"{folder / key}: {', '.join(claims)}")
        labels.append(next(iter(said), None))
    _refuse(contradictions)
    return Arrivals(folder, tuple(keys), tuple(labels))


def settled(arrivals: Arrivals, digests: Mapping[str, bytes]) -> tuple[Arrivals, list[str]]:
    """The readable pictures, each once whatever its files are called, and sentences on what was put together.

    `digests` are the fingerprints of the readable files by key; what has none is left out. Of equal files the
    first labelled one stays, or the first one. The same picture under two labels is a contradiction.
    """
    copies: dict[bytes, list[tuple[str, str | None]]] = {}
    for key, label in sorted(zip(arrivals.keys, arrivals.labels), key=lambda item: item[0]):
        if key in digests:
            copies.setdefault(digests[key], []).append((key, label))

    kept, contradictions, repeated, half_labelled = [], [], 0, 0
    for files in copies.values():
        labelled: dict[str, str] = {}
        for key, label in files:
            if label is not None:
                labelled.setdefault(label, key)
        if len(labelled) > 1:
            (label, key), *others = labelled.items()
            same = [f"the same picture {arrivals.root / key} says {label}" for label, key in others]
            contradictions.append(f"{arrivals.root / key}: the label says {label}, {', '.join(same)}")
        kept.append(next(((key, label) for label, key in labelled.items()), files[0]))
        repeated += len(files) > 1
        half_labelled += bool(labelled) and any(label is None for _, label in files)
    _refuse(contradictions)

    kept.sort(key=lambda item: item[0])
    remarks = []
    if repeated:
        pictures = "1 picture is" if repeated == 1 else f"{repeated} pictures are"
        remarks.append(f"{pictures} there more than once and count{'s' * (repeated == 1)} once.")
    if half_labelled:
        pictures = "1 picture is" if half_labelled == 1 else f"{half_labelled} pictures are"
        remarks.append(f"{pictures} there both with and without a label: the label counts.")
    once = Arrivals(arrivals.root, tuple(key for key, _ in kept), tuple(label for _, label in kept))
    return once, remarks


def _refuse(contradictions: Sequence[str]) -> None:
    """Raise an error that lists the contradictions, if there are any."""
    if not contradictions:
        return
    more = len(contradictions) - CONTRADICTIONS_SHOWN
    pictures = "1 picture has" if len(contradictions) == 1 else f"{len(contradictions)} pictures have"
    lines = [
        f"{pictures} labels that contradict each other, so nothing was learned; correct them and try again.",
        *contradictions[:CONTRADICTIONS_SHOWN],
        *([f"and {more} more"] if more > 0 else []),
    ]
    raise CampError("\n".join(lines))


def _pictures(folder: Path) -> list[str]:
    """Sorted keys of the pictures below `folder`."""
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
    """What the first folder below `root` says of each picture."""
    names: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    for key in keys:
        first, slash, _ = key.partition("/")
        if not slash or first.strip().casefold() in UNLABELLED:
            labels[key] = None
            continue
        if first not in names:
            where = f"Rename the folder {root / first}, or call it unlabelled if its pictures have no label"
            names[first] = _named(first, where)
        labels[key] = names[first]
    return labels


def _csv_labels(csv: Path, root: Path, keys: Sequence[str]) -> dict[str, dict[str, int]]:
    """What the rows of `csv` say: of each picture, its labels and the line that gives each first."""
    # Names typed in one way of composing accents must find files stored in another; exact names go first.
    known = {unicodedata.normalize("NFC", key): key for key in keys} | {key: key for key in keys}
    labels: dict[str, dict[str, int]] = {}
    strangers = []
    for line, file, label in _rows(csv):
        key = known.get(file) or known.get(_relative(file, f"Line {line} of {csv.name}", root))
        if key is None:
            strangers.append(f"{file!r} (line {line})")
        elif label.strip():
            where = f"Change line {line} of {csv.name}, or leave its label empty"
            labels.setdefault(key, {}).setdefault(_named(label, where), line)
    if strangers:
        rows = "1 row" if len(strangers) == 1 else f"{len(strangers)} rows"
        dots = ", ..." if len(strangers) > STRANGERS_SHOWN else ""
        raise CampError(
            f"{csv.name} has {rows} whose file is not among the pictures of {root}: "
            f"{', '.join(strangers[:STRANGERS_SHOWN])}{dots}; give files relative to {root}."
        )
    return labels


def _rows(csv: Path) -> list[tuple[int, str, str]]:
    """Line, file and label of each row of `csv` that is not blank."""
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
                rows.append((table.line_num, row["file"], row["label"]))
    except Error as error:
        raise CampError(f"Line {table.line_num} of {csv.name} is not valid CSV: {error}.") from error
    if not rows:
        raise CampError(
            f"{csv} has a header but no rows; expected a file and its label in each, or no CSV at all."
        )
    return rows


def _text(csv: Path) -> str:
    """The text of `csv`, which is neither binary nor empty."""
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
    """The key that `file` means, with slashes of either kind."""
    path = PureWindowsPath(file.strip())
    if path.anchor or ".." in path.parts:
        raise CampError(
            f"{where} names {file!r}, which leads out of the folder; give files relative to {root}."
        )
    return unicodedata.normalize("NFC", path.as_posix())


def _named(name: str, where: str) -> str:
    """`name`, checked; the error says `where` it stands."""
    try:
        return check_name(name)
    except CampError as error:
        raise CampError(f"{where}: {error}") from None
