"""The official layout of CUB-200, and the reference's split of it."""

from pathlib import Path

import numpy as np
import pytest
from tiny_trees import paint, parts

from camp.core.errors import CampError
from camp.data.datasets import load_dataset


def cub_tree(root: Path, per_class: int = 12) -> None:
    names = ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
    images, split, number = [], [], 0
    for shade, name in enumerate(names):
        for index in range(per_class):
            number += 1
            paint(root / "images" / name / f"{index:02d}.jpg", shade)
            images.append(f"{number} {name}/{index:02d}.jpg")
            split.append(f"{number} {int(index % 2 == 0)}")
    (root / "images.txt").write_text("\n".join(images) + "\n")
    (root / "train_test_split.txt").write_text("\n".join(split) + "\n")
    (root / "classes.txt").write_text("".join(f"{n + 1} {name}\n" for n, name in enumerate(names)))


@pytest.mark.parametrize("inside", [".", "CUB_200_2011"])
def test_cub_archive(tmp_path, inside):
    cub_tree(tmp_path / inside)
    dataset = load_dataset("cub200", tmp_path)
    train, test = parts(dataset, "002.Laysan_Albatross")
    assert train == [f"images/002.Laysan_Albatross/{index:02d}.jpg" for index in range(0, 12, 2)]
    assert test == [f"images/002.Laysan_Albatross/{index:02d}.jpg" for index in range(1, 12, 2)]


def test_cub_reference_split(tmp_path):
    cub_tree(tmp_path)
    dataset = load_dataset("cub200", tmp_path, split="reference")
    train, test = parts(dataset, "001.Black_footed_Albatross")
    # index j <= 0.1 * 12: two of twelve
    assert [key[-6:-4] for key in test] == ["00", "01"]
    assert len(train) == 10


def test_cub_reference_split_of_class_folders_is_that_of_the_archive(tmp_path):
    cub_tree(tmp_path / "archive")
    for index in range(12):
        part = "train" if index % 2 == 0 else "test"
        for name in ("001.Black_footed_Albatross", "002.Laysan_Albatross"):
            paint(tmp_path / "folders" / part / name / f"{index:02d}.jpg")
    test = [
        {key.rsplit("/", 2)[1:][0] + key[-6:] for key in np.array(dataset.keys)[dataset.is_test]}
        for dataset in (
            load_dataset("cub200", tmp_path / "archive", split="reference"),
            load_dataset("cub200", tmp_path / "folders", split="reference"),
        )
    ]
    assert test[0] == test[1]


def test_cub_incomplete(tmp_path):
    cub_tree(tmp_path)
    (tmp_path / "images" / "001.Black_footed_Albatross" / "03.jpg").unlink()
    with pytest.raises(CampError, match=r"03\.jpg.*missing"):
        load_dataset("cub200", tmp_path)
    with pytest.raises(CampError, match="'official' and 'reference'"):
        load_dataset("cub200", tmp_path, split="half")
    (tmp_path / "classes.txt").write_text("nonsense\n")
    with pytest.raises(CampError, match=r"classes\.txt"):
        load_dataset("cub200", tmp_path)
