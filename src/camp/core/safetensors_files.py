"""Files of arrays in the format safetensors, written and read without a copy of them in memory.

A file is the length of its header in 8 bytes, the header in JSON, padded with blanks, and the arrays one after the other.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import safe_open

from camp.core.large_arrays import row_blocks

_TYPES = {"float64": "F64", "int64": "I64", "float32": "F32", "int32": "I32", "uint8": "U8"}


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays (n, ...) of the types float64, int64, float32, int32 and uint8, a block at a time."""
    # Wide types first, so that all are aligned.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header, end = {}, 0
    for name, array in ordered:
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _TYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, array in ordered:
            for part in row_blocks(len(array)):
                file.write(np.ascontiguousarray(array[part]).data)


def map_arrays(path: Path) -> dict[str, np.ndarray]:
    """Map the arrays of a file into memory, so that they are read when they are used."""
    with safe_open(path, framework="numpy") as checked:  # raises a SafetensorError for a header that is wrong
        names = list(checked.keys())
    types = {short: name for name, short in _TYPES.items()}
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    found = {}
    for name in names:
        about = header[name]
        start, end = about["data_offsets"]
        if about["dtype"] not in types:
            raise ValueError(f"{name} of {path.name} has the type {about['dtype']}")
        dtype, shape = np.dtype(types[about["dtype"]]), tuple(about["shape"])
        if start == end:
            found[name] = np.empty(shape, dtype)
            continue
        mapped = np.memmap(path, dtype=dtype, mode="c", offset=8 + length + start, shape=shape)
        found[name] = np.asarray(mapped)  # a plain view: many small slices of a memmap are slow
    return found
