"""Small class folders for tests."""

from pathlib import Path

import numpy as np
from PIL import Image


def paint(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), shade % 256).save(path, "PNG")


def parts(dataset, class_name):
    """Keys of a class: (train, test)."""
    of_class = dataset.labels == dataset.classes.index(class_name)
    keys = np.array(dataset.keys)
    return keys[of_class & ~dataset.is_test].tolist(), keys[of_class & dataset.is_test].tolist()
