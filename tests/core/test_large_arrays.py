"""Arrays in temporary files are like arrays in memory."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from camp.core import large_arrays
from camp.core.large_arrays import BLOCK, copy_rows, empty_array
from camp.core.safetensors_files import map_arrays, write_arrays


def test_a_large_array_is_in_a_file_and_holds_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(empty_array((3, 2), np.float32)) is np.ndarray
    monkeypatch.setattr(large_arrays, "LARGE_BYTES", 1)
    values = np.random.default_rng(0).normal(size=(BLOCK + 5, 3)).astype(np.float32)
    rows = np.random.default_rng(1).permutation(len(values))
    found = copy_rows(values, rows, np.float16)
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, values[rows].astype(np.float16))


def test_arrays_that_were_written_in_blocks_are_mapped_and_read_by_safetensors(tmp_path) -> None:
    draw = np.random.default_rng(0)
    arrays = {
        "digests": draw.integers(0, 256, (BLOCK + 3, 16), dtype=np.uint8),
        "points": draw.normal(size=(BLOCK + 3, 2)).astype(np.float32)[::-1],
        "own": draw.normal(size=7),
        "none": np.empty((0, 5), np.int32),
    }
    write_arrays(tmp_path / "arrays.safetensors", arrays)
    for found in (load_file(tmp_path / "arrays.safetensors"), map_arrays(tmp_path / "arrays.safetensors")):
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)
