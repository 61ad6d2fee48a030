"""Images from a word of the command line: a folder, a URL, tar files, Parquet files, or a data set."""

import os
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from camp.app.inputs.folders import FolderImages, read_folder, with_csv_labels
from camp.app.inputs.huggingface import PREFIX, is_saved_dataset, read_dataset
from camp.app.inputs.listed import ListedImages, SourceImages
from camp.app.inputs.local_copy import CopyingReader
from camp.app.inputs.parquet import read_parquet
from camp.app.inputs.urls import expand, find_files, is_url, local_file, read_url
from camp.app.inputs.webdataset import read_tars
from camp.core.errors import CampError
from camp.data.datasets.folders import has_image_files, image_files
from camp.data.images import IMAGE_SUFFIXES

TAR, PARQUET = (".tar",), (".parquet", ".pq")
COMPRESSED = (".tgz", ".gz", ".bz2", ".xz", ".zst")
NO_LABELS = "none"
"""The label field of a source whose labels are not read."""


@dataclass(frozen=True)
class Fields:
    """Which parts of a source hold images and labels."""

    image: str | None = None
    """Column of Parquet files and data sets; None looks for one."""
    label: str | None = None
    """Column of Parquet files and data sets, extension of the members of tar files, or `none`; None looks for one."""


def read_source(source: str, csv: Path | None = None, fields: Fields | None = None) -> ListedImages:
    """List the images of a source, with labels: its own ones, those of a CSV file, or both.

    Args:
        source: A folder of images, of tar files or of Parquet files, such a file, a pattern of them, a URL of one of
            these, a data set that was saved to disk, or the name of one, `hf:NAME`.
        csv: CSV file with the columns file and label.
        fields: Columns and members to read.
    """
    fields = fields or Fields()
    labelled = fields.label != NO_LABELS
    if is_folder_of_images(source):
        return read_folder(Path(source), csv) if labelled else _unlabelled(Path(source), csv)
    images = _read(source, fields, labelled)
    if csv is None:
        return images
    own = dict(zip(images.keys, images.labels))
    return images.select(images.keys, tuple(with_csv_labels(source, own, csv, "the source").values()))


def learning_source(
    source: str, csv: Path | None = None, fields: Fields | None = None, on_cluster: bool = False
) -> ListedImages:
    """List the images of a source to be learned, for which each of them is read twice, in two orders.

    They are copied to the disk when they are first read, if reading them again or in another order is slow. A cluster
    reads remote ones again, as it has more connections than one machine.
    """
    images = read_source(source, csv, fields)
    copied = ("sequential",) if on_cluster else ("sequential", "remote")
    if isinstance(images, SourceImages) and images.access in copied:
        return replace(images, reader=CopyingReader(images.reader))
    return images


def list_source(source: str, fields: Fields | None = None) -> ListedImages:
    """List the images of a source, or the one that a path or URL leads to, without labels."""
    if not is_folder_of_images(source):
        return _read(source, replace(fields or Fields(), label=NO_LABELS), labelled=False)
    path = Path(source)
    try:
        if not path.exists():
            raise CampError(f"There is no {path}; give a folder of pictures, or a picture.")
        root, keys = (path, image_files(path)) if path.is_dir() else (path.parent, [path.name])
    except OSError as error:
        raise CampError(f"{error.filename or path}: {error.strerror or error}.") from error
    if not keys:
        raise CampError(f"{path} contains no pictures.")
    return FolderImages(root, tuple(keys), (None,) * len(keys))


def _unlabelled(folder: Path, csv: Path | None) -> FolderImages:
    """List the images of a folder, labelled by a CSV file only."""
    keys = tuple(image_files(folder))
    own: dict[str, str | None] = dict.fromkeys(keys)
    labels = own if csv is None else with_csv_labels(folder, own, csv, "the folder")
    return FolderImages(folder, keys, tuple(labels.values()))


def is_folder_of_images(source: str) -> bool:
    """Return whether a word is the path of a folder with images, or of one that lacks anything else to read."""
    if is_url(source) or source.startswith(PREFIX) or _is_container(source):
        return False
    folder = Path(source)
    try:
        if not folder.is_dir():
            return True  # `read_folder` says what is wrong
        return not is_saved_dataset(folder) and (
            has_image_files(folder) or not find_files(str(folder), TAR + PARQUET)
        )
    except OSError as error:
        raise CampError(f"{error.filename or folder}: {error.strerror or error}.") from error


def _is_container(source: str) -> bool:
    """Return whether a path or URL has the suffix of a file that holds many images."""
    return _suffix(source) in TAR + PARQUET + COMPRESSED and not Path(source).is_dir()


def _read(source: str, fields: Fields, labelled: bool) -> SourceImages:
    """List the images of a source that is not a folder of images."""
    label = fields.label if labelled else None
    if source.startswith(PREFIX) and not is_url(source):
        return read_dataset(source, fields.image, label, labelled)
    if _is_container(source):
        files = expand(source)
        _check_present(files)
    elif not is_url(source) and is_saved_dataset(Path(source)):
        return read_dataset(source, fields.image, label, labelled)
    else:
        keys = find_files(source, IMAGE_SUFFIXES.union(TAR, PARQUET))
        images = [key for key in keys if _suffix(key) in IMAGE_SUFFIXES]
        if images or not keys:
            return read_url(source, images, labelled)
        files = [f"{source.rstrip('/')}/{key}" for key in keys]
    if not is_url(source):
        files = [os.path.abspath(file) for file in files]  # noqa: PTH100 (so that other processes find them)
    suffixes = {_suffix(file) for file in files}
    if suffixes <= set(PARQUET):
        return read_parquet(source, files, fields.image, label, labelled)
    if suffixes.isdisjoint(PARQUET):
        return read_tars(source, files, label, labelled)
    raise CampError(
        f"{source} holds both tar and Parquet files; give a pattern of one kind, such as {source.rstrip('/')}/*.tar."
    )


def _suffix(file: str) -> str:
    return PurePosixPath(file).suffix.lower()


def _check_present(files: list[str]) -> None:
    """Refuse files of this machine that do not exist."""
    for file in files:
        path = local_file(file)
        if path is not None and not path.exists():
            raise CampError(f"There is no file {file}.")
