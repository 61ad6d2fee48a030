"""Data sets without image files, and their splits."""

from pathlib import Path

import numpy as np

from camp.data.datasets.base import Dataset, FileReader
from camp.data.make_split import make_split
from camp.data.scenario import make_scenario
from camp.data.split import Split


def toy(
    classes: int = 10, train: int = 20, test: int = 6, name: str = "folder", names=None, domains=None
) -> Dataset:
    """A data set of so many classes, with so many train and test images in each."""
    names = names or [f"class_{number:03d}" for number in range(classes)]
    rows = sorted(
        (f"{part}/{label:03d}/{index:03d}.png", label, part == "test")
        for label in range(len(names))
        for part, count in (("train", train), ("test", test))
        for index in range(count)
    )
    return Dataset(
        name=name,
        classes=tuple(names),
        keys=tuple(key for key, _, _ in rows),
        labels=np.array([label for _, label, _ in rows]),
        is_test=np.array([is_test for _, _, is_test in rows]),
        domains=domains,
        reader=FileReader(Path("/")),
    )


def labels_of(keys) -> list[int]:
    """Classes by the names of `toy`."""
    return [int(key.split("/")[1]) for key in keys]


def toy_split(preset: str, **changes) -> Split:
    """Twenty classes cut by a preset, in four tasks unless told otherwise, and checked."""
    dataset = toy(20, 40, 5)
    split = make_split(
        make_scenario("folder", preset, **{"tasks": 4, "order": "given", **changes}), dataset, 0
    )
    split.check(dataset)
    return split
