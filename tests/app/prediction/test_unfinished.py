"""Predictions to a file: what is written, and that they are continued after any interruption with the same bytes."""

import contextlib
import csv
import dataclasses
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from small_models import KINDS, small_model, write_pictures

from camp import CAMP
from camp.app.prediction import predict as prediction
from camp.app.prediction import unfinished
from camp.app.prediction.inputs import PredictionInput, file_mark
from camp.app.prediction.model import Model
from camp.app.prediction.predict import Format, Prediction, PredictionCounts, Row, Unreadable
from camp.app.prediction.unfinished import Question, UnfinishedOutput, predict_to_file, unfinished_file
from camp.app.workspace.kept_unknown import UnknownKeeper, read_kept
from camp.cli import main
from camp.core.abandoned import remove_abandoned
from camp.core.errors import CampError
from camp.core.output_file import check_output
from camp.core.progress import Progress
from camp.data.datasets.base import FileReader
from camp.data.images import image_digest
from camp.data.vector_files import RowNames, VectorReader
from crashes import Recorder, restore, states

QUIET = Progress(quiet=True)
BLOCK = 4
COUNT = 4 * BLOCK + 3
COLUMNS = [column.name for column in dataclasses.fields(Prediction)]
ROWS = [
    Prediction("a, b.jpg", 7, "heron", 0.123456789, 31, "marsh, wren", 0.1),
    Unreadable("broken.jpg", "the file is empty"),
    Prediction("ü.jpg", None, "unknown", 0.5, 4, "Käfer", 0.5),
    Prediction(os.fsdecode(b"\xff.jpg"), 4, "Käfer", 1.0, None, None, None),
]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(folder: Path, but: str = "") -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names_in(folder) if name != but}


# What is written.


def given(keys: Sequence[str]) -> PredictionInput:
    return PredictionInput(FileReader(Path()), keys, "given", lambda key: "", lambda output: iter(()))


def write(rows: Sequence[Row], out: Path, format: Format = "csv") -> PredictionCounts:
    """Write rows that were predicted elsewhere."""
    images = given([row.file for row in rows])
    with contextlib.closing(UnfinishedOutput(out, Question(format, 0.05, False, "", "", ""))) as output:
        output.begin(images, QUIET)
        assert list(output.remaining(images)) == images.keys
        output.write(rows)
        output.finish()
    return output.done.counts


def test_a_csv_file(tmp_path: Path) -> None:
    counts = write(ROWS, tmp_path / "out" / "birds.csv")
    assert counts == PredictionCounts(3, 1, 1, ROWS[1])  # type: ignore[arg-type]
    with (tmp_path / "out/birds.csv").open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        assert list(csv.reader(file)) == [
            COLUMNS,
            ["a, b.jpg", "7", "heron", "0.123457", "31", "marsh, wren", "0.1"],
            ["ü.jpg", "", "unknown", "0.5", "4", "Käfer", "0.5"],
            [os.fsdecode(b"\xff.jpg"), "4", "Käfer", "1.0", "", "", ""],
        ]
    listed = (tmp_path / "out/birds-unreadable.csv").read_text()
    assert listed == "file,reason\nbroken.jpg,the file is empty\n"
    assert names_in(tmp_path / "out") == ["birds-unreadable.csv", "birds.csv"]


def test_names_in_csv_files_are_never_formulas(tmp_path: Path) -> None:
    rows = [
        Prediction("=HYPERLINK(1).jpg", 7, "-heron", 0.5, 31, "@robin", 0.1),
        Unreadable("+1+1.jpg", "=reason"),
    ]
    write(rows, tmp_path / "birds.csv")
    written = (tmp_path / "birds.csv").read_text().splitlines()
    assert written[1] == "'=HYPERLINK(1).jpg,7,'-heron,0.5,31,'@robin,0.1"
    assert (tmp_path / "birds-unreadable.csv").read_text().splitlines()[1] == "'+1+1.jpg,'=reason"
    write(rows, tmp_path / "birds.jsonl", "jsonl")
    assert json.loads((tmp_path / "birds.jsonl").read_text())["file"] == "=HYPERLINK(1).jpg"


def test_json_lines(tmp_path: Path) -> None:
    write(ROWS, tmp_path / "birds.jsonl", "jsonl")
    lines = [json.loads(line) for line in (tmp_path / "birds.jsonl").read_text(encoding="utf-8").splitlines()]
    expected = [dataclasses.asdict(row) for row in ROWS if isinstance(row, Prediction)]
    expected[0]["confidence"] = 0.123457
    assert lines == expected
    assert (tmp_path / "birds-unreadable.csv").exists()


def test_the_list_of_an_earlier_run_does_not_stay(tmp_path: Path) -> None:
    write(ROWS, tmp_path / "birds.csv")
    write(ROWS[:1], tmp_path / "birds.csv")
    assert names_in(tmp_path) == ["birds.csv"]


def test_another_file_of_the_name_of_the_list_stays(tmp_path: Path) -> None:
    (tmp_path / "birds-unreadable.csv").write_text("file,label\nheron.jpg,heron\n")
    write(ROWS[:1], tmp_path / "birds.csv")
    assert names_in(tmp_path) == ["birds-unreadable.csv", "birds.csv"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.csv"
    link.symlink_to("there/birds.csv")
    write(ROWS, link)
    assert link.is_symlink()
    assert names_in(tmp_path) == ["link-unreadable.csv", "link.csv", "there"]
    assert names_in(tmp_path / "there") == ["birds.csv"]


# Interruptions.


class Stopping(VectorReader):
    """Counts what is read, and calls `stop` in place of reading the vector `last`."""

    def __init__(self, vectors: np.ndarray, last: int | None, stop: Callable[[], None]) -> None:
        super().__init__(vectors)
        self.last, self.stop, self.seen = last, stop, set[str]()

    def read(self, key: str) -> bytes:
        if self.last is not None and int(key) == self.last:
            self.stop()
        self.seen.add(key)
        return super().read(key)


def interrupt() -> None:
    raise KeyboardInterrupt(signal.SIGTERM)


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Vectors of which some cannot be read; blocks are small, and there is a checkpoint after each."""
    monkeypatch.setattr(prediction, "_VECTOR_BLOCK", BLOCK)
    monkeypatch.setattr(unfinished, "SYNC_SECONDS", 0)
    vectors = np.random.default_rng(5).normal(size=(COUNT, 12)).astype(np.float32)
    vectors[[3, 9, 10]] = np.nan
    return vectors


@pytest.fixture
def model(vectors: np.ndarray) -> Model:
    readable = [str(row) for row in np.flatnonzero(np.isfinite(vectors).all(axis=1))]
    return small_model(KINDS["embeddings"], VectorReader(vectors), readable)


def inputs(
    vectors: np.ndarray,
    last: int | None = None,
    stop: Callable[[], None] = interrupt,
    identity: str = "these",
) -> PredictionInput:
    reader = Stopping(vectors, last, stop)
    return PredictionInput(reader, RowNames(len(vectors)), identity, lambda key: "", lambda output: iter(()))


def number_read(images: PredictionInput) -> int:
    assert isinstance(images.reader, Stopping)
    return len(images.reader.seen)


def carry_out(
    model: Model,
    images: PredictionInput,
    out: Path,
    format: Format = "csv",
    false_alarms: float = 0.05,
    keeper: UnknownKeeper | None = None,
    progress: Progress = QUIET,
) -> PredictionCounts:
    question = Question.of(model, images, format, false_alarms, keeper is not None)
    return predict_to_file(model, images, out, question, progress, keeper)


@pytest.fixture
def whole(model: Model, vectors: np.ndarray, tmp_path: Path) -> dict[str, bytes]:
    """What an undisturbed run writes."""
    carry_out(model, inputs(vectors), tmp_path / "whole" / "new.csv")
    found = content(tmp_path / "whole")
    assert sorted(found) == ["new-unreadable.csv", "new.csv"]
    assert [len(found[name].splitlines()) for name in sorted(found)] == [1 + 3, 1 + COUNT - 3]
    return found


@pytest.mark.parametrize("seconds", [0, 1e9])
def test_an_interrupted_file_is_continued(
    seconds: float,
    model: Model,
    vectors: np.ndarray,
    whole: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unfinished, "SYNC_SECONDS", seconds)
    expected = carry_out(model, inputs(vectors), tmp_path / "again" / "new.csv")
    for last in range(COUNT):
        folder = tmp_path / str(last)
        folder.mkdir()
        with pytest.raises(KeyboardInterrupt) as stop:
            carry_out(model, inputs(vectors, last), folder / "new.csv")
        done = last // BLOCK * BLOCK
        if done:
            kept = f"{done} of {COUNT} pictures are in {folder}/new.csv.unfinished, and the same command continues there."
            assert stop.value.args == (kept, signal.SIGTERM)
            assert whole["new.csv"].startswith((folder / "new.csv.unfinished").read_bytes())
        else:
            assert names_in(folder) == []
        rest = inputs(vectors)
        assert carry_out(model, rest, folder / "new.csv") == expected
        assert number_read(rest) == COUNT - done
        assert content(folder) == whole


def test_what_is_continued_is_said(
    model: Model, vectors: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new.csv"
    with pytest.raises(KeyboardInterrupt):
        carry_out(model, inputs(vectors, 9), out)
    carry_out(model, inputs(vectors), out, progress=Progress())
    assert f"{out}.unfinished is continued behind 8 of {COUNT} pictures.\n" in capsys.readouterr().err


def test_a_torn_row_is_cut_off(
    model: Model, vectors: np.ndarray, whole: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "torn"
    for end in (b"8,7,her", b"\0" * 5000, b"8,7,heron,0.5,2,wren,0.1\n"):
        with pytest.raises(KeyboardInterrupt):
            carry_out(model, inputs(vectors, 13), folder / "new.csv")
        for name in ("new.csv", "new-unreadable.csv"):
            with unfinished_file(folder / name).open("ab") as file:
                file.write(end)
        rest = inputs(vectors)
        carry_out(model, rest, folder / "new.csv")
        assert number_read(rest) == COUNT - 12
        assert content(folder) == whole


def flip(path: Path, at: int = 60) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda rows: flip(rows), "it was changed since it was written"),
        (lambda rows: rows.write_bytes(rows.read_bytes()[:-1]), "it was changed since it was written"),
        (lambda rows: flip(rows.with_name("new-unreadable.csv.unfinished"), 20), "it was changed since"),
        (lambda rows: rows.with_name("new-unreadable.csv.unfinished").unlink(), "it was changed since"),
        (lambda rows: flip(rows.with_name("new.csv.unfinished.json")), "new.csv.unfinished.json is damaged"),
        (lambda rows: rows.with_name("new.csv.unfinished.json").write_text("[" * 10**5), "is damaged"),
        (lambda rows: rows.with_name("new.csv.unfinished.json").write_text('"checksum"'), "is damaged"),
    ],
)
def test_damage_makes_the_predictions_start_again(
    damage: Callable[[Path], None],
    reason: str,
    model: Model,
    vectors: np.ndarray,
    whole: dict[str, bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "damaged" / "new.csv"
    with pytest.raises(KeyboardInterrupt):
        carry_out(model, inputs(vectors, 13), out)
    damage(unfinished_file(out))
    carry_out(model, inputs(vectors), out, progress=Progress())
    said = capsys.readouterr().err
    assert f"{out}.unfinished is not continued, as " in said
    assert reason in said
    assert said.endswith("; the predictions start again.\n")
    assert content(out.parent) == whole


def test_removing_the_unfinished_file_starts_again(
    model: Model,
    vectors: np.ndarray,
    whole: dict[str, bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "removed" / "new.csv"
    with pytest.raises(KeyboardInterrupt):
        carry_out(model, inputs(vectors, 13), out)
    unfinished_file(out).unlink()
    carry_out(model, inputs(vectors), out, progress=Progress())
    assert "unfinished" not in capsys.readouterr().err
    assert content(out.parent) == whole


def test_a_file_that_others_wrote_stays(
    model: Model, vectors: np.ndarray, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "others" / "new.csv"
    out.parent.mkdir()
    unfinished_file(out).write_text("my notes")
    with pytest.raises(CampError, match=r"is there without new.csv.unfinished.json.*remove it"):
        carry_out(model, inputs(vectors), out)
    assert content(out.parent) == {"new.csv.unfinished": b"my notes"}
    unfinished_file(out).write_bytes(whole["new.csv"][:10])  # a beginning without a checkpoint
    carry_out(model, inputs(vectors), out)
    assert content(out.parent) == whole


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("format", "it was begun with --format csv"),
        ("rate", "it was begun with --false-alarms 0.05"),
        ("keep", "it was begun without --keep-unknown"),
        ("software", "it was begun with other software (camp 0.0.1)"),
        ("name", "the workspace has changed since"),
        ("radii", "the workspace has changed since"),
        ("pictures", "it was begun with other pictures"),
        ("fewer", "pictures in it were added, changed or removed since"),
    ],
)
def test_only_rows_of_the_same_question_are_continued(
    change: str,
    reason: str,
    model: Model,
    vectors: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if change == "software":
        with monkeypatch.context() as patch:
            before = Question.of(model, inputs(vectors), "csv")
            older = dataclasses.replace(before, software="camp 0.0.1")
            patch.setattr(Question, "of", lambda *_: older)
            with pytest.raises(KeyboardInterrupt):
                carry_out(model, inputs(vectors, 13), tmp_path / "new.csv")
    else:
        with pytest.raises(KeyboardInterrupt):
            carry_out(model, inputs(vectors, 13), tmp_path / "new.csv")
    classifier = model.classifier
    models = {
        "name": dataclasses.replace(model, names=("egret", *model.names[1:])),
        "radii": dataclasses.replace(
            model, classifier=dataclasses.replace(classifier, radii=classifier.radii / 2)
        ),
    }

    def changed(out: Path) -> None:
        keeper = UnknownKeeper(out.parent.with_suffix(".unknown"), lambda image, digest: None)
        carry_out(
            models.get(change, model),
            inputs(
                vectors[: 7 if change == "fewer" else COUNT],
                identity=change if change == "pictures" else "these",
            ),
            out,
            "jsonl" if change == "format" else "csv",
            0.3 if change == "rate" else 0.05,
            keeper if change == "keep" else None,
            Progress(),
        )

    changed(tmp_path / "fresh" / "new.csv")
    capsys.readouterr()
    changed(tmp_path / "new.csv")
    assert f"is not continued, as {reason}; the predictions start again.\n" in capsys.readouterr().err
    for name, data in content(tmp_path / "fresh").items():
        assert (tmp_path / name).read_bytes() == data


def test_without_keep_unknown_what_was_begun_with_it_is_continued(
    model: Model, vectors: np.ndarray, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """But not the other way round afterwards: what was unknown among these images is not kept."""
    out = tmp_path / "folder" / "new.csv"

    def attempt(last: int | None, keep: bool) -> int:
        keeper = UnknownKeeper(tmp_path / "unknown", lambda image, digest: None)
        images = inputs(vectors, last)
        with contextlib.suppress(KeyboardInterrupt):
            carry_out(model, images, out, keeper=keeper if keep else None)
        return number_read(images)

    attempt(9, keep=True)
    assert attempt(13, keep=False) < 13
    assert attempt(None, keep=True) >= COUNT
    assert content(out.parent) == whole


def test_images_behind_those_that_are_done_may_be_added(
    model: Model, vectors: np.ndarray, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "folder" / "new.csv"
    with pytest.raises(KeyboardInterrupt):
        carry_out(model, inputs(vectors[:14], 13), out)
    rest = inputs(vectors)
    carry_out(model, rest, out)
    assert number_read(rest) == COUNT - 12
    assert content(out.parent) == whole


def test_a_changed_picture_makes_the_predictions_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "SYNC_SECONDS", 0)
    folder, out = tmp_path / "pictures", tmp_path / "out" / "new.csv"
    keys = write_pictures(folder, 40)
    model = small_model(KINDS["conv-tiny"], FileReader(folder), keys)

    class Reader(FileReader):
        def read(self, key: str) -> bytes:
            if key == keys[30]:
                raise KeyboardInterrupt
            read.append(key)
            return super().read(key)

    def images(reader: FileReader) -> PredictionInput:
        return PredictionInput(
            reader, keys, "these", lambda key: file_mark(folder / key), lambda output: iter(())
        )

    def read_until_interrupted() -> int:
        read.clear()
        with pytest.raises(KeyboardInterrupt):
            carry_out(model, images(Reader(folder)), out)
        return len(read)

    read: list[str] = []
    assert read_until_interrupted() >= 24
    assert read_until_interrupted() <= 16
    about = (folder / keys[5]).stat()
    os.utime(folder / keys[5], ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    assert read_until_interrupted() >= 24
    (folder / keys[5]).write_bytes(b"no picture")
    assert read_until_interrupted() >= 24
    counts = carry_out(model, images(FileReader(folder)), out)
    assert (counts.predicted, counts.unreadable) == (39, 1)
    carry_out(model, images(FileReader(folder)), tmp_path / "fresh" / "new.csv")
    assert content(out.parent) == content(tmp_path / "fresh")


def test_two_processes_do_not_write_one_file(
    model: Model, vectors: np.ndarray, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "folder" / "new.csv"

    def start_another() -> None:
        with pytest.raises(CampError, match=r"Another process writes .*new.csv.unfinished; wait"):
            carry_out(model, inputs(vectors), out)

    images = inputs(vectors, 13, start_another)
    carry_out(model, images, out)
    assert content(out.parent) == whole
    carry_out(model, inputs(vectors), out)  # the lock is gone


def test_unfinished_files_are_not_abandoned_ones(
    model: Model, vectors: np.ndarray, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "folder" / "new.csv"
    with pytest.raises(KeyboardInterrupt):
        carry_out(model, inputs(vectors, 13), out)
    before = content(out.parent)
    remove_abandoned(out.parent)
    for name in before:
        remove_abandoned(out.parent, name)
    assert content(out.parent) == before
    (out.parent / f".new.csv.unfinished.json.{2**22 + 1}.tmp").write_bytes(
        b"half"
    )  # no process has this number
    carry_out(model, inputs(vectors), out)
    assert content(out.parent) == whole


# Crashes.


def in_a_process(target: Callable[..., object], *arguments: object) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_continued(
    model: Model, vectors: np.ndarray, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """Killed again and again, it ends with the same bytes, and keeps every unknown image once."""
    out, unknown = tmp_path / "folder" / "new.csv", tmp_path / "unknown"

    def attempt(last: int | None) -> None:
        keeper = UnknownKeeper(unknown, lambda image, digest: None, block=100)
        carry_out(model, inputs(vectors, last, die), out, keeper=keeper)

    for last in (2, 6, 9, 10, 11, 15, 18):
        assert in_a_process(attempt, last) == -signal.SIGKILL
        assert not out.exists()
        rows = unfinished_file(out).read_bytes()
        assert whole["new.csv"].startswith(rows[: rows.rfind(b"\n") + 1])
    attempt(None)
    assert content(out.parent) == whole
    rows = list(csv.DictReader(whole["new.csv"].decode().splitlines()))
    expected = [
        image_digest(vectors[int(row["file"])].tobytes()).hex() for row in rows if not row["category"]
    ]
    assert 0 < len(expected) < len(rows)
    stored = [digest for block in kept_digests(unknown) for digest in block]
    assert sorted(stored) == sorted(expected)
    assert sorted(read_kept(unknown, model.tip_fingerprint).digests) == sorted(expected)


def kept_digests(folder: Path) -> list[list[str]]:
    from safetensors import safe_open

    found = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            found.append(json.loads(file.metadata()["digests"]))
    return found


def test_a_full_disk_is_a_sentence_and_continued(model: Model, vectors: np.ndarray, tmp_path: Path) -> None:
    out, said = tmp_path / "folder" / "new.jsonl", tmp_path / "said"

    def attempt() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))  # as of a full disk
        try:
            carry_out(model, inputs(vectors), out, "jsonl")
        except CampError as error:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            said.write_text(str(error))
        os._exit(0)

    assert in_a_process(attempt) == 0
    assert said.read_text().startswith(f"Could not write {out}")
    assert "pictures are in " in said.read_text()
    rest = inputs(vectors)
    carry_out(model, rest, out, "jsonl")
    assert number_read(rest) < COUNT
    carry_out(model, inputs(vectors), tmp_path / "whole" / "new.jsonl", "jsonl")
    assert content(out.parent) == content(tmp_path / "whole")


@pytest.mark.slow
def test_every_power_failure_is_continued(
    model: Model, vectors: np.ndarray, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """After any failure the same command ends with the same bytes; rows that were synced are not predicted again."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "new.csv").write_bytes(b"of an earlier run")
    (root / "new-unreadable.csv").write_bytes(b"file,reason\nx,y\n")

    def attempt(folder: Path, last: int | None = None, false_alarms: float = 0.05) -> int:
        keeper = UnknownKeeper(folder / "unknown", lambda image, digest: None, block=3)
        images = inputs(vectors, last)
        carry_out(model, images, folder / "new.csv", "csv", false_alarms, keeper)
        return number_read(images)

    def kept(folder: Path) -> list[str]:
        return sorted(read_kept(folder / "unknown", model.tip_fingerprint).digests)

    with Recorder(root) as recorder:
        with pytest.raises(KeyboardInterrupt):
            attempt(root, 13, false_alarms=0.3)  # from which nothing can be continued
        with pytest.raises(KeyboardInterrupt):
            attempt(root, 9)
        recorder.done(8)
        attempt(root)
        recorder.done(COUNT)
    expected, count, continued = kept(root), 0, 0
    assert expected
    for promised, left in states(recorder, variants=6):
        count += 1
        folder = restore(left, tmp_path / "state")
        complete = (folder / "new.csv").read_bytes() == whole["new.csv"]
        assert complete or promised[-1:] != [COUNT]
        read = attempt(folder)
        if promised[-1:] == [8] and not complete:
            continued += 1
            assert read <= COUNT - 8
        assert content(folder, but="unknown") == whole
        assert kept(folder) == expected
        shutil.rmtree(folder)
    assert count > 130
    assert continued > 30


@pytest.mark.slow
def test_killing_the_command(tmp_path: Path) -> None:
    """`camp predict` of vectors, killed from outside while it writes."""
    draw = np.random.default_rng(0)
    centres = 3 * draw.normal(size=(6, 16))
    of = draw.integers(0, 6, 120_000)
    vectors = (centres[of] + draw.normal(size=(len(of), 16))).astype(np.float32)
    vectors[5000] = np.inf
    np.save(tmp_path / "new.npy", vectors)
    labels = [f"kind {number}" for number in of[:120]]
    CAMP(backbone="embeddings", new=0).partial_fit(vectors[:120], labels).save(tmp_path / "W")
    code = (
        "import sys; from camp.cli import main; from camp.app.prediction import unfinished\n"
        "unfinished.SYNC_SECONDS = 0.05; sys.exit(main(sys.argv[1:]))"
    )

    def words(name: str) -> list[str]:
        return [
            "predict",
            str(tmp_path / "W"),
            str(tmp_path / "new.npy"),
            "--out",
            str(tmp_path / name / "new.csv"),
        ]

    assert main([*words("whole"), "--quiet"]) == 0
    killed = 0
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        before = images_done(tmp_path / "killed")
        process = subprocess.Popen(
            [sys.executable, "-c", code, *words("killed")], stderr=subprocess.PIPE, text=True
        )
        while process.poll() is None and images_done(tmp_path / "killed") <= before:
            time.sleep(0.01)
        process.send_signal(number)
        said = process.communicate()[1]
        killed += process.returncode in (-signal.SIGKILL, 130)
        if number == signal.SIGINT:
            assert "of 120,000 pictures are in" in said.splitlines()[-1]
    assert killed == 3
    assert images_done(tmp_path / "killed") > 0
    assert main([*words("killed"), "--quiet"]) == 0
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    assert (tmp_path / "whole" / "new-unreadable.csv").read_text().startswith("file,reason\n5000,")


def images_done(folder: Path) -> int:
    try:
        return int(json.loads((folder / "new.csv.unfinished.json").read_bytes())["images"])
    except FileNotFoundError:
        return 0


# Inputs.


def test_pictures_and_vectors_are_not_mistaken_for_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 8)).astype(np.float32)
    CAMP(backbone="embeddings", new=0).partial_fit(vectors, ["a", "b", "c"] * 10).save(tmp_path / "W")
    np.savez(tmp_path / "longer.npz", vectors=np.ones((3, 9)))
    for name, sentence in (
        ("longer.npz", "have 9 numbers, and those of the workspace have 8"),
        ("gone.npy", "There is no file"),
        ("pictures", "has learned vectors; give an .npy or .npz file"),
    ):
        assert main(["predict", str(tmp_path / "W"), str(tmp_path / name), "--quiet"]) == 2
        assert sentence in capsys.readouterr().err
    np.savez(tmp_path / "new.npz", vectors=vectors.astype(np.float64))
    assert main(["predict", str(tmp_path / "W"), str(tmp_path / "new.npz"), "--quiet"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["file"] for row in rows] == [str(row) for row in range(30)]
    expected = CAMP.load(tmp_path / "W").set_params(unknown=True).predict(vectors)
    assert [row["name"] for row in rows] == expected.tolist()
    out = str(tmp_path / "new.npz")
    assert main(["predict", str(tmp_path / "W"), out, "--out", out, "--quiet"]) == 2
    assert "which is read; choose another name" in capsys.readouterr().err


def test_files_that_may_be_the_output_are_listed(tmp_path: Path) -> None:
    """All of a folder are compared with an output in it, or with one that has several names."""
    keys = write_pictures(tmp_path / "pictures", 3)
    (tmp_path / "pictures" / "loop.jpg").symlink_to("loop.jpg")
    images = PredictionInput.of_images(tmp_path / "pictures", QUIET)
    outside, inside, linked = tmp_path / "a.csv", tmp_path / "pictures" / "b.csv", tmp_path / "c.csv"
    outside.touch()
    inside.touch()
    os.link(tmp_path / "pictures" / keys[1], linked)
    assert list(images.files(outside)) == []
    assert len(list(images.files(inside))) == len(list(images.files(linked))) == 4
    for out in (outside, inside):
        check_output(out, "--out", (), images.files(out))
    with pytest.raises(CampError, match=f"would replace .*{keys[1]}, which is read"):
        check_output(linked, "--out", (), images.files(linked))
    one = PredictionInput.of_images(tmp_path / "pictures" / keys[0], QUIET)
    assert list(one.files(outside)) == [tmp_path / "pictures" / keys[0]]
