"""Measurements of the server in the text format of Prometheus.

Reference: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
IMAGES = (1, 2, 4, 8, 16, 32)
OTHER = "other"


class Histogram:
    """Number of values up to each of some bounds, and their sum.

    >>> histogram = Histogram((1, 2))
    >>> for value in (0.5, 2, 3):
    ...     histogram.add(value)
    >>> print(*histogram.lines("waited"), sep="\\n")
    waited_bucket{le="1"} 1
    waited_bucket{le="2"} 2
    waited_bucket{le="+Inf"} 3
    waited_sum 5.5
    waited_count 3
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * len(self.bounds)
        self.total, self.sum = 0, 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.total += 1
        self.sum += value
        for position, bound in enumerate(self.bounds):
            self.counts[position] += value <= bound

    def lines(self, name: str) -> Iterator[str]:
        """Return the lines of the metric `name`."""
        for bound, count in zip(self.bounds, self.counts):
            yield f'{name}_bucket{{le="{bound:g}"}} {count}'
        yield f'{name}_bucket{{le="+Inf"}} {self.total}'
        yield f"{name}_sum {self.sum:g}"
        yield f"{name}_count {self.total}"


class Metrics:
    """What the server has done since it was started; changed by the thread of the event loop only."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """Number of answers by path and status."""
        self.predicted = 0
        """Number of images that were predicted."""
        self.unknown = 0
        """Number of them that were called unknown."""
        self.batches = Histogram(IMAGES)
        """Numbers of images that were predicted together."""
        self.seconds = Histogram(SECONDS)
        """Times from the headers of a request for a prediction to the end of the answer, with status 200."""

    def text(self, waiting: int) -> str:
        """Return all metrics; `waiting` is the number of images that are being processed now."""
        share = self.unknown / self.predicted if self.predicted else 0.0
        requests = [
            f'camp_requests_total{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(self.requests.items())
        ]
        parts = [
            ("requests_total", "counter", "Answers by path and status.", requests),
            ("images_total", "counter", "Predicted images.", [f"camp_images_total {self.predicted}"]),
            ("unknown_total", "counter", "Unknown images.", [f"camp_unknown_total {self.unknown}"]),
            ("unknown_share", "gauge", "Share of unknown images.", [f"camp_unknown_share {share:g}"]),
            ("queue_length", "gauge", "Images without an answer yet.", [f"camp_queue_length {waiting}"]),
            (
                "batch_images",
                "histogram",
                "Images predicted together.",
                self.batches.lines("camp_batch_images"),
            ),
            (
                "predict_seconds",
                "histogram",
                "Time of a prediction, with waiting.",
                self.seconds.lines("camp_predict_seconds"),
            ),
        ]
        lines = []
        for name, kind, help, values in parts:
            lines += [f"# HELP camp_{name} {help}", f"# TYPE camp_{name} {kind}", *values]
        return "\n".join(lines) + "\n"


class CountRequests:
    """ASGI middleware that counts answers, and the time of predictions.

    Args:
        app: The application.
        metrics: Where they are counted.
        paths: Paths that are told apart. Any other path is counted as "other", so that clients cannot add metrics.
        timed: The path of predictions.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: frozenset[str], timed: str) -> None:
        self.app, self.metrics, self.paths, self.timed = app, metrics, paths, timed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and count its answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, observe)
        finally:
            path = scope["path"] if scope["path"] in self.paths else OTHER
            self.metrics.requests[path, status] += 1
            if path == self.timed and status == 200:
                self.metrics.seconds.add(time.perf_counter() - begun)
