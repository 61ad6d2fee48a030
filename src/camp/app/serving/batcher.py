"""Prediction of the images of concurrent requests, several at a time.

    request ──▶ decode (one thread per core) ──▶ queue ──▶ trunk and tip (a part per core) ──▶ answer

While a batch is predicted, the images of further requests are decoded and wait; the next batch takes all of them, up to a
maximum. A single request waits for nobody.
"""

import asyncio
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from camp.app.prediction.keep_unknown import keep_with
from camp.app.prediction.model import Model
from camp.app.prediction.predict import Prediction, load_image, predict_loaded
from camp.app.serving.limits import LARGE, MAX_BATCH, MAX_WAITING
from camp.app.serving.metrics import Metrics
from camp.app.workspace.kept_unknown import UnknownKeeper
from camp.core.errors import CampError
from camp.data.images import number_of_pixels

_SMOOTHING = 0.2
"""Weight of the last batch in the expected time of an image."""


class BusyError(Exception):
    """There is no room for another request; `seconds` says when there may be."""

    def __init__(self, sentence: str, seconds: int) -> None:
        super().__init__(sentence)
        self.seconds = seconds


@dataclass(frozen=True)
class _Waiting:
    """A decoded image."""

    model: Model
    """The model whose size the image has."""
    file: str
    image: np.ndarray
    result: "asyncio.Future[tuple[Prediction, Tensor]]"


class Batcher:
    """Predicts images in batches. Its methods belong to one event loop.

    Args:
        model_of: Returns the present model; called with every image, in several threads.
        keeper: Keeps unknown images, if given.
        metrics: Where images and batches are counted.
        max_waiting: Number of images without an answer from which on further ones are refused.
        max_batch: Maximum number of images that are predicted together.
    """

    def __init__(
        self,
        model_of: Callable[[], Model],
        keeper: UnknownKeeper | None = None,
        metrics: Metrics | None = None,
        max_waiting: int = MAX_WAITING,
        max_batch: int = MAX_BATCH,
    ) -> None:
        if max_waiting < 1:
            raise CampError(f"At least one picture must be able to wait, and --queue is {max_waiting}.")
        self.model_of, self.keeper, self.metrics = model_of, keeper, metrics or Metrics()
        self.max_waiting, self.max_batch = max_waiting, max_batch
        self.waiting = 0
        """Number of images without an answer."""
        self._queue: deque[_Waiting] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._decoders = ThreadPoolExecutor(torch.get_num_threads(), "decode")
        self._trunk = ThreadPoolExecutor(1, "trunk")
        self._large = threading.Lock()
        self._seconds_per_image = 0.0

    def check_room(self) -> None:
        """Raise a `BusyError` if no further image is accepted."""
        if self.waiting >= self.max_waiting:
            # Time to answer half of the queue, so that it is not empty when clients try again.
            seconds = max(1, math.ceil(self.waiting * self._seconds_per_image / 2))
            again = "1 second" if seconds == 1 else f"{seconds} seconds"
            raise BusyError(f"{self.waiting} pictures are waiting already; try again in {again}.", seconds)

    async def predict(self, data: bytes, file: str) -> Prediction:
        """Predict the category of one encoded image.

        Raises:
            BusyError: Too many images are waiting.
            UnreadableImageError: It cannot be decoded.
        """
        self.check_room()
        self.waiting += 1
        try:
            loop = asyncio.get_running_loop()
            model, image = await loop.run_in_executor(self._decoders, self._load, data)
            one = _Waiting(model, file, image, loop.create_future())
            self._queue.append(one)
            if self._worker is None:
                self._worker = loop.create_task(self._work())
            row, features = await one.result
            if self.keeper is not None and row.category is None:
                keep = keep_with(self.keeper, model)
                await loop.run_in_executor(self._decoders, keep, file, data, features)
            return row
        finally:
            self.waiting -= 1

    def _load(self, data: bytes) -> tuple[Model, np.ndarray]:
        model = self.model_of()
        large = model.backbone.resolution > 0 and number_of_pixels(data) >= LARGE
        with self._large if large else contextlib.nullcontext():
            return model, load_image(model, data)

    async def _work(self) -> None:
        """Predict batch after batch until nothing waits."""
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                batch = self._next_batch()
                images = [(one.file, one.image) for one in batch]
                begun = time.perf_counter()
                try:
                    results = await loop.run_in_executor(self._trunk, predict_loaded, batch[0].model, images)
                except Exception as error:
                    for one in batch:
                        if not one.result.done():
                            one.result.set_exception(error)
                    continue
                self._count([row for row, _ in results], time.perf_counter() - begun)
                for one, result in zip(batch, results):
                    if not one.result.done():
                        one.result.set_result(result)
        finally:
            self._worker = None

    def _next_batch(self) -> list[_Waiting]:
        """Take the images that wait for the same model, the oldest first."""
        batch = [self._queue.popleft()]
        while self._queue and len(batch) < self.max_batch and self._queue[0].model is batch[0].model:
            batch.append(self._queue.popleft())
        return batch

    def _count(self, rows: list[Prediction], seconds: float) -> None:
        each = seconds / len(rows)
        before = self._seconds_per_image or each
        self._seconds_per_image = (1 - _SMOOTHING) * before + _SMOOTHING * each
        self.metrics.batches.add(len(rows))
        self.metrics.predicted += len(rows)
        self.metrics.unknown += sum(row.category is None for row in rows)
