"""Stanford Cars: 196 car models."""

from pathlib import Path
from typing import Any

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset, Sample, official_names
from camp.data.datasets.folders import class_folders, has_train_folder, image_files, official_classes
from camp.data.datasets.info import DatasetInfo

TEST_LABELS = "cars_test_annos_withlabels.mat"


def load(data: Path) -> Dataset:
    """Load 196 car models, 8,144 train and 8,041 test images.

    Supported are the official `cars_train`, `cars_test` and `devkit`, the later `car_ims` with
    `cars_annos.mat`, and class folders, also inside `car_data`.
    """
    for root in (data, data / "stanford_cars"):
        if (root / "cars_annos.mat").is_file():
            return _one_folder(root)
        if (root / "cars_train").is_dir():
            return _two_folders(root)
    for root in (data, data / "car_data", data / "car_data" / "car_data"):
        if has_train_folder(root):
            return class_folders("stanford_cars", root, official_names("stanford_cars"))
    raise CampError(
        f"{data} does not hold Stanford Cars: expected cars_train/, cars_test/ and devkit/ with {TEST_LABELS}, "
        "car_ims/ with cars_annos.mat, or train/<class>/* and test/<class>/*."
    )


def _two_folders(root: Path) -> Dataset:
    """Load `cars_train/00001.jpg` ..., labelled by the development kit."""
    tables = (
        ("cars_train", _find_table(root, "cars_train_annos.mat"), False),
        ("cars_test", _find_table(root, TEST_LABELS), True),
    )
    files = set(image_files(root))
    samples = []
    for folder, path, is_test in tables:
        # Some copies wrap each folder in one of the same name.
        prefix = f"{folder}/{folder}" if (root / folder / folder).is_dir() else folder
        for row in _matlab(path):
            key = f"{prefix}/{row['fname'].item()}"
            samples.append(_sample(path, files, key, row["class"].item(), is_test))
    return official_classes("stanford_cars", root, official_names("stanford_cars"), samples)


def _one_folder(root: Path) -> Dataset:
    """Load `car_ims/000001.jpg` ..., with one table for train and test."""
    path = root / "cars_annos.mat"
    files = set(image_files(root))
    samples = []
    for row in _matlab(path):
        key, number, is_test = (row[name].item() for name in ("relative_im_path", "class", "test"))
        samples.append(_sample(path, files, key, number, bool(is_test)))
    return official_classes("stanford_cars", root, official_names("stanford_cars"), samples)


def _sample(path: Path, files: set[str], key: str, number: int, is_test: bool) -> Sample:
    """Return the sample of a table row; class numbers start at 1."""
    if key not in files:
        raise CampError(f"{path} lists {key}, which is missing; unpack the archive again.")
    names = official_names("stanford_cars")
    if not 1 <= number <= len(names):
        raise CampError(f"{path} gives {key} the class {number}; expected 1..{len(names)}.")
    return Sample(key, names[number - 1], is_test)


def _find_table(root: Path, name: str) -> Path:
    """Return the path of the table `name`, beside the images or in the development kit."""
    for path in (root / name, root / "devkit" / name, root / "car_devkit" / "devkit" / name):
        if path.is_file():
            return path
    raise CampError(
        f"{root} lacks {name}, which holds the labels (cars_test_annos.mat of the first release has none); "
        "put it beside the images or into devkit/."
    )


def _matlab(path: Path) -> Any:
    """Return the rows of the struct array `annotations` in a MATLAB file."""
    from scipy.io import loadmat

    try:
        return loadmat(path)["annotations"].ravel()
    except Exception as error:
        raise CampError(f"{path} cannot be read as a MATLAB file with 'annotations' ({error}).") from error


INFO = DatasetInfo(
    name="stanford_cars",
    title="Stanford Cars",
    loader=load,
    n_classes=196,
    images="16,185 photographs",
    size="2.0 GB",
    licence="non-commercial research",
    how_to_get=(
        "Its original URL is gone, so it cannot be downloaded automatically: get cars_train, cars_test, devkit and "
        f"{TEST_LABELS} from a mirror (Kaggle's stanford-cars-by-classes-folder has class folders) "
        "and name the folder with --data."
    ),
    layouts="cars_train/, cars_test/, devkit/; car_ims/, cars_annos.mat; or train/<class>/*, test/<class>/*",
    markers=("cars_train", "cars_annos.mat", "car_data", "train", "stanford_cars/cars_train"),
    tasks=4,
    order="paper",
    crop_scale=0.08,
)
