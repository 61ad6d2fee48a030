"""Vectors in an .npz file."""

import numpy as np
import pytest

from camp.core.errors import CampError
from camp.data.datasets import load_dataset


def test_embeddings(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(30, 5))
    labels = np.array([10, 2, 30] * 10)
    np.savez(tmp_path / "v.npz", vectors=vectors, labels=labels)
    dataset = load_dataset("embeddings", tmp_path / "v.npz")
    assert dataset.classes == ("2", "10", "30")
    assert dataset.is_test.sum() == 6
    vector = dataset.decode(dataset.read("07"))
    assert vector.dtype == np.float32
    assert np.array_equal(vector, vectors[7].astype(np.float32))
    assert dataset.classes[dataset.labels[7]] == "2"


def test_embeddings_with_names_and_test_marks(tmp_path):
    test = np.array([False, False, True, True])
    np.savez(tmp_path / "v.npz", vectors=np.eye(4), labels=np.array(["b", "a", "b", "a"]), test=test)
    dataset = load_dataset("embeddings", tmp_path / "v.npz")
    assert dataset.classes == ("a", "b")
    assert dataset.is_test.tolist() == test.tolist()


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"vectors": np.eye(3)}, "lacks the array 'labels'"),
        ({"vectors": np.eye(3), "labels": np.arange(2)}, "expected 3 whole numbers"),
        ({"vectors": np.eye(3), "labels": np.array([1.5, 2, 3])}, "expected 3 whole numbers"),
        ({"vectors": np.arange(3), "labels": np.arange(3)}, r"not numbers \(N, D\)"),
        ({"vectors": np.full((3, 2), np.nan), "labels": np.arange(3)}, "not finite"),
        (
            {"vectors": np.eye(3), "labels": np.array(["a", None, "b"], dtype=object)},
            "objects are not opened",
        ),
        ({"vectors": np.eye(3), "labels": np.arange(3), "test": np.arange(3)}, "expected 3 bools"),
    ],
)
def test_embeddings_refuse_what_does_not_fit(tmp_path, arrays, sentence):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(CampError, match=sentence):
        load_dataset("embeddings", tmp_path / "v.npz")


def test_embeddings_must_be_an_npz_file(tmp_path):
    (tmp_path / "v.txt").write_text("1 2 3")
    with pytest.raises(CampError, match=r"numpy\.savez"):
        load_dataset("embeddings", tmp_path / "v.txt")
    (tmp_path / "v.npz").write_bytes(b"not a zip")
    with pytest.raises(CampError, match="cannot be read"):
        load_dataset("embeddings", tmp_path / "v.npz")
