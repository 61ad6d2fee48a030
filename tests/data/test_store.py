"""The append-only store after crashes, truncated files and flipped bits."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from camp.core.errors import CampError
from camp.data.bank.store import Column, Store

COLUMNS = (Column("tokens", (3, 4), "float16"), Column("cls", (4,), "float32"))


def record(i: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(i)
    return {
        "tokens": rng.normal(size=(1, 3, 4)).astype("float16"),
        "cls": rng.normal(size=(1, 4)).astype("float32"),
    }


def digest(i: int) -> bytes:
    return bytes([i]) * 16


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store", COLUMNS)
    made.repair()
    for i in range(5):
        made.append([digest(i)], record(i))
    return made


def test_what_goes_in_comes_out(store: Store) -> None:
    again = Store(store.folder, COLUMNS)
    rows = again.rows([digest(3), digest(0)])
    values = again.gather(COLUMNS[0], rows)
    assert values.dtype == torch.float16
    np.testing.assert_array_equal(values.numpy(), np.concatenate([record(3)["tokens"], record(0)["tokens"]]))
    assert digest(4) in again
    assert digest(9) not in again
    assert again.verify() == []


def test_parts_of_a_record_are_rows_of_their_own(store: Store) -> None:
    parts = store.gather(COLUMNS[0], torch.tensor([2 * 3 + 1]), parts=3)
    np.testing.assert_array_equal(parts[0].numpy(), record(2)["tokens"][0, 1])


def test_a_record_without_index_entry_is_removed(store: Store) -> None:
    with store.file(COLUMNS[0]).open("ab") as file:
        file.write(b"half a record")
    with (store.folder / "index.bin").open("ab") as file:
        file.write(b"torn")
    again = Store(store.folder, COLUMNS)
    assert again.repair() == 5
    again.append([digest(5)], record(5))
    np.testing.assert_array_equal(again.gather(COLUMNS[1], again.rows([digest(5)])).numpy(), record(5)["cls"])


def test_an_index_entry_without_record_is_ignored(store: Store) -> None:
    os.truncate(store.file(COLUMNS[1]), 3 * COLUMNS[1].nbytes + 1)
    again = Store(store.folder, COLUMNS)
    assert len(again) == 3
    assert digest(4) not in again
    assert again.repair() == 3


def test_a_flipped_bit_is_found(store: Store) -> None:
    path = store.file(COLUMNS[0])
    data = bytearray(path.read_bytes())
    data[4 * COLUMNS[0].nbytes + 7] ^= 1
    path.write_bytes(bytes(data))
    again = Store(store.folder, COLUMNS)
    assert again.verify() == [4]
    assert again.repair() == 4


def test_only_what_came_after_the_seal_is_checked_again(store: Store) -> None:
    store.seal()
    store.append([digest(5)], record(5))
    path = store.file(COLUMNS[0])
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    data[5 * COLUMNS[0].nbytes + 7] ^= 1
    path.write_bytes(bytes(data))
    again = Store(store.folder, COLUMNS)
    assert again.sealed() == 5
    assert again.repair() == 5
    assert again.verify() == [0]


def test_a_wrong_shape_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="tokens"):
        store.append([digest(7)], {"tokens": np.zeros((1, 2, 4)), "cls": np.zeros((1, 4))})


def test_a_full_disk_is_an_error_in_one_sentence(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(CampError, match="No space left on device"):
        store.append([digest(8)], record(8))
    monkeypatch.undo()
    assert len(Store(store.folder, COLUMNS)) == 5
