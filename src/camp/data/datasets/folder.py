"""Images of the user in class folders."""

from pathlib import Path

from camp.data.datasets.base import Dataset
from camp.data.datasets.folders import class_folders
from camp.data.datasets.info import DatasetInfo


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
