"""Trees of class folders: `train/<class>/*` and `test/<class>/*`, which every image data set may come in."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

import numpy as np

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset, FileReader, Listed, held_out, listed_dataset
from camp.data.images import IMAGE_SUFFIXES

TEST_NAMES = ("test", "val", "valid", "validation")
"""Names of the test folder, the first one present counts."""

TEST_SHARE = 0.2
"""Share of each class held out where a tree has no test folder."""


def image_files(root: Path, folder: str = "") -> list[str]:
    """Sorted keys, relative to `root`, of the picture files anywhere below `folder`.

    Hidden files, files that are no pictures by name, and links that leave `root` are ignored.
    """
    top = Path(os.path.realpath(root))
    start = Path(os.path.realpath(root / folder))
    if not start.is_dir() or not start.is_relative_to(top):
        return []
    return sorted(_walk(top, start, folder, frozenset({str(start)})))


def _walk(top: Path, directory: Path, prefix: str, above: frozenset[str]) -> Iterator[str]:
    """Keys below `directory`, called `prefix` from the root; `above` are the real folders that lead here."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            key = f"{prefix}/{entry.name}" if prefix else entry.name
            if entry.is_symlink():
                target = os.path.realpath(entry.path)
                # A link to a folder above itself would never end.
                if not Path(target).is_relative_to(top) or target in above:
                    continue
            if entry.is_dir():
                real = os.path.realpath(entry.path)
                yield from _walk(top, Path(entry.path), key, above | {real})
            elif PurePath(entry.name).suffix.lower() in IMAGE_SUFFIXES and entry.is_file():
                yield _valid(key)


def _valid(key: str) -> str:
    """`key`, if it can be written to a file of names."""
    try:
        key.encode()
    except UnicodeEncodeError:
        raise CampError(f"The file name {key!r} is not valid UTF-8; rename the file.") from None
    return key


def folder_of_tests(root: Path) -> str | None:
    """The name of the folder of test pictures beside `train`, if there is one."""
    return next((name for name in TEST_NAMES if (root / name).is_dir()), None)


def has_train_folder(root: Path) -> bool:
    """Whether `root` is laid out as `train/<class>/*`."""
    return (root / "train").is_dir()


def class_pictures(root: Path, depth: int = 1) -> list[Listed]:
    """The pictures of a tree of class folders, with or without `train` and `test` above them.

    A class is called by its `depth` folder names. Without test pictures a fixed fifth of a class is held out.
    """
    if has_train_folder(root):
        parts = [("train", False)]
        if (test := folder_of_tests(root)) is not None:
            parts.append((test, True))
    else:
        parts = [("", False)]
    pictures = []
    for folder, is_test in parts:
        skip = depth + (1 if folder else 0)
        for key in image_files(root, folder):
            names = key.split("/")
            if len(names) > skip:
                pictures.append(Listed(key, "/".join(names[skip - depth : skip]), is_test))
    if not any(picture.is_test for picture in pictures):
        pictures = _with_test_share(pictures)
    return pictures


def _with_test_share(pictures: list[Listed], share: float = TEST_SHARE) -> list[Listed]:
    """The same pictures, `share` of each class in the test part."""
    marks = held_out(np.array([picture.class_name for picture in pictures]), share, "folder")
    return [Listed(picture.key, picture.class_name, bool(mark)) for picture, mark in zip(pictures, marks)]


def plain(name: str) -> str:
    """A class name without case, spaces and signs, so that `F-16A/B` and a folder `F-16A_B` meet.

    >>> plain("F-16A/B") == plain("F-16A_B")
    True
    """
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def class_folders(name: str, root: Path, official: Sequence[str] | None = None) -> Dataset:
    """The data set in the class folders of `root`; `official` class names decide spelling and order."""
    pictures = class_pictures(root)
    if not pictures:
        raise CampError(
            f"{root} holds no pictures in class folders: expected train/<class>/* and test/<class>/*, "
            "or <class>/*."
        )
    found = sorted({picture.class_name for picture in pictures})
    if official is None:
        return listed_dataset(name, found, pictures, FileReader(root))
    by_plain = {plain(class_name): class_name for class_name in official}
    unknown = [class_name for class_name in found if plain(class_name) not in by_plain]
    if unknown:
        raise CampError(
            f"{root} holds a folder {unknown[0]!r}, which is no class of {name}; "
            f"expected names such as {official[0]!r}. For other pictures use the data set 'folder'."
        )
    pictures = [
        Listed(picture.key, by_plain[plain(picture.class_name)], picture.is_test) for picture in pictures
    ]
    present = {picture.class_name for picture in pictures}
    return listed_dataset(name, [c for c in official if c in present], pictures, FileReader(root))
