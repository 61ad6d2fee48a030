"""CIFAR-10 and CIFAR-100 in the binary version; the Python version is a pickle and is not opened."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset, official_names
from camp.data.datasets.folders import class_folders, has_train_folder
from camp.data.datasets.info import Archive, DatasetInfo
from camp.data.images import UnreadableImageError

PIXELS = 3 * 32 * 32


class CifarReader:
    """Reader of files of fixed-size records: label bytes, then 1,024 bytes each of red, green and blue."""

    def __init__(self, rows: dict[str, tuple[int, int]], records: list[np.ndarray]) -> None:
        self.rows = rows
        self.records = records

    def read(self, key: str) -> bytes:
        """Return the 3,072 colour bytes."""
        file, row = self.rows[key]
        return self.records[file][row, -PIXELS:].tobytes()

    def decode(self, data: bytes, min_size: int | None = None) -> Image.Image:
        """Decode the colour bytes to an image of 32 x 32 pixels."""
        if len(data) != PIXELS:
            raise UnreadableImageError(f"{len(data)} bytes are not a CIFAR image")
        return Image.fromarray(np.frombuffer(data, dtype=np.uint8).reshape(3, 32, 32).transpose(1, 2, 0))


def load_cifar10(data: Path) -> Dataset:
    """Load CIFAR-10 from `cifar-10-batches-bin`, or from class folders."""
    train = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
    return _load("cifar10", data, train, ("test_batch.bin",), label_bytes=1)


def load_cifar100(data: Path) -> Dataset:
    """Load CIFAR-100 with its fine classes from `cifar-100-binary`, or from class folders."""
    return _load("cifar100", data, ("train.bin",), ("test.bin",), label_bytes=2)


def _load(name: str, data: Path, train: Sequence[str], test: Sequence[str], label_bytes: int) -> Dataset:
    classes = official_names(name)
    inside = "cifar-10-batches-bin" if name == "cifar10" else "cifar-100-binary"
    for root in (data, data / inside):
        if (root / train[0]).is_file():
            return _binary(name, root, classes, train, test, label_bytes)
    if has_train_folder(data):
        return class_folders(name, data, classes)
    pickled = "cifar-10-batches-py" if name == "cifar10" else "cifar-100-python"
    if (data / pickled).is_dir() or data.name == pickled:
        raise CampError(
            f"{data} holds the Python version of {name}, which is a pickle and is not opened; "
            f"get the binary version with `camp datasets get {name}`."
        )
    raise CampError(
        f"{data} does not hold {name}: expected {inside}/{train[0]}, or train/<class>/* and test/<class>/*."
    )


def _binary(
    name: str, root: Path, classes: Sequence[str], train: Sequence[str], test: Sequence[str], label_bytes: int
) -> Dataset:
    records: list[np.ndarray] = []
    rows: dict[str, tuple[int, int]] = {}
    labels, is_test = [], []
    # `test/...` sorts before `train/...`.
    for part, files in (("test", test), ("train", train)):
        count = 0
        for file in files:
            table = _records(root / file, label_bytes + PIXELS)
            fine = np.asarray(table[:, label_bytes - 1])
            if fine.max() >= len(classes):
                raise CampError(
                    f"{root / file} has a label above {len(classes) - 1}: it is not a file of {name}."
                )
            rows.update({f"{part}/{count + row:05d}": (len(records), row) for row in range(len(table))})
            records.append(table)
            labels.append(fine)
            is_test.append(np.full(len(table), part == "test"))
            count += len(table)
    return Dataset(
        name=name,
        classes=tuple(classes),
        keys=tuple(rows),
        labels=np.concatenate(labels).astype(np.int64),
        is_test=np.concatenate(is_test),
        reader=CifarReader(rows, records),
    )


def _records(path: Path, length: int) -> np.ndarray:
    """Map the records (n, length) of a file into memory."""
    if not path.is_file():
        raise CampError(f"{path} is missing; unpack the whole archive again.")
    size = path.stat().st_size
    if size == 0 or size % length:
        raise CampError(
            f"{path} has {size} bytes, which is not a whole number of images; unpack the archive again."
        )
    return np.memmap(path, dtype=np.uint8, mode="r", shape=(size // length, length))


_LICENCE = "none stated; the authors ask to cite their report"
_HOW = "Run `camp datasets get {}`, or unpack {} from https://www.cs.toronto.edu/~kriz/cifar.html."

CIFAR10 = DatasetInfo(
    name="cifar10",
    title="CIFAR-10",
    loader=load_cifar10,
    n_classes=10,
    images="60,000 of 32 x 32",
    size="170 MB",
    licence=_LICENCE,
    how_to_get=_HOW.format("cifar10", "cifar-10-binary.tar.gz"),
    layouts="cifar-10-batches-bin/, or train/<class>/* and test/<class>/*",
    markers=("cifar-10-batches-bin/data_batch_1.bin", "data_batch_1.bin", "train"),
    archives=(
        Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"
        ),
    ),
    tasks=2,
    crop_scale=0.08,
    cil_padding=4 / 32,
)

CIFAR100 = DatasetInfo(
    name="cifar100",
    title="CIFAR-100",
    loader=load_cifar100,
    n_classes=100,
    images="60,000 of 32 x 32",
    size="169 MB",
    licence=_LICENCE,
    how_to_get=_HOW.format("cifar100", "cifar-100-binary.tar.gz"),
    layouts="cifar-100-binary/, or train/<class>/* and test/<class>/*",
    markers=("cifar-100-binary/train.bin", "train.bin", "train"),
    archives=(
        Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8"
        ),
    ),
    tasks=5,
    order="paper",
    crop_scale=0.08,
    cil_padding=4 / 32,
)
