"""ImageNet-Subset: 100 classes out of ImageNet-1k, as class-incremental learning uses it."""

from pathlib import Path

import numpy as np

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset, FileReader, Listed, listed_dataset
from camp.data.datasets.folders import folder_of_tests, has_train_folder, image_files
from camp.data.datasets.info import DatasetInfo


def subset_1993(wnids: list[str]) -> list[str]:
    """The usual 100 of 1,000 sorted class ids: the first hundred after shuffling with numpy's old seed 1993.

    The legacy generator is the definition of this benchmark, and numpy promises never to change its numbers.
    """
    order = np.random.RandomState(1993).permutation(len(wnids))
    return [wnids[index] for index in order[:100]]


def load(data: Path) -> Dataset:
    """100 classes of a tree `train/<wnid>/*`, `val/<wnid>/*`: all of 100, or the usual 100 of 1,000.

    They are sorted by id either way; the published class order (FACIL's) speaks of them so.
    """
    if not has_train_folder(data) or folder_of_tests(data) is None:
        raise CampError(f"{data} holds no ImageNet: expected train/<wnid>/* and val/<wnid>/*.")
    # Only the names of the folders are read before it is clear which hundred are wanted.
    wnids = sorted(path.name for path in (data / "train").iterdir() if path.is_dir() and path.name[0] != ".")
    if len(wnids) == 100:
        classes = wnids
    elif len(wnids) == 1000:
        classes = sorted(subset_1993(wnids))
    else:
        raise CampError(
            f"{data}/train holds {len(wnids)} class folders; expected all 1,000 of ImageNet-1k, or 100."
        )
    test = folder_of_tests(data)
    missing = [wnid for wnid in classes if not (data / f"{test}/{wnid}").is_dir()]
    if missing:
        raise CampError(
            f"{data}/{test} has no folder {missing[0]}; sort the validation pictures into class folders."
        )
    pictures = [
        Listed(key, wnid, part == test)
        for part in ("train", test)
        for wnid in classes
        for key in image_files(data, f"{part}/{wnid}")
    ]
    return listed_dataset("imagenet_subset", classes, pictures, FileReader(data))


INFO = DatasetInfo(
    name="imagenet_subset",
    title="ImageNet-Subset (100 classes)",
    loader=load,
    n_classes=100,
    images="about 130,000 photographs",
    size="15 GB",
    licence="non-commercial research, with an account at image-net.org",
    how_to_get=(
        "ImageNet asks for an account, so it cannot be downloaded here: get it from https://image-net.org, "
        "sort both parts into class folders (train/<wnid>, val/<wnid>) and name the folder with --data."
    ),
    layouts="train/<wnid>/* and val/<wnid>/* with 1,000 or exactly 100 classes",
    markers=("train",),
    tasks=5,
    order="paper",
    crop_scale=0.08,
)
