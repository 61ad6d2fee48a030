"""Registry of data sets by name; one module each."""

import inspect
import os
from pathlib import Path
from typing import Any

from camp.core.errors import CampError
from camp.core.files import expand_user
from camp.data.datasets import (
    cifar,
    cub200,
    digits,
    domainnet,
    embeddings,
    fgvc_aircraft,
    folders,
    imagenet_subset,
    stanford_cars,
    tiny_imagenet,
)
from camp.data.datasets.base import Dataset
from camp.data.datasets.info import DatasetInfo

_MODULES = (
    cub200,
    stanford_cars,
    fgvc_aircraft,
    domainnet,
    imagenet_subset,
    tiny_imagenet,
    folders,
    embeddings,
)

DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (digits.INFO, cifar.CIFAR10, cifar.CIFAR100, *(module.INFO for module in _MODULES))
}


def dataset_info(name: str) -> DatasetInfo:
    """Return the registry entry of data set `name`."""
    if name not in DATASETS:
        raise CampError(f"There is no data set {name!r}; known are {', '.join(DATASETS)}.")
    return DATASETS[name]


def data_folder(name: str) -> Path:
    """Return the default folder of data set `name`: $CAMP_DATA/<name>, or ~/.cache/camp/data/<name>."""
    base = os.environ.get("CAMP_DATA")
    return (expand_user(base or "~/.cache/camp/data")) / name


def is_present(name: str, data: Path | None = None) -> bool:
    """Return whether data set `name` exists in `data` or in its default folder."""
    info = dataset_info(name)
    return info.is_present(data_folder(name) if data is None else Path(data))


def load_dataset(name: str, data: Path | None = None, **options: Any) -> Dataset:
    """Load data set `name` from `data` (None for `data_folder(name)`), with options such as cub200's `split`."""
    info = dataset_info(name)
    known = [option for option in inspect.signature(info.loader).parameters if option != "data"]
    for option in options:
        if option not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise CampError(f"Data set {name} has no option {option!r}; {has}.")
    if info.embedded:
        if data is not None:
            raise CampError(
                f"Data set {name} is installed with CAMP and reads no other data; leave out --data."
            )
        return info.loader(None, **options)
    root = data_folder(name) if data is None else expand_user(data)
    if not root.exists():
        raise CampError(f"{root} does not exist; data set {name} is looked for there. {info.how_to_get}")
    if root.is_dir() and not any(root.iterdir()):
        raise CampError(f"{root} is empty; expected {info.layouts}. {info.how_to_get}")
    return info.loader(root, **options)
