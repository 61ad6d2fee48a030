"""Class folders: which files are read, which are ignored, and in which order."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from camp.core.errors import CampError
from camp.data.datasets import load_dataset
from camp.data.datasets.base import Dataset, FileReader
from camp.data.datasets.folders import image_files
from camp.data.images import UnreadableImageError


def paint(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (2, 2)).save(path, "PNG")


def test_only_images_are_found(tmp_path):
    root = tmp_path / "root"
    for name in ("a/1.png", "a/2.JPG", "b/deep/er/3.webp", "4.tiff"):
        paint(root / name)
    paint(root / ".hidden" / "5.png")
    paint(root / "a" / ".6.png")
    (root / "a" / "notes.txt").write_text("x")
    (root / "a" / "folder.png").mkdir()
    os.mkfifo(root / "a" / "pipe")
    assert image_files(root) == ["4.tiff", "a/1.png", "a/2.JPG", "b/deep/er/3.webp"]
    assert image_files(root, "b") == ["b/deep/er/3.webp"]
    assert image_files(root, "missing") == []


def test_links_stay_inside(tmp_path):
    root = tmp_path / "root"
    paint(root / "a" / "1.png")
    paint(tmp_path / "outside" / "secret.png")
    (root / "a" / "link.png").symlink_to(root / "a" / "1.png")
    (root / "a" / "leaving.png").symlink_to(tmp_path / "outside" / "secret.png")
    (root / "a" / "dangling").symlink_to(root / "nothing.png")
    (root / "b").symlink_to(tmp_path / "outside")
    (root / "c").symlink_to(root / "a")
    (root / "a" / "loop").symlink_to(root)
    assert image_files(root) == ["a/1.png", "a/link.png", "c/1.png", "c/link.png"]
    # The folder the user names may itself be a link.
    (tmp_path / "alias").symlink_to(root)
    assert image_files(tmp_path / "alias") == image_files(root)
    assert image_files(root, "../outside") == []


def test_names_that_no_file_can_hold_are_refused(tmp_path):
    paint(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "1.png").rename(tmp_path / "a" / os.fsdecode(b"\xff.png"))
    with pytest.raises(CampError, match="UTF-8"):
        image_files(tmp_path)


def test_plain_class_folders_hold_out_a_fixed_share(tmp_path):
    for name, count in (("cup", 20), ("spoon", 10), ("lone", 1)):
        for index in range(count):
            paint(tmp_path / name / f"{index:02d}.png")
    paint(tmp_path / "loose.png")  # in no class
    dataset = load_dataset("folder", tmp_path)
    assert dataset.classes == ("cup", "lone", "spoon")
    assert "loose.png" not in dataset.keys
    assert [int(dataset.is_test[dataset.labels == label].sum()) for label in range(3)] == [4, 0, 2]
    cups = {key for key, test in zip(dataset.keys, dataset.is_test) if test and key.startswith("cup/")}
    for index in range(30):
        paint(tmp_path / "fork" / f"{index:02d}.png")
    again = load_dataset("folder", tmp_path)
    # Another class changes nothing for this one.
    assert cups == {key for key, test in zip(again.keys, again.is_test) if test and key.startswith("cup/")}


def test_a_train_folder_without_tests_holds_out_a_share(tmp_path):
    for index in range(10):
        paint(tmp_path / "train" / "cup" / f"{index}.png")
    dataset = load_dataset("folder", tmp_path)
    assert dataset.is_test.sum() == 2
    assert dataset.keys[0] == "train/cup/0.png"


def test_nothing_depends_on_the_order_of_the_disk(tmp_path, monkeypatch):
    for name in ("b", "a", "c"):
        for index in range(5):
            paint(tmp_path / name / f"{index}.png")
    before = load_dataset("folder", tmp_path)
    scandir = os.scandir

    class Backwards:
        def __init__(self, path):
            with scandir(path) as entries:
                self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(os, "scandir", Backwards)
    after = load_dataset("folder", tmp_path)
    assert after.keys == before.keys
    assert after.classes == before.classes
    assert np.array_equal(after.is_test, before.is_test)


def test_a_class_with_tests_only_is_refused(tmp_path):
    paint(tmp_path / "train" / "cup" / "1.png")
    paint(tmp_path / "test" / "spoon" / "1.png")
    with pytest.raises(CampError, match="'spoon' of folder has no train image"):
        load_dataset("folder", tmp_path)


def test_a_missing_file_is_unreadable(tmp_path):
    with pytest.raises(UnreadableImageError, match="cannot be read"):
        FileReader(tmp_path).read("gone.png")


def test_a_huge_file_is_unreadable(tmp_path):
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UnreadableImageError, match="larger"):
        FileReader(tmp_path).read("large.png")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"keys": ()}, "no images"),
        ({"keys": ("b", "a")}, "sorted"),
        ({"keys": ("a", "a")}, "sorted and different"),
        ({"labels": np.array([0])}, "one of each for every key"),
        ({"labels": np.array([0, 1], dtype=np.int32)}, "int64"),
        ({"labels": np.array([0, 2])}, "outside 0..1"),
        ({"classes": ("x", "x")}, "names a class twice"),
        ({"domains": ("d",)}, "one domain for each"),
        ({"is_test": np.array([False, True])}, "no train image"),
    ],
)
def test_a_data_set_refuses_what_does_not_fit(tmp_path, change, sentence):
    right = {
        "name": "tiny",
        "classes": ("x", "y"),
        "keys": ("a", "b"),
        "labels": np.array([0, 1]),
        "is_test": np.array([False, False]),
        "domains": None,
        "reader": FileReader(tmp_path),
    }
    Dataset(**right)
    with pytest.raises(CampError, match=sentence):
        Dataset(**{**right, **change})
