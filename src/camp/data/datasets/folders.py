"""Class folders, `train/<class>/*` and `test/<class>/*`: a layout that all image data sets support."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

import numpy as np

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset, FileReader, Sample, dataset_from_samples, holdout_mask
from camp.data.datasets.info import DatasetInfo
from camp.data.images import IMAGE_SUFFIXES

TEST_NAMES = ("test", "val", "valid", "validation")
"""Names of the test folder; the first that exists is used."""

TEST_SHARE = 0.2
"""Fraction of each class that is held out if there is no test folder."""


def image_files(root: Path, folder: str = "") -> list[str]:
    """Return the sorted keys, relative to `root`, of all image files below `folder`.

    Hidden files, files without an image suffix, and links to places outside `root` are ignored. Broken links, pipes
    and devices with an image suffix are listed: reading them raises `UnreadableImageError`.
    """
    return sorted(_image_files(root, folder))


def has_image_files(root: Path) -> bool:
    """Return whether `image_files` lists any, without looking for more than one."""
    return next(_image_files(root, ""), None) is not None


def _image_files(root: Path, folder: str) -> Iterator[str]:
    top = Path(os.path.realpath(root))
    start = Path(os.path.realpath(root / folder))
    if start.is_dir() and start.is_relative_to(top):
        yield from _walk(top, start, folder, frozenset({str(start)}))


def _walk(top: Path, directory: Path, prefix: str, above: frozenset[str]) -> Iterator[str]:
    """Yield the keys below `directory`, which has the key `prefix`; `above` are its real parent folders."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            key = f"{prefix}/{entry.name}" if prefix else entry.name
            if entry.is_symlink():
                target = os.path.realpath(entry.path)
                # A link to one of its own parent folders would be followed forever.
                if not Path(target).is_relative_to(top) or target in above:
                    continue
            if _is_folder(entry):
                real = os.path.realpath(entry.path)
                yield from _walk(top, Path(entry.path), key, above | {real})
            elif PurePath(entry.name).suffix.lower() in IMAGE_SUFFIXES:
                yield _check_encoding(key)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _check_encoding(key: str) -> str:
    """Return `key` if it can be written as UTF-8."""
    try:
        key.encode()
    except UnicodeEncodeError:
        raise CampError(f"The file name {key!r} is not valid UTF-8; rename the file.") from None
    return key


def test_folder(root: Path) -> str | None:
    """Return the name of the test folder beside `train`, if there is one."""
    return next((name for name in TEST_NAMES if (root / name).is_dir()), None)


def has_train_folder(root: Path) -> bool:
    """Return whether `root` has the layout `train/<class>/*`."""
    return (root / "train").is_dir()


def class_samples(root: Path, depth: int = 1) -> list[Sample]:
    """Return the samples in class folders, with or without `train` and `test` above them.

    The name of a class consists of `depth` folder names. Without test images a fixed fifth of each
    class is held out.
    """
    parts = {"": False}
    if has_train_folder(root):
        test = test_folder(root)
        parts = {"train": False} if test is None else {"train": False, test: True}
    samples = []
    for folder, is_test in parts.items():
        skip = depth + (1 if folder else 0)
        for key in image_files(root, folder):
            names = key.split("/")
            if len(names) > skip:
                samples.append(Sample(key, "/".join(names[skip - depth : skip]), is_test))
    if any(sample.is_test for sample in samples):
        return samples
    mask = holdout_mask(np.array([sample.class_name for sample in samples]), TEST_SHARE, "folder")
    return [replace(sample, is_test=bool(is_test)) for sample, is_test in zip(samples, mask)]


def normalised_name(name: str) -> str:
    """Return a class name without case, spaces and signs, so that `F-16A/B` equals the folder name `F-16A_B`.

    >>> normalised_name("F-16A/B") == normalised_name("F-16A_B")
    True
    """
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def class_folders(name: str, root: Path, official: Sequence[str] | None = None) -> Dataset:
    """Load the class folders of `root`; `official` class names, if given, determine spelling and order."""
    samples = class_samples(root)
    if not samples:
        raise CampError(
            f"{root} holds no images in class folders: expected train/<class>/* and test/<class>/*, "
            "or <class>/*."
        )
    found = sorted({sample.class_name for sample in samples})
    if official is None:
        return dataset_from_samples(name, found, samples, FileReader(root))
    by_name = {normalised_name(class_name): class_name for class_name in official}
    unknown = [class_name for class_name in found if normalised_name(class_name) not in by_name]
    if unknown:
        raise CampError(
            f"{root} holds a folder {unknown[0]!r}, which is not a class of {name}; "
            f"expected names such as {official[0]!r}. For other images use the data set 'folder'."
        )
    samples = [replace(sample, class_name=by_name[normalised_name(sample.class_name)]) for sample in samples]
    return official_classes(name, root, official, samples)


def official_classes(name: str, root: Path, official: Sequence[str], samples: Sequence[Sample]) -> Dataset:
    """Build a data set of files with those `official` classes, in their order, that have samples."""
    present = {sample.class_name for sample in samples}
    return dataset_from_samples(name, [c for c in official if c in present], samples, FileReader(root))


def load(data: Path) -> Dataset:
    """Load `train/<class>/*` and `test/<class>/*`, or `<class>/*` with a fifth held out."""
    return class_folders("folder", data)


INFO = DatasetInfo(
    name="folder",
    title="Your own folder of class folders",
    loader=load,
    n_classes=None,
    images="yours",
    size="yours",
    licence="yours",
    how_to_get="Put the images of each class into a folder of their own and name the parent folder with --data.",
    layouts="train/<class>/* and test/<class>/*, or <class>/*",
    tasks=2,
)
