"""Batches of vectors in files: labels, copies, and vectors that are not finite."""

from pathlib import Path

import numpy as np
import pytest

from camp.app.inputs.vectors import VectorBatch, read_vectors
from camp.core.errors import CampError
from camp.core.progress import Progress

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
NONE = np.empty((0, 16), np.uint8)


def readable(batch: VectorBatch):
    digests, finite = batch.digests(Progress(quiet=True))
    return batch.readable(digests, finite, NONE, 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.save(tmp_path / "january.npy", X)
    return tmp_path / "january.npy"


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (np.array([0, -1, 12, 0, -1, -1]), ["0", None, "12", "0", None, None]),
        (np.array(["heron", "", " wren ", "heron", "", ""]), ["heron", None, "wren", "heron", None, None]),
        (np.array([b"heron", b"", b"", b"", b"", b""]), ["heron", *[None] * 5]),
    ],
)
def test_labels_of_an_array_are_names(labels, names, file: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", labels)
    np.savez(tmp_path / "both.npz", vectors=X, labels=labels)
    assert read_vectors(file, tmp_path / "labels.npy").labels == names
    assert read_vectors(tmp_path / "both.npz").labels == names


def test_labels_of_a_text_are_its_lines(file: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("heron\n\nwren\n\n\n\n")
    assert read_vectors(file, tmp_path / "labels.txt").labels == ["heron", None, "wren", None, None, None]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.zeros(5, np.int64), "expected 6 whole numbers or strings"),
        (np.zeros(6), "expected 6 whole numbers or strings"),
        (np.array([0, 0, 0, 0, 0, -3]), "is negative"),
        (np.array(["unknown"] * 6), "have a meaning of their own"),
    ],
)
def test_what_is_no_label_is_refused(labels, said: str, file: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", labels)
    with pytest.raises(CampError, match=said):
        read_vectors(file, tmp_path / "labels.npy")


def test_copies_count_once_with_their_label(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", vectors=X[[0, 1, 0, 2]], labels=np.array(["", "", "wren", ""]))
    rows, images = readable(read_vectors(tmp_path / "x.npz"))
    assert rows.tolist() == [1, 2, 3]
    assert list(images.files) == ["x.npz/1", "x.npz/2", "x.npz/3"]
    assert images.labels == [None, "wren", None]
    assert images.remarks == ["1 of the vectors of x.npz are copies of others and count once."]
    np.savez(tmp_path / "y.npz", vectors=X[[0, 1, 0]], labels=np.array(["heron", "", "wren"]))
    with pytest.raises(CampError, match=r"Rows 0 and 2 of y\.npz are the same vector"):
        readable(read_vectors(tmp_path / "y.npz"))


def test_rows_of_a_program_are_kept_apart() -> None:
    rows, images = readable(VectorBatch.of_array(X[[0, 1, 0]], None))
    assert rows.tolist() == [0, 1, 2]
    assert len(np.unique(images.digests, axis=0)) == 3


def test_vectors_that_are_not_finite_are_left_out_unless_they_are_many(tmp_path: Path) -> None:
    x = X.copy()
    x[2, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    rows, _ = readable(read_vectors(tmp_path / "x.npy"))
    assert rows.tolist() == [0, 1, 3, 4, 5]
    x[:4] = np.inf
    np.save(tmp_path / "y.npy", x)
    with pytest.raises(CampError, match=r"4 of 6 vectors of y\.npy"):
        readable(read_vectors(tmp_path / "y.npy"))
