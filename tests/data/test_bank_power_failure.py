"""A power failure at any time while a view bank is filled: sealed records are whole, and the bank is continued."""

import shutil
from pathlib import Path

import numpy as np
from test_store import COLUMNS, digest, record

from camp.data.bank.store import Store
from crashes import Recorder, restore, states


def add(store: Store, *numbers: int) -> None:
    for number in numbers:
        store.append([digest(number)], record(number))


def check(store: Store, numbers: list[int]) -> None:
    """The records of `numbers` are there and whole; others may be too."""
    for number in numbers:
        assert digest(number) in store
    for found in store.digests():
        for column in COLUMNS:
            values = store.gather(column, store.rows([found])).numpy()
            np.testing.assert_array_equal(values, record(found[0])[column.name])


def test_a_bank_after_a_power_failure(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with Recorder(root) as recorder:
        store = Store(root / "bank", COLUMNS)
        store.repair()
        add(store, 1, 2)
        store.seal()
        recorder.done([1, 2])
        again = Store(root / "bank", COLUMNS)
        again.repair()
        add(again, 3, 4)
        again.seal()
        recorder.done([3, 4])
        recorder.done([-2])  # from here on record 2 may be missing
        again.remove([1])
        add(again, 2)
        again.seal()
        recorder.done([2])
    count = 0
    for promised, left in states(recorder):
        count += 1
        folder = restore(left, tmp_path / "state") / "bank"
        store = Store(folder, COLUMNS)
        store.repair()
        assert store.verify() == []
        sealed = sorted({number for numbers in promised for number in numbers if number > 0})
        check(
            store, [number for number in sealed if number != 2 or [-2] not in promised or promised[-1] == [2]]
        )
        add(store, *(number for number in range(1, 7) if digest(number) not in store))
        store.seal()
        last = Store(folder, COLUMNS)
        assert last.sealed() == len(last)
        check(last, list(range(1, 7)))
        shutil.rmtree(tmp_path / "state")
    assert count > 100
