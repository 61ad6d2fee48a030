"""Pictures from the file to the trunk, for whoever runs many: each core takes whole blocks all the way.

Pillow, torch and onnxruntime let go of the interpreter lock, so that no core waits for another.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from PIL import Image

from camp.data.datasets.base import Reader
from camp.data.images import BadImage, resized

TRUNK_BATCH = 24
"""Views a pass of the trunk takes: enough to be efficient, few enough to stay near the cache."""
_DECODED_PER_PIXEL = 4
"""A JPEG more than so many times larger than needed is decoded at a fraction of its size; nobody sees it."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def read(reader: Reader, key: str) -> bytes:
    """The bytes of picture `key`; `BadImage` says why there are none."""
    try:
        return reader.read(key)
    except OSError as error:
        raise BadImage(f"could not be read ({error.strerror or error})") from error


def decoded(decode: Callable[..., Image.Image | np.ndarray], data: bytes, resolution: int) -> np.ndarray:
    """What `decode`, of a `Reader`, finds in `data`: pixels (R, R, 3) uint8, or a vector (D,) float32."""
    try:
        picture = decode(data, at_least=_DECODED_PER_PIXEL * resolution)
    except OSError as error:
        raise BadImage(str(error)) from error
    return resized(picture, resolution) if isinstance(picture, Image.Image) else picture


def ahead(function: Callable[[Item], Result], items: Iterable[Item], lookahead: int = 64) -> Iterator[Result]:
    """`map` in a thread a core, in order, never more than `lookahead` results in advance."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            waiting: deque[Future[Result]] = deque()
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > lookahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        torch.set_num_threads(threads)  # torch remembers the last word of any thread for new threads
