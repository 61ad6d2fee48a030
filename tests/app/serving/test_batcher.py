"""Images of concurrent requests: predicted together with the same results, and refused when there are too many."""

import asyncio
import dataclasses
import io
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from PIL import Image
from small_models import KINDS, reader_for, small_model
from small_server import serving

from camp.app.prediction.model import Model
from camp.app.prediction.predict import Prediction, load_image, predict_loaded
from camp.app.serving import batcher as batching
from camp.app.serving.app import prediction_app
from camp.app.serving.batcher import Batcher, BusyError
from camp.app.workspace.kept_unknown import UnknownKeeper, read_kept
from camp.core.errors import CampError
from camp.data.images import UnreadableImageError

Made = tuple[Model, dict[str, bytes], dict[str, Prediction]]


@pytest.fixture(scope="module", params=["lite0", "vit", "conv-tiny", "embeddings"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A model, encoded images, and the prediction of each alone."""
    settings = KINDS[request.param]
    reader, keys = reader_for(settings, tmp_path_factory.mktemp("images"), 20)
    model = small_model(settings, reader, keys)
    data = {key: reader.read(key) for key in keys}
    alone = {key: predict_loaded(model, [(key, load_image(model, data[key]))])[0][0] for key in keys}
    return model, data, alone


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, dict[str, bytes]]:
    reader, keys = reader_for(KINDS["conv-tiny"], tmp_path_factory.mktemp("images"), 20)
    return small_model(KINDS["conv-tiny"], reader, keys), {key: reader.read(key) for key in keys}


class Gate:
    """Returns a model, and stops the first batch until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.reached, self.sizes = threading.Event(), threading.Event(), list[int]()

        def gated(model, images):  # type: ignore[no-untyped-def]
            self.sizes.append(len(images))
            self.reached.set()
            assert self.open.wait(60)
            return predict_loaded(model, images)

        monkeypatch.setattr(batching, "predict_loaded", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.001)


async def behind_a_batch(
    batcher: Batcher, gate: Gate, images: Sequence[tuple[bytes, str]], broken: int = 0
) -> "list[asyncio.Task[Prediction]]":
    """Ask for the first image, and when it is being predicted for the others; return when these wait decoded."""
    tasks = [asyncio.create_task(batcher.predict(*images[0]))]
    await until(gate.reached.is_set)
    tasks += [asyncio.create_task(batcher.predict(*image)) for image in images[1:]]
    await until(lambda: len(batcher._queue) == len(images) - 1 - broken)
    return tasks


def test_images_predicted_together_have_the_results_of_single_ones(made: Made, gate: Gate) -> None:
    model, data, alone = made

    async def all_at_once() -> list[Prediction]:
        batcher = Batcher(lambda: model, max_batch=16)
        waiting = await behind_a_batch(batcher, gate, [(data[key], key) for key in data])
        gate.open.set()
        return await asyncio.gather(*waiting)

    found = asyncio.run(all_at_once())
    assert gate.sizes == [1, 16, 3]
    for row in found:
        expected, values = dataclasses.asdict(alone[row.file]), dataclasses.asdict(row)
        for name in ("confidence", "runner_up_confidence"):
            assert values.pop(name) == pytest.approx(expected.pop(name), abs=1e-5)
        assert values == expected


def test_a_single_request_waits_for_nobody(conv: tuple[Model, dict[str, bytes]]) -> None:
    model, data = conv

    async def one_after_the_other() -> Batcher:
        batcher = Batcher(lambda: model)
        for key in list(data)[:3]:
            await batcher.predict(data[key], key)
        return batcher

    batcher = asyncio.run(one_after_the_other())
    assert (batcher.metrics.batches.total, batcher.metrics.batches.sum, batcher.waiting) == (3, 3, 0)


def test_more_than_the_queue_holds_is_refused_with_a_time(
    conv: tuple[Model, dict[str, bytes]], gate: Gate
) -> None:
    model, data = conv
    key = next(iter(data))

    async def too_many() -> None:
        batcher = Batcher(lambda: model, max_waiting=5)
        waiting = await behind_a_batch(batcher, gate, [(data[key], key)] * 5)
        batcher._seconds_per_image = 0.5
        with pytest.raises(BusyError, match="5 pictures are waiting already; try again in 2 seconds") as busy:
            await batcher.predict(data[key], key)
        assert busy.value.seconds == 2
        gate.open.set()
        await asyncio.gather(*waiting)
        assert (await batcher.predict(data[key], key)).file == key

    asyncio.run(too_many())


def test_a_broken_image_concerns_only_its_own_request(
    conv: tuple[Model, dict[str, bytes]], gate: Gate
) -> None:
    model, data = conv

    async def mixed() -> list[Prediction | BaseException]:
        batcher = Batcher(lambda: model)
        images = [(image, "") for image in [*data.values(), b"broken"]]
        waiting = await behind_a_batch(batcher, gate, images, broken=1)
        gate.open.set()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert batcher.waiting == 0
        return answers

    *good, bad = asyncio.run(mixed())
    assert isinstance(bad, UnreadableImageError)
    assert all(isinstance(row, Prediction) for row in good)


def test_a_fault_of_a_batch_is_told_to_all_of_it_and_the_next_one_works(
    conv: tuple[Model, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = conv
    key = next(iter(data))

    async def ask() -> None:
        batcher = Batcher(lambda: model)
        with monkeypatch.context() as patch:

            def full(model, images):  # type: ignore[no-untyped-def]
                raise MemoryError("no memory")

            patch.setattr(batching, "predict_loaded", full)
            with pytest.raises(MemoryError):
                await batcher.predict(data[key], key)
        assert (await batcher.predict(data[key], key)).file == key
        assert batcher.waiting == 0

    asyncio.run(ask())


def test_images_of_two_models_are_not_predicted_together(
    conv: tuple[Model, dict[str, bytes]], gate: Gate
) -> None:
    model, data = conv
    renamed = dataclasses.replace(model, names=("egret", *model.names[1:]))
    models = [model, model, renamed, renamed]
    key = next(iter(data))

    async def both() -> None:
        batcher = Batcher(lambda: models.pop(0))
        waiting = await behind_a_batch(batcher, gate, [(data[key], key)] * 2)
        for number in (2, 3):
            waiting.append(asyncio.create_task(batcher.predict(data[key], key)))
            await until(lambda number=number: len(batcher._queue) == number)
        gate.open.set()
        await asyncio.gather(*waiting)

    asyncio.run(both())
    assert gate.sizes == [1, 1, 2]


def test_unknown_images_are_kept_before_the_answer(
    conv: tuple[Model, dict[str, bytes]], tmp_path: Path
) -> None:
    model, data = conv

    async def all_at_once() -> list[Prediction]:
        keeper = UnknownKeeper(tmp_path / "unknown", lambda image, digest: None, block=1)
        batcher = Batcher(lambda: model, keeper)
        return await asyncio.gather(*(batcher.predict(data[key], key) for key in data))

    unknown = {row.file for row in asyncio.run(all_at_once()) if row.category is None}
    assert unknown
    assert set(read_kept(tmp_path / "unknown", model.tip_fingerprint).files) == unknown


def test_large_images_are_decoded_one_at_a_time(
    conv: tuple[Model, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = conv
    monkeypatch.setattr(batching, "LARGE", 1000)
    together, most, lock = 0, 0, threading.Lock()

    def counting(model: Model, data: bytes):  # type: ignore[no-untyped-def]
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        image = load_image(model, data)
        with lock:
            together -= 1
        return image

    monkeypatch.setattr(batching, "load_image", counting)
    monkeypatch.setattr(batching.torch, "get_num_threads", lambda: 4)
    encoded = io.BytesIO()
    Image.new("RGB", (400, 400)).save(encoded, format="PNG")

    async def ask() -> None:
        batcher = Batcher(lambda: model)
        await asyncio.gather(*(batcher.predict(encoded.getvalue(), "") for _ in range(12)))

    asyncio.run(ask())
    assert most == 1


def test_a_queue_for_nobody_is_refused(conv: tuple[Model, dict[str, bytes]]) -> None:
    with pytest.raises(CampError, match="--queue is 0"):
        Batcher(lambda: conv[0], max_waiting=0)


def test_a_crowd_at_a_real_server_gets_answers_or_503_with_retry_after(
    conv: tuple[Model, dict[str, bytes]], gate: Gate
) -> None:
    model, data = conv
    key = next(iter(data))

    def app(hosts: frozenset[str]) -> FastAPI:
        return prediction_app(lambda: model, "", hosts, max_waiting=8)

    with serving(app) as port:

        async def crowd() -> list[httpx.Response]:
            limits = httpx.Limits(max_connections=20)
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", trust_env=False, limits=limits, timeout=60
            ) as client:
                waiting = [asyncio.create_task(client.post("/predict", content=data[key])) for _ in range(20)]
                await until(lambda: sum(task.done() for task in waiting) == 12)  # they are refused
                assert "camp_queue_length 8" in (await client.get("/metrics")).text
                gate.open.set()
                return await asyncio.gather(*waiting)

        answers = asyncio.run(crowd())
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(refused) == 12
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert refused[0].json()["detail"] == "8 pictures are waiting already; try again in 1 second."
    assert [answer.status_code for answer in answers].count(200) == 8


def test_a_client_that_leaves_in_the_middle_of_a_picture_leaves_no_trace(
    conv: tuple[Model, dict[str, bytes]],
) -> None:
    model = conv[0]
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    with serving(lambda hosts: prediction_app(lambda: model, "", hosts)) as port:
        logging.getLogger("uvicorn.error").addHandler(handler)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 100\r\n\r\n"
            connection.sendall(head.encode() + b"abc")
        for _ in range(2):
            answer = httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)
            assert answer.json()["waiting"] == 0
    logging.getLogger("uvicorn.error").removeHandler(handler)
    assert said == []
