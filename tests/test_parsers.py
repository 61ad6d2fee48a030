"""Whatever a file holds, reading it gives a valid object or an error in a sentence, and nothing else."""

import dataclasses
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from camp.app.inputs.folders import read_folder
from camp.app.workspace.decisions import Named
from camp.app.workspace.log import read_log
from camp.app.workspace.storage import FolderStorage, WorkspaceSettings
from camp.bench.run_folder import RunConfig, RunFolder
from camp.bench.settings import from_flat
from camp.bench.studies.study import Study
from camp.bench.studies.toml_study import read_toml_study
from camp.core.errors import CampError
from camp.core.files import read_json, read_json_lines
from camp.data.datasets import embeddings
from camp.data.datasets.base import Dataset
from camp.data.split import Split
from camp.nn.backbones.vit import VitShape, random_state
from camp.nn.backbones.weights import infer_vit_shape, load_weights

few = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4))  # fmt: skip
WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    10**400,
    float("nan"),
    "",
    "x",
    "\ud800",
    [],
    [None],
    {},
    {"x": 1},
)
DEEP = "[" * 100_000


def changed(value: Any) -> Iterator[Any]:
    """Yield `value` with each of its parts, however deep, replaced by each wrong one, or missing."""
    yield from WRONG
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: other for name, other in value.items() if name != key}
            for other in changed(part):
                yield {**value, key: other}
        yield {**value, "unknown": 1}
    if isinstance(value, list):
        for position in range(min(len(value), 2)):
            for other in changed(value[position]):
                yield [*value[:position], other, *value[position + 1 :]]


def refused_or(kind: type, read: Callable[[], object]) -> bool:
    """Whether `read` was refused in one line; else it gave an object of the kind."""
    sentence = None
    try:
        assert isinstance(read(), kind)
    except CampError as error:
        sentence = str(error).strip()
    assert "\n" not in (sentence or "")
    return sentence is not None


# Splits.

SPLIT = {
    "dataset": "digits",
    "seed": 0,
    "scenario": {"tasks": 1, "novel_fraction": 0.5},
    "classes": ["0", "1"],
    "tasks": [
        {
            "known": ["0"],
            "novel": ["1"],
            "labelled": {"0": ["a"]},
            "unlabelled": {"1": ["b"]},
            "test": {"0": ["c"], "1": ["d"]},
        }
    ],
}


def test_every_changed_split() -> None:
    assert not refused_or(Split, lambda: Split.from_json(SPLIT))
    refusals = [refused_or(Split, lambda value=value: Split.from_json(value)) for value in changed(SPLIT)]
    assert sum(refusals) > 200
    assert refused_or(Split, lambda: Split.from_json({**SPLIT, "tasks": []}))
    assert refused_or(Split, lambda: Split.from_json({**SPLIT, "classes": ["0", "1", "1"]}))


@few
@given(VALUES)
def test_any_value_as_a_split(value: object) -> None:
    assert refused_or(Split, lambda: Split.from_json(value))


# JSON.


@few
@given(st.binary(max_size=40))
def test_any_bytes_as_json(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    refused_or(object, lambda: read_json(path))
    assert isinstance(read_json_lines(path), list)


def test_json_that_is_nested_too_deeply(tmp_path: Path) -> None:
    for name in ("config.json", "split.json", "metrics.jsonl", "study.toml"):
        (tmp_path / name).write_text(f"x = {DEEP}" if name == "study.toml" else DEEP)
    assert refused_or(RunConfig, RunFolder(tmp_path).read_config)
    assert refused_or(Split, RunFolder(tmp_path).read_split)
    assert RunFolder(tmp_path).epochs() == []
    assert refused_or(Study, lambda: read_toml_study(tmp_path / "study.toml"))


# Run folders.


def test_every_changed_config(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    config = json.loads(json.dumps(RunConfig(from_flat("camp", {"seed": 3})).to_json()))
    config["settings"]["data"] = {"dataset": "digits", "tasks": 2}  # the others are of the same types
    config["provenance"] = {"version": "1", "threads": 2}
    texts = [json.dumps(value) for value in (config, *changed(config))]
    refusals = []
    for text in texts:
        folder.config.write_text(text)
        refusals.append(refused_or(RunConfig, folder.read_config))
    assert not refusals[0]
    assert sum(refusals) > 300


@few
@given(st.binary(max_size=40) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_content_of_a_run_folder(tmp_path: Path, content: bytes) -> None:
    folder = RunFolder(tmp_path)
    folder.checkpoint.mkdir(exist_ok=True)
    for path in (
        folder.config,
        folder.split,
        folder.metrics,
        folder.results,
        folder.checkpoint / "state.json",
    ):
        path.write_bytes(content)
    assert refused_or(RunConfig, folder.read_config)
    assert refused_or(Split, folder.read_split)
    assert not folder.is_finished()
    assert folder.tasks_done() == 0
    assert folder.fraction_done() == 0
    folder.forget_metrics(0, 0)
    assert folder.metrics.read_text() == ""


# Studies.

STUDY: dict[str, Any] = {
    "title": "A study",
    "draw": "lines",
    "seeds": [0, 1],
    "base": {"dataset": "digits", "epochs": 2},
    "axes": {"method": ["camp", "gcd"], "learning_rate": [0.1, 1]},
    "runs": [{"method": "gcd"}],
    "look": {"x": "alpha"},
}


def as_toml(value: Any) -> str:
    """A value in TOML's notation; JSON's is the same but for tables and None."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return "nan" if value != value else json.dumps(value)


def test_every_changed_study(tmp_path: Path) -> None:
    path, refusals = tmp_path / "mine.toml", []
    for value in (STUDY, *(value for value in changed(STUDY) if isinstance(value, dict))):
        path.write_text("\n".join(f"{json.dumps(key)} = {as_toml(part)}" for key, part in value.items()))
        refusals.append(refused_or(tuple, lambda: read_toml_study(path).points()))
    assert not refusals[0]
    assert sum(refusals) > 100


@few
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode(errors="surrogatepass")))
def test_any_bytes_as_a_study(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    refused_or(tuple, lambda: read_toml_study(path).points())


def test_a_grid_of_too_many_runs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    axes = "\n".join(f"{name} = {list(range(50))}" for name in "abcdefgh")
    path.write_text(f"[axes]\n{axes}")
    with pytest.raises(CampError, match="a study has at most 100,000"):
        read_toml_study(path)


# Labels.


@few
@given(st.binary(max_size=60) | st.text("filea,;\t\"'\r\n\\ 1.png\u200b\u2028", max_size=60).map(str.encode))
def test_any_bytes_as_a_table_of_labels(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "batch").mkdir(exist_ok=True)
    (tmp_path / "batch" / "1.png").touch()
    for text in (content, b"file,label\n" + content, b"file;label\n1.png;" + content):
        (tmp_path / "t.csv").write_bytes(text)
        refused_or(object, lambda: read_folder(tmp_path / "batch", tmp_path / "t.csv"))


# Vectors.


@few
@given(st.binary(max_size=80), st.integers(0, 600))
def test_any_bytes_as_vectors(tmp_path: Path, content: bytes, place: int) -> None:
    whole = io.BytesIO()
    np.savez(whole, vectors=np.eye(4), labels=np.array([b"a", b"b"] * 2))
    damaged = whole.getvalue()[:place] + content + whole.getvalue()[place + len(content) :]
    path = tmp_path / "x.npz"
    for data in (content, damaged):
        path.write_bytes(data)
        refused_or(Dataset, lambda: embeddings.load(path))


@pytest.mark.parametrize(
    ("vectors", "labels", "said"),
    [
        (np.eye(4), np.array([b"\xff\xfe", b"a", b"b", b"c"]), "`labels` of .* is not text in UTF-8"),
        (np.eye(4), np.array(["\ud800", "a", "b", "c"]), "`labels` of .* is not text in UTF-8"),
        (np.eye(4) * 1e300, np.arange(4), "not finite"),
        (np.array(3.0), np.array(3), "not numbers"),
        (np.eye(4), np.arange(3), "expected 4 whole numbers"),
        (np.zeros((0, 3)), np.arange(0), "not numbers"),
        (np.eye(4), np.arange(4) * 1.5, "expected 4 whole numbers"),
        (np.eye(4, dtype=complex), np.arange(4), "not numbers"),
        (np.zeros(4, dtype=[("x", "f4")]), np.arange(4), "not numbers"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_vectors_that_cannot_be_used(tmp_path: Path, vectors: Any, labels: Any, said: str) -> None:
    np.savez(tmp_path / "x.npz", vectors=vectors, labels=labels)
    with pytest.raises(CampError, match=said):
        embeddings.load(tmp_path / "x.npz")


# Workspaces.


def test_every_changed_workspace(tmp_path: Path) -> None:
    path, refusals = tmp_path / "workspace.json", []
    whole = {"format": 1, "version": "0", **dataclasses.asdict(WorkspaceSettings())}
    for value in (whole, *changed(whole)):
        path.write_text(json.dumps(value))
        refusals.append(refused_or(WorkspaceSettings, lambda: FolderStorage.open(tmp_path).settings))
    assert not refusals[0]
    assert sum(refusals) > 100
    for name, value in (("weights", 5), ("resolution", 1.5), ("tip", "x"), ("device", None)):
        path.write_text(json.dumps({**whole, "backbone": {**whole["backbone"], name: value}}))
        assert refused_or(FolderStorage, lambda: FolderStorage.open(tmp_path))


@few
@given(st.binary(max_size=40) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_content_of_a_workspace(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "workspace.json").write_bytes(content)
    assert refused_or(FolderStorage, lambda: FolderStorage.open(tmp_path))


@few
@given(st.binary(max_size=40) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_line_of_the_log(tmp_path: Path, content: bytes) -> None:
    log = tmp_path / "events.jsonl"
    log.write_bytes(content + b"\n")
    assert refused_or(list, lambda: read_log(log))


def test_every_changed_event(tmp_path: Path) -> None:
    log, refusals = tmp_path / "events.jsonl", []
    events = [
        Named(category=3, name="wren").dated(1).line(),
        '{"event": 1, "time": "", "kind": "moved", "rows": [1, 2], "into": 3, "made": true, "name": null}',
        '{"event": 1, "time": "", "kind": "propagated", "moves": [{"rows": [1], "into": 2}], "kept": []}',
        '{"event": 1, "time": "", "kind": "learned", "step": 1, "folder": "x", "trunk": "y"}',
        '{"event": 1, "time": "", "kind": "undone", "of": 1}',
        '{"event": 1, "time": "", "kind": "discarded", "category": 1}',
        f'{{"event": 1, "time": "", "kind": "accepted", "digests": ["{"0" * 32}"], "into": 3}}',
    ]
    for line in events:
        for value in changed(json.loads(line)):
            log.write_text(json.dumps(value) + "\n")
            refusals.append(refused_or(list, lambda: read_log(log)))
    assert sum(refusals) > 300


# Weights.

SHAPE = VitShape(64, 4, blocks=1, grid=2)
NAMES = sorted(random_state(SHAPE, torch.Generator()))
TENSORS = st.sampled_from([torch.zeros(0), torch.tensor(1), torch.zeros(1, 1, 64), torch.zeros(64, 3, 4, 4)])
CHECKPOINTS = st.dictionaries(
    st.sampled_from([*NAMES, "blocks.7.norm1.weight", "blocks.0.attn.query.bias", "_conv_stem.weight"]) | st.integers(),
    TENSORS | PLAIN,
    max_size=8,
)  # fmt: skip


@few
@given(CHECKPOINTS)
def test_any_tensors_as_weights(tmp_path: Path, content: dict[object, object]) -> None:
    path = tmp_path / "w.pth"
    torch.save({"model": {**random_state(SHAPE, torch.Generator()), **content}}, path)
    refused_or(VitShape, lambda: infer_vit_shape(load_weights(str(path)), "w.pth"))


@few
@given(st.binary(max_size=60))
def test_any_bytes_as_weights(tmp_path: Path, content: bytes) -> None:
    for name in ("w.pth", "w.safetensors"):
        (tmp_path / name).write_bytes(content)
        assert refused_or(dict, lambda name=name: load_weights(str(tmp_path / name)))
