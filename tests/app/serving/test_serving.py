"""Recognition over HTTP: the answers of `predict`, and a sentence for everything else."""

import asyncio
import dataclasses
import io
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_images import SMALL, batch
from small_models import KINDS, features_of, reader_for, small_model
from starlette.requests import Request
from starlette.testclient import TestClient
from starlette.types import Message

from camp.app.prediction.model import Model
from camp.app.prediction.predict import Prediction, predict
from camp.app.serving import app as serving
from camp.app.serving.app import Bodies, latest_model, prediction_app
from camp.app.serving.batcher import BusyError
from camp.app.workspace.decisions import Named
from camp.app.workspace.kept_unknown import UnknownKeeper, read_kept
from camp.app.workspace.log import end_file
from camp.app.workspace.workspace import Workspace
from camp.cli import main
from camp.core.errors import CampError
from camp.data.datasets.base import Reader

HOST = "127.0.0.1:8123"
JPEG = {"Content-Type": "image/jpeg"}


@pytest.fixture
def pictures(tmp_path: Path) -> tuple[Reader, list[str]]:
    return reader_for(KINDS["conv-tiny"], tmp_path, 20)


@pytest.fixture
def model(pictures: tuple[Reader, list[str]]) -> Model:
    return small_model(KINDS["conv-tiny"], *pictures)


def client_of(model: Model) -> TestClient:
    app = prediction_app(lambda: model, "Birds <of> January.", frozenset({HOST}))
    return TestClient(app, base_url=f"http://{HOST}")


@pytest.fixture
def client(model: Model) -> TestClient:
    return client_of(model)


def test_it_answers_as_predict_does(
    client: TestClient, model: Model, pictures: tuple[Reader, list[str]]
) -> None:
    reader, keys = pictures
    for row in predict(model, reader, keys):
        assert isinstance(row, Prediction)
        for headers in (JPEG, {"Content-Type": "application/octet-stream"}, {}):
            answer = client.post(
                "/predict", params={"file": row.file}, content=reader.read(row.file), headers=headers
            )
            assert answer.status_code == 200
            found = answer.json()
            expected = dataclasses.asdict(row)
            for name in ("confidence", "runner_up_confidence"):
                assert found.pop(name) == pytest.approx(expected.pop(name), abs=1e-5)
            assert found == expected


def test_every_picture_format(client: TestClient) -> None:
    for name in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
        data = io.BytesIO()
        Image.new("RGB", (20, 30), "red").save(data, format=name)
        answer = client.post("/predict", content=data.getvalue(), headers={"Content-Type": "image/x-any"})
        assert answer.status_code == 200
        assert answer.json()["file"] == ""


@pytest.mark.parametrize(
    ("data", "reason"), [(b"", "the file is empty"), (b"GIF89a", "."), (b"hello", "not an image")]
)
def test_a_broken_picture_is_400_with_its_reason(client: TestClient, data: bytes, reason: str) -> None:
    answer = client.post("/predict", content=data, headers=JPEG)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("The body cannot be read as a picture: ")
    assert reason in answer.json()["detail"]


@pytest.mark.parametrize(
    "kind",
    ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "imagejpeg"],
)
def test_another_content_type_is_415(client: TestClient, kind: str) -> None:
    answer = client.post("/predict", content=b"x", headers={"Content-Type": kind})
    assert answer.status_code == 415
    assert kind.split(";")[0] in answer.json()["detail"]


def test_too_large_a_body_is_413(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_BYTES", 1 << 20)
    answer = client_of(model).post("/predict", content=b"\0" * ((1 << 20) + 1), headers=JPEG)
    assert answer.status_code == 413
    assert answer.json()["detail"] == "The body is larger than 1 MB; send a smaller one."


def test_vectors_are_answered_too(tmp_path: Path) -> None:
    reader, keys = reader_for(KINDS["embeddings"], tmp_path, 12)
    model = small_model(KINDS["embeddings"], reader, keys)
    client = client_of(model)
    for row in predict(model, reader, keys):
        assert isinstance(row, Prediction)
        found = client.post("/predict", content=reader.read(row.file)).json()
        assert (found["category"], found["runner_up"]) == (row.category, row.runner_up)


def test_unknown_pictures_are_kept_if_asked_for(
    model: Model, pictures: tuple[Reader, list[str]], tmp_path: Path
) -> None:
    reader, keys = pictures
    thumbnails: list[bytes] = []
    keeper = UnknownKeeper(tmp_path / "unknown", lambda image, digest: thumbnails.append(digest), block=1)
    app = prediction_app(lambda: model, "", frozenset({HOST}), keeper)
    client = TestClient(app, base_url=f"http://{HOST}")
    unknown = []
    for key in [*keys, *keys]:
        answer = client.post("/predict", params={"file": key}, content=reader.read(key), headers=JPEG).json()
        if answer["category"] is None:
            unknown.append(key)
    once = unknown[: len(unknown) // 2]
    assert 0 < len(once) < len(keys)
    kept = read_kept(tmp_path / "unknown", model.tip_fingerprint)
    assert list(kept.files) == once
    assert list(kept.digests) == [digest.hex() for digest in thumbnails]
    expected = features_of(model.backbone, reader, once)
    np.testing.assert_allclose(kept.features.astype(np.float32), expected, rtol=2e-3, atol=1e-3)


def test_the_categories(client: TestClient) -> None:
    assert client.get("/categories").json() == [
        {"id": 7, "name": "heron", "named": True},
        {"id": 2, "name": "category 2", "named": False},
        {"id": 31, "name": "marsh, wren", "named": True},
        {"id": 4, "name": "Käfer", "named": True},
    ]


def test_what_was_learned_since_is_known(model: Model) -> None:
    models = [model, dataclasses.replace(model, names=("egret", *model.names[1:]))]
    client = TestClient(
        prediction_app(lambda: models.pop(0), "", frozenset({HOST})), base_url=f"http://{HOST}"
    )
    assert client.get("/categories").json()[0]["name"] == "heron"
    assert client.get("/categories").json()[0]["name"] == "egret"


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of two named categories and what was discovered."""
    folder = tmp_path_factory.mktemp("birds")
    january = batch(folder / "january", {"heron": 8, "robin": 8}, {"wren": 8})
    assert main(["learn", str(folder / "W"), str(january), *SMALL, "--epochs", "0", "--quiet"]) == 0
    return folder / "W"


@pytest.mark.parametrize("replace", ["rename", "rewrite"])
def test_a_log_that_was_replaced_by_one_of_equal_length_is_noticed(
    birds: Path, tmp_path: Path, replace: str
) -> None:
    workspace = Workspace.open(Path(shutil.copytree(birds, tmp_path / "W")))
    workspace.decide(Named(category=1, name="stork"))
    model_of = latest_model(workspace)
    first = model_of()
    assert model_of() is first
    other = Path(shutil.copytree(birds, tmp_path / "other")) / "events.jsonl"
    Workspace.open(other.parent).decide(Named(category=1, name="egret"))
    log = tmp_path / "W" / "events.jsonl"
    about = log.stat()
    assert other.stat().st_size == about.st_size
    end_file(other).replace(end_file(log))
    if replace == "rename":
        other.replace(log)
    else:
        log.write_bytes(other.read_bytes())
    os.utime(log, ns=(about.st_atime_ns, about.st_mtime_ns))  # as tools do that restore a copy
    assert model_of().names[model_of().ids.index(1)] == "egret"


def test_a_workspace_without_a_model_is_503_with_a_sentence() -> None:
    def gone() -> Model:
        raise CampError("BIRDS is gone.")

    app = prediction_app(gone, "", frozenset({HOST}))
    answer = TestClient(app, base_url=f"http://{HOST}").get("/categories")
    assert (answer.status_code, answer.json()) == (503, {"detail": "BIRDS is gone."})


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_page_documents_the_calls_and_loads_nothing(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    for word in (
        "POST /predict",
        "GET /categories",
        "runner_up_confidence",
        "413",
        "Birds &lt;of&gt; January.",
    ):
        assert word in answer.text
    assert f"http://{HOST}/predict" in answer.text
    assert re.findall(r"""(?:src|href|action)=["'](?!#)([^"']*)""", answer.text) == ["/openapi.json"]
    assert "<script" not in answer.text
    assert "@import" not in answer.text


def test_the_schema_describes_the_calls(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert sorted(schema["paths"]) == ["/categories", "/health", "/metrics", "/predict"]
    call = schema["paths"]["/predict"]["post"]
    assert sorted(call["requestBody"]["content"]) == ["application/octet-stream", "image/*"]
    fields = schema["components"]["schemas"]["Prediction"]["properties"]
    assert list(fields) == [field.name for field in dataclasses.fields(Prediction)]


def test_fastapis_own_pages_are_off(client: TestClient) -> None:
    assert client.get("/redoc").status_code == 404


def test_health_says_whether_there_is_a_model(client: TestClient) -> None:
    assert client.get("/health").json() == {"categories": 4, "waiting": 0}

    def gone() -> Model:
        raise CampError("BIRDS is gone.")

    app = prediction_app(gone, "", frozenset({HOST}))
    answer = TestClient(app, base_url=f"http://{HOST}").get("/health")
    assert (answer.status_code, answer.json()) == (503, {"detail": "BIRDS is gone."})


def test_the_metrics_count_what_was_done(client: TestClient, pictures: tuple[Reader, list[str]]) -> None:
    reader, keys = pictures
    unknown = sum(
        client.post("/predict", content=reader.read(key), headers=JPEG).json()["category"] is None
        for key in keys
    )
    client.post("/predict", content=b"broken", headers=JPEG)
    client.get("/nowhere/<script>")
    client.get("/categories", headers={"Host": "evil.example"})
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    for line in (
        'camp_requests_total{path="/predict",status="200"} 20',
        'camp_requests_total{path="/predict",status="400"} 1',
        'camp_requests_total{path="/categories",status="403"} 1',
        'camp_requests_total{path="other",status="404"} 1',
        "camp_images_total 20",
        f"camp_unknown_total {unknown}",
        f"camp_unknown_share {unknown / 20:g}",
        "camp_queue_length 0",
        'camp_batch_images_bucket{le="1"} 20',
        "camp_batch_images_sum 20",
        "camp_predict_seconds_count 20",
        "# TYPE camp_predict_seconds histogram",
    ):
        assert line in lines
    assert unknown > 0


def test_pictures_of_many_megabytes_together_are_refused(client: TestClient) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"a" * 600, "more_body": False}

    async def read() -> None:
        bodies = Bodies(max_bytes=1000)
        request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        for _ in range(2):  # room is given back
            async with bodies.body(request) as data:
                assert len(data) == 600
                request = Request({"type": "http", "method": "POST", "headers": []}, receive)
                with pytest.raises(BusyError, match="many megabytes"):
                    async with bodies.body(request):
                        pass
            request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        assert bodies.bytes == 0

    asyncio.run(read())


def test_foreign_hosts_and_origins_are_refused(client: TestClient) -> None:
    for path in ("/predict", "/categories", "/health", "/metrics", "/", "/docs", "/openapi.json"):
        assert client.get(path, headers={"Host": "evil.example"}).status_code == 403
        assert client.post(path, headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/categories", headers={"Host": "evil.example"}).status_code == 403
    foreign = {**JPEG, "Origin": "http://evil.example"}
    assert client.post("/predict", content=b"x", headers=foreign).status_code == 403
    assert client.get("/categories", headers={"Origin": f"http://{HOST}"}).status_code == 200
