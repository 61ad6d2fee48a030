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


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


def test_a_damaged_sealed_record_is_not_read(store: Store) -> None:
    store.seal()
    flip(store.file(COLUMNS[0]), 2 * COLUMNS[0].nbytes + 7)
    again = Store(store.folder, COLUMNS)
    assert again.sealed() == 5
    again.gather(COLUMNS[0], again.rows([digest(0), digest(4)]))
    for column in COLUMNS:  # the record is damaged, whichever part of it is read
        with pytest.raises(CampError, match=r"1 of 2 records that were read are not what was written"):
            again.gather(column, again.rows([digest(2), digest(3)]))
        with pytest.raises(CampError, match=r"camp check .* --repair"):
            again.gather(column, again.rows([digest(2)]))
    with pytest.raises(CampError, match="damaged"):
        again.gather(COLUMNS[0], torch.tensor([2 * 3 + 1]), parts=3)


def test_a_removed_record_is_appended_again(store: Store) -> None:
    store.seal()
    flip(store.file(COLUMNS[0]), 7)
    again = Store(store.folder, COLUMNS)
    again.remove(again.verify())
    assert digest(0) not in again
    assert (len(again), again.sealed(), again.verify()) == (5, 5, [])
    again.append([digest(0)], record(0))
    again.seal()
    last = Store(store.folder, COLUMNS)
    assert last.digests() == [digest(i) for i in (1, 2, 3, 4, 0)]
    for i in range(5):
        values = last.gather(COLUMNS[1], last.rows([digest(i)])).numpy()
        np.testing.assert_array_equal(values, record(i)["cls"])


@pytest.mark.parametrize("place", [3, 18, 2 * 20 + 5])
def test_a_changed_index_is_verified_record_by_record(store: Store, place: int) -> None:
    store.seal()
    flip(store.folder / "index.bin", place)
    again = Store(store.folder, COLUMNS)
    assert not again.index_is_intact()
    assert again.sealed() == 0
    again.repair()
    last = Store(store.folder, COLUMNS)
    assert last.index_is_intact()
    missing = [i for i in range(5) if digest(i) not in last]
    assert missing == [place // 20]
    assert last.sealed() == len(last) == 5


@pytest.mark.parametrize("content", ["", "[]", "{", '{"records": "many"}'])
def test_without_a_seal_everything_is_verified(store: Store, content: str) -> None:
    store.seal()
    (store.folder / "sealed.json").write_text(content)
    assert Store(store.folder, COLUMNS).sealed() == 0


def test_a_store_of_the_version_before_is_opened(store: Store) -> None:
    """Its seal has no checksum of the index."""
    store.seal()
    (store.folder / "sealed.json").write_text('{"records": 4}')
    again = Store(store.folder, COLUMNS)
    assert again.sealed() == 4
    assert again.repair() == 5
    again.gather(COLUMNS[0], torch.arange(5))


def test_lost_sealed_records_are_counted_and_appended_again(store: Store) -> None:
    store.seal()
    os.truncate(store.file(COLUMNS[1]), 3 * COLUMNS[1].nbytes + 1)
    again = Store(store.folder, COLUMNS)
    assert again.missing() == 2
    assert again.repair() == 3
    again.append([digest(3)], record(3))
    assert (
        Store(store.folder, COLUMNS).sealed() == 3
    )  # what was not synced yet is not sealed by the former seal
