"""ImageNet-Subset: 100 classes of ImageNet-1k, as used in class-incremental learning."""

from pathlib import Path

import numpy as np

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset, FileReader, Sample, dataset_from_samples
from camp.data.datasets.folders import has_train_folder, image_files, test_folder
from camp.data.datasets.info import DatasetInfo


def subset_1993(wnids: list[str]) -> list[str]:
    """Return the standard 100 of 1,000 sorted class ids: the first 100 after shuffling with seed 1993.

    The benchmark is defined by NumPy's legacy generator, whose numbers are guaranteed never to
    change.
    """
    order = np.random.RandomState(1993).permutation(len(wnids))
    return [wnids[index] for index in order[:100]]


def load(data: Path) -> Dataset:
    """Load `train/<wnid>/*` and `val/<wnid>/*`: all of 100 classes, or the standard 100 of 1,000.

    Classes are sorted by id in both cases, as the published class order (of FACIL) assumes.
    """
    test = test_folder(data)
    if not has_train_folder(data) or test is None:
        raise CampError(f"{data} does not hold ImageNet: expected train/<wnid>/* and val/<wnid>/*.")
    # List only the folder names until the 100 classes are known.
    wnids = sorted(path.name for path in (data / "train").iterdir() if path.is_dir() and path.name[0] != ".")
    if len(wnids) == 100:
        classes = wnids
    elif len(wnids) == 1000:
        classes = sorted(subset_1993(wnids))
    else:
        raise CampError(
            f"{data}/train holds {len(wnids)} class folders; expected all 1,000 of ImageNet-1k, or 100."
        )
    missing = [wnid for wnid in classes if not (data / f"{test}/{wnid}").is_dir()]
    if missing:
        raise CampError(
            f"{data}/{test} has no folder {missing[0]}; sort the validation images into class folders."
        )
    samples = [
        Sample(key, wnid, part == test)
        for part in ("train", test)
        for wnid in classes
        for key in image_files(data, f"{part}/{wnid}")
    ]
    return dataset_from_samples("imagenet_subset", classes, samples, FileReader(data))


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
