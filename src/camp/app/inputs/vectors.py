"""Vectors of a file or of a Python program, each of which stands for an image."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from camp.app.inputs.arrays import read_labels, unique_digests
from camp.app.inputs.base import MAX_UNREADABLE, BatchInput, ReadableImages
from camp.app.inputs.names import check_name, near_misses
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.data.bank.bank import image_digest
from camp.data.bank.store import DIGEST_BYTES
from camp.data.digests import groups
from camp.data.vector_files import RowNames, VectorReader, blocks, is_vector_file, open_array, open_vectors

NOT_FINITE = "it holds numbers that are not finite"


@dataclass
class VectorBatch(BatchInput):
    """A batch of vectors (n, D), which stay in a file until they are used."""

    vectors: np.ndarray
    """(n, D) of any type of number."""
    labels: Sequence[str | None]
    name: str
    keys: RowNames
    files: RowNames
    """What each vector is called."""
    numeric_labels: bool = False
    is_file: bool = True
    """Whether equal vectors are copies of one, and vectors that are not finite are left out, as with files of images."""

    def __post_init__(self) -> None:
        self.reader = VectorReader(self.vectors)

    @classmethod
    def of_array(cls, vectors: np.ndarray, labels: ArrayLike | None) -> "VectorBatch":
        """Make a batch of the vectors (n, D) of a Python program, in which equal rows are still several rows."""
        rows = RowNames(len(vectors), "row ")
        names, numeric = read_labels(labels, len(rows))
        return cls(vectors, names, "Python", rows, rows, numeric, is_file=False)

    def warnings(self, names: Sequence[str]) -> list[str]:
        """Return a sentence for each label that looks like a misspelled name."""
        if not self.is_file:
            return []
        return near_misses([label for label in self.labels if label is not None], names)

    def digests(self, progress: Progress) -> tuple[np.ndarray, np.ndarray]:
        """Return digests (n, 16) of all vectors, and which are finite, (n,) bool."""
        digests = np.empty((len(self.vectors), DIGEST_BYTES), dtype=np.uint8)
        finite = np.empty(len(self.vectors), dtype=bool)
        with progress.track("Fingerprints", len(self.vectors)) as bar:
            for rows, block in blocks(self.vectors):
                content = block.astype("<f4", copy=False)
                hashes = b"".join(image_digest(vector) for vector in content)
                digests[rows] = np.frombuffer(hashes, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
                finite[rows] = np.isfinite(block).all(axis=1)
                bar.advance(len(block))
        return digests, finite

    def readable(
        self, digests: np.ndarray, finite: np.ndarray, learned: np.ndarray, step: int
    ) -> tuple[np.ndarray, ReadableImages]:
        """Return the rows of the vectors that are learned, and these vectors.

        Args:
            digests: (n, 16) hashes of all vectors.
            finite: (n,) which vectors hold finite numbers alone.
            learned: (m, 16) digests of the vectors that were learned before.
            step: Number of learning steps so far.
        """
        rows, remarks = np.arange(len(self.keys)), []
        if not self.is_file:
            return rows, ReadableImages(
                self.keys, self.files, unique_digests(digests, learned, step), self.labels
            )
        n_bad = int((~finite).sum())
        if n_bad > MAX_UNREADABLE * len(rows):
            raise CampError(
                f"{n_bad} of {len(rows)} vectors of {self.name} hold numbers that are not finite, so nothing was "
                "learned; remove them."
            )
        rows = np.flatnonzero(finite)
        rows, repeated = self._without_copies(rows, digests)
        if repeated:
            remarks = [f"{repeated} of the vectors of {self.name} are copies of others and count once."]
        if len(rows) == len(self.keys):
            return rows, ReadableImages(self.keys, self.files, digests, self.labels)
        chosen = rows.tolist()
        return rows, ReadableImages(
            keys=[self.keys[row] for row in chosen],
            files=[self.files[row] for row in chosen],
            digests=digests[rows],
            labels=[self.labels[row] for row in chosen],
            remarks=remarks,
        )

    def _without_copies(self, rows: np.ndarray, digests: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the first of equal vectors, the first labelled one if there is one, and the number of the others."""
        first, group = groups(digests[rows])
        if len(first) == len(rows):
            return rows, 0
        kept, several = first.copy(), np.bincount(group) > 1
        for at in np.flatnonzero(several[group] & (first[group] != np.arange(len(rows)))).tolist():
            present, label = self.labels[rows[kept[group[at]]]], self.labels[rows[at]]
            if present is None and label is not None:
                kept[group[at]] = at
            elif label is not None and label != present:
                raise CampError(
                    f"Rows {rows[kept[group[at]]]} and {rows[at]} of {self.name} are the same vector with the labels "
                    f"{present} and {label}, so nothing was learned; correct them and try again."
                )
        return rows[np.sort(kept)], len(rows) - len(kept)


def read_vectors(path: Path, labels: Path | None = None) -> VectorBatch:
    """Open a file of vectors, with the `labels` of that file, or of the array `labels` of an .npz file."""
    vectors = open_vectors(path)
    names: Sequence[str | None] = [None] * len(vectors)
    if labels is not None:
        names = _label_names(_read_label_file(labels), len(vectors), labels)
    elif path.suffix.lower() == ".npz" and (array := open_array(path, "labels")) is not None:
        names = _label_names(array, len(vectors), path)
    rows = RowNames(len(vectors))
    return VectorBatch(vectors, names, path.name, rows, RowNames(len(vectors), f"{path.name}/"))


def _read_label_file(path: Path) -> np.ndarray:
    """Read labels from an .npy file, or from a text with a label in each line."""
    if is_vector_file(path):
        array = open_array(path, "labels")
        if array is None:
            raise CampError(f"{path} lacks the array 'labels'; expected a label for each vector.")
        return array
    try:
        return np.array(path.read_text("utf-8-sig").splitlines(), dtype=np.str_)
    except FileNotFoundError:
        raise CampError(
            f"There is no file {path}; expected labels, one in each line, or in an .npy file."
        ) from None
    except OSError as error:
        raise CampError(f"Could not read {path}: {error.strerror or error}.") from error
    except UnicodeDecodeError:
        raise CampError(f"{path} is not text in UTF-8; expected a label in each line.") from None


def _label_names(labels: np.ndarray, count: int, path: Path) -> list[str | None]:
    """Return the names of labels (n,), which are whole numbers or strings; -1 and empty strings mean no label."""
    if labels.shape != (count,) or labels.dtype.kind not in "iuUS":
        raise CampError(
            f"`labels` of {path} has shape {labels.shape} and type {labels.dtype}; "
            f"expected {count} whole numbers or strings."
        )
    values, index = np.unique(labels, return_inverse=True)
    names = np.array([_label_name(value, path) for value in values.tolist()], dtype=object)
    found: list[str | None] = names[index].tolist()
    return found


def _label_name(value: int | str | bytes, path: Path) -> str | None:
    """Return the name that a label stands for, None for no label."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeError:
            raise CampError(f"`labels` of {path} is not text in UTF-8; save it as strings.") from None
    if isinstance(value, int):
        if value < -1:
            raise CampError(f"The label {value} in {path} is negative; -1 means that there is none.")
        return None if value == -1 else str(value)
    try:
        return check_name(value) if value.strip() else None
    except CampError as error:
        raise CampError(f"{path}: {error}") from None
