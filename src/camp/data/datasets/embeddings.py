"""Vectors that the user has computed with any model, of text, sound or images."""

from pathlib import Path

import numpy as np

from camp.core.errors import CampError
from camp.data.datasets.base import Dataset, holdout_mask
from camp.data.datasets.info import DatasetInfo
from camp.data.vector_files import VectorReader, blocks, open_array

TEST_SHARE = 0.2


def load(data: Path) -> Dataset:
    """Load `vectors` (N, D), `labels` (N,) and `test` (N,), by default a fifth, from an .npz file."""
    arrays = _arrays(data)
    vectors, labels = arrays["vectors"], arrays["labels"]
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu" or not vectors.size:
        raise CampError(
            f"`vectors` of {data} has shape {vectors.shape} and type {vectors.dtype}, not numbers (N, D)."
        )
    if labels.shape != (len(vectors),) or labels.dtype.kind not in "iuUS":
        raise CampError(
            f"`labels` of {data} has shape {labels.shape} and type {labels.dtype}; "
            f"expected {len(vectors)} whole numbers or strings."
        )
    try:
        if labels.dtype.kind == "S":
            labels = np.char.decode(labels, "utf-8")
        "".join(map(str, labels.tolist())).encode()
    except UnicodeError:
        raise CampError(f"`labels` of {data} is not text in UTF-8; save it as strings.") from None
    if not all(np.isfinite(block).all() for _, block in blocks(vectors)):
        raise CampError(f"`vectors` of {data} holds numbers that are not finite; remove those rows.")
    names, positions = np.unique(labels, return_inverse=True)
    width = len(str(len(vectors) - 1))
    keys = tuple(f"{row:0{width}d}" for row in range(len(vectors)))
    return Dataset(
        name="embeddings",
        classes=tuple(str(name) for name in names),
        keys=keys,
        labels=positions.astype(np.int64),
        is_test=_test_mask(data, arrays, labels),
        reader=VectorReader(vectors),
    )


def _arrays(data: Path) -> dict[str, np.ndarray]:
    if data.suffix != ".npz" or not data.is_file():
        raise CampError(
            f"{data} is not an .npz file; save one with numpy.savez(file, vectors=..., labels=..., test=...)."
        )
    found = {name: open_array(data, name) for name in ("vectors", "labels", "test")}
    arrays = {name: array for name, array in found.items() if array is not None}
    missing = {"vectors", "labels"} - arrays.keys()
    if missing:
        raise CampError(
            f"{data} lacks the array {min(missing)!r}; expected `vectors` (N, D) and `labels` (N,)."
        )
    return arrays


def _test_mask(data: Path, arrays: dict[str, np.ndarray], labels: np.ndarray) -> np.ndarray:
    if "test" not in arrays:
        return holdout_mask(labels, TEST_SHARE, "embeddings")
    test = arrays["test"]
    if test.shape != labels.shape or test.dtype != np.bool_:
        raise CampError(
            f"`test` of {data} has shape {test.shape} and type {test.dtype}; expected {len(labels)} bools."
        )
    return test


INFO = DatasetInfo(
    name="embeddings",
    title="Your own vectors (.npz)",
    loader=load,
    n_classes=None,
    images="yours",
    size="yours",
    licence="yours",
    how_to_get="Save numpy.savez(file, vectors=..., labels=..., test=...) and name the file with --data.",
    layouts="an .npz file with `vectors` and `labels`, and perhaps `test`",
    tasks=2,
    crop_scale=1.0,
    flip=False,
    saturation=0.0,
    colour=False,
    backbone="embeddings",
)
