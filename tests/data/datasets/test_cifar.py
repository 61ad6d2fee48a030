"""The official layouts of CIFAR-10 and CIFAR-100."""

from pathlib import Path

import numpy as np
import pytest
from tiny_trees import parts

from camp.core.errors import CampError
from camp.data.datasets import load_dataset


def cifar_file(path: Path, labels: list[int], label_bytes: int) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(labels)).integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    heads = np.zeros((len(labels), label_bytes), dtype=np.uint8)
    heads[:, -1] = labels
    path.write_bytes(np.hstack([heads, pixels.reshape(len(labels), -1)]).tobytes())
    return pixels


def cifar10_tree(root: Path) -> np.ndarray:
    first = cifar_file(root / "data_batch_1.bin", list(range(10)), 1)
    for number in range(2, 6):
        cifar_file(root / f"data_batch_{number}.bin", [number], 1)
    cifar_file(root / "test_batch.bin", [9, 0], 1)
    return first


def test_cifar10_binary(tmp_path):
    first = cifar10_tree(tmp_path / "cifar-10-batches-bin")
    dataset = load_dataset("cifar10", tmp_path)
    assert dataset.classes[0] == "airplane"
    assert dataset.classes[9] == "truck"
    assert dataset.keys[:3] == ("test/00000", "test/00001", "train/00000")
    assert parts(dataset, "bird") == (["train/00002", "train/00010"], [])
    assert parts(dataset, "truck") == (["train/00009"], ["test/00000"])
    got = np.asarray(dataset.decode(dataset.read("train/00003")))
    assert np.array_equal(got, first[3].transpose(1, 2, 0))


def test_cifar100_binary_uses_the_fine_labels(tmp_path):
    cifar_file(tmp_path / "cifar-100-binary" / "train.bin", list(range(100)), 2)
    cifar_file(tmp_path / "cifar-100-binary" / "test.bin", [99], 2)
    dataset = load_dataset("cifar100", tmp_path)
    assert dataset.classes == tuple(sorted(dataset.classes))
    assert parts(dataset, "worm") == (["train/00099"], ["test/00000"])


def test_cifar_refuses_what_it_cannot_read(tmp_path):
    (tmp_path / "cifar-100-python").mkdir()
    (tmp_path / "cifar-100-python" / "train").write_bytes(b"a pickle")
    for place in (tmp_path, tmp_path / "cifar-100-python"):
        with pytest.raises(CampError, match=r"pickle.*binary version"):
            load_dataset("cifar100", place)
    cifar10_tree(tmp_path / "ten")
    (tmp_path / "ten" / "data_batch_3.bin").write_bytes(b"short")
    with pytest.raises(CampError, match="whole number"):
        load_dataset("cifar10", tmp_path / "ten")
    (tmp_path / "ten" / "data_batch_3.bin").unlink()
    with pytest.raises(CampError, match="missing"):
        load_dataset("cifar10", tmp_path / "ten")
    cifar10_tree(tmp_path / "ten")
    cifar_file(tmp_path / "ten" / "data_batch_3.bin", [10], 1)
    with pytest.raises(CampError, match="label above 9"):
        load_dataset("cifar10", tmp_path / "ten")
