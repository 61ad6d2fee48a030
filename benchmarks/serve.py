"""`camp serve` under load: concurrent clients in this process against a real server in another one.

python benchmarks/serve.py [--clients 200] [--images 2] [--kinds "one by one" "camp serve"]
    Print a table.
make bench
    The key `serve_latency_ratio` is the median latency of the former server over that of the present one, with as many
    clients as it has; both servers answer the same images in alternating rounds.

Each client sends a few JPEG files, one after the other, over a connection of its own, and waits for each answer. After an answer
503 it waits for the time of the header Retry-After, as the server asks, and sends the same file again. The latency is
that of answers with a prediction, from the request that was accepted; the time to the answer is from the first request
for the image, with all that were refused. `answers_per_second` counts predictions.

one by one    Every image is decoded and predicted alone, one at a time; all requests wait, without a limit.
unbounded     Images are predicted together, and all requests wait.
camp serve    Images are predicted together, and 503 is answered where the queue is full.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import torch
import uvicorn
from bank import write_images
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

from camp.app.prediction.model import Model
from camp.app.prediction.predict import Prediction, load_image, predict_loaded
from camp.app.serving.app import prediction_app
from camp.app.serving.limits import MAX_BATCH, MAX_WAITING
from camp.app.web.limits import server_config
from camp.discovery.class_metric import ClassMetric
from camp.discovery.open_set import OpenSet
from camp.discovery.open_world_discoverer import MIN_COMPONENTS
from camp.nn.backbones import make_backbone
from camp.nn.backbones.settings import BackboneSettings

CATEGORIES = 30
IMAGES = 64
ROUNDS = 2
KINDS = ("one by one", "unbounded", "camp serve")


def small_model() -> Model:
    """The default backbone with categories of random centroids."""
    backbone = make_backbone(BackboneSettings(), torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1)
    projection = torch.randn(backbone.dim, MIN_COMPONENTS, generator=draw)
    origin, offset = np.zeros(backbone.dim, np.float32), np.zeros(MIN_COMPONENTS, np.float32)
    metric = ClassMetric(origin, projection.numpy(), offset, unit=True)
    centroids = torch.randn(CATEGORIES, MIN_COMPONENTS, generator=draw)
    classifier = OpenSet(centroids, torch.full((CATEGORIES,), 1e3), temperature=100.0)
    return Model(backbone, metric, classifier, tuple(range(CATEGORIES)), (None,) * CATEGORIES)


def one_by_one(model: Model) -> FastAPI:
    """The former server: one image at a time, decoded and predicted under a lock."""
    app, lock = FastAPI(), threading.Lock()

    def answer(data: bytes) -> Prediction:
        with lock:
            [(row, _)] = predict_loaded(model, [("", load_image(model, data))])
            return row

    @app.post("/predict")
    async def predict(request: Request) -> Prediction:
        return await run_in_threadpool(answer, await request.body())

    return app


def run_server(kind: str, port: "multiprocessing.Queue[int]", end: Event, threads: int) -> None:
    """Serve until `end`, in a process of its own."""
    torch.set_num_threads(threads)
    model = small_model()
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        hosts = frozenset({f"127.0.0.1:{listener.getsockname()[1]}"})
        room = {"unbounded": 100_000, "camp serve": MAX_WAITING}
        app = (
            one_by_one(model)
            if kind not in room
            else prediction_app(lambda: model, "", hosts, None, room[kind])
        )
        server = uvicorn.Server(server_config(app))

        def watch() -> None:
            end.wait()
            server.should_exit = True

        threading.Thread(target=watch, daemon=True).start()
        port.put(listener.getsockname()[1])
        server.run(sockets=[listener])


@contextlib.contextmanager
def running(kind: str) -> Iterator[str]:
    """The address of a server in another process."""
    context = multiprocessing.get_context("spawn")
    port, end = context.Queue(), context.Event()
    process = context.Process(target=run_server, args=(kind, port, end, torch.get_num_threads()))
    process.start()
    try:
        yield f"http://127.0.0.1:{port.get(timeout=120)}"
    finally:
        end.set()
        process.join()


@dataclass
class Load:
    """What the clients of a server measured."""

    latencies: list[float] = field(default_factory=list)
    to_answer: list[float] = field(default_factory=list)
    """Times from the first request for an image, with those that were refused."""
    refused: int = 0
    batch: float = 1.0
    """Mean number of images that the server predicted together."""
    seconds: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.latencies)

    @property
    def slow(self) -> float:
        """95th percentile."""
        return statistics.quantiles(self.latencies, n=20)[-1]

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies) / self.seconds

    @property
    def share_refused(self) -> float:
        return self.refused / (len(self.latencies) + self.refused)

    def add(self, other: "Load") -> None:
        self.latencies += other.latencies
        self.to_answer += other.to_answer
        self.refused += other.refused
        self.batch = other.batch
        self.seconds += other.seconds


class Client:
    """A connection over which requests are sent one after the other; much lighter than an HTTP library."""

    def __init__(self, address: str) -> None:
        self.host = address.removeprefix("http://")
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the answer."""
        if self.streams is None:
            name, port = self.host.split(":")
            self.streams = await asyncio.open_connection(name, int(port))
        reader, writer = self.streams
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        return int(first.split()[1]), headers, await reader.readexactly(int(headers["content-length"]))

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def load(address: str, images: list[bytes], clients: int, each: int) -> Load:
    """Let `clients` ask for the predictions of `each` images."""
    found = Load()
    await asyncio.gather(*(Client(address).ask("POST", "/predict", image) for image in images[:MAX_BATCH]))
    begun = time.perf_counter()

    async def work(number: int) -> None:
        client, started, end = Client(address), begun, number + each * clients
        while number < end:
            asked = time.perf_counter()
            status, headers, answer = await client.ask("POST", "/predict", images[number % len(images)])
            if status == 503:
                found.refused += 1
                client.close()  # the server does not keep it open for long
                await asyncio.sleep(float(headers["retry-after"]))
                continue
            assert status == 200, answer
            now = time.perf_counter()
            found.latencies.append(now - asked)
            found.to_answer.append(now - started)
            started, number = now, number + clients
        client.close()

    await asyncio.gather(*(work(number) for number in range(clients)))
    found.seconds = time.perf_counter() - begun
    _, _, text = await Client(address).ask("GET", "/metrics")
    values = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if line.startswith("camp_batch"))
    if values:
        found.batch = float(values["camp_batch_images_sum"]) / float(values["camp_batch_images_count"])
    return found


def compare(clients: int, each: int, kinds: Sequence[str] = KINDS) -> dict[str, Load]:
    """Load each kind of server in alternating rounds."""
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), IMAGES)
        images = [path.read_bytes() for path in sorted(Path(folder).rglob("*.jpg"))]
    found = {kind: Load() for kind in kinds}
    with contextlib.ExitStack() as stack:
        addresses = {kind: stack.enter_context(running(kind)) for kind in kinds}
        for _ in range(ROUNDS):
            for kind, address in addresses.items():
                found[kind].add(asyncio.run(load(address, images, clients, each)))
    return found


def measure() -> dict[str, float]:
    """Compare the former and the present server with 200 clients."""
    found = compare(clients=200, each=1, kinds=("one by one", "camp serve"))
    before, now = found["one by one"], found["camp serve"]
    return {
        "serve_latency_ratio": round(before.median / now.median, 2),
        "serve_rate_ratio": round(now.rate / before.rate, 2),
        "serve_median_seconds": round(now.median, 2),
        "serve_95_percent_seconds": round(now.slow, 2),
        "serve_median_seconds_to_answer": round(statistics.median(now.to_answer), 2),
        "serve_answers_per_second": round(now.rate, 1),
        "serve_share_503": round(now.share_refused, 3),
        "serve_images_per_batch": round(now.batch, 1),
        "serve_median_seconds_one_by_one": round(before.median, 2),
        "serve_answers_per_second_one_by_one": round(before.rate, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--images", type=int, default=2, help="of each client and round")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    print(f"{options.clients} clients, at most {MAX_BATCH} images in a batch and {MAX_WAITING} in the queue")
    print(
        f"{'server':12} {'median s':>9} {'95 % s':>9} {'to answer':>10} {'answers/s':>10} {'share 503':>10}"
        f" {'images/batch':>13}"
    )
    for kind, one in compare(options.clients, options.images, options.kinds).items():
        print(
            f"{kind:12} {one.median:9.2f} {one.slow:9.2f} {statistics.median(one.to_answer):10.2f} {one.rate:10.1f} {one.share_refused:10.3f}"
            f" {one.batch:13.1f}"
        )


if __name__ == "__main__":
    main()
