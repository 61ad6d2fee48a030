"""More than thirty kinds of bad input: each is answered with its sentence, and nothing that was there is changed."""

import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from small_images import SMALL, batch, picture, tree

from camp.app.workspace.workspace import Workspace
from camp.cli import main

LONG = "long" * 80
NEW = " ".join(SMALL)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace W that has learned january, an empty one that has learned nothing, and a february to learn."""
    here = tmp_path_factory.mktemp("prepared")
    batch(here / "january", {"heron": 4, "robin": 4}, {"crow": 5})
    batch(here / "february", {"heron": 2}, {"robin": 2}, first=60)
    (here / "empty").mkdir()
    (here / "note.txt").write_text("a text, and no picture")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert main(["learn", "W", "january", *SMALL, "--new", "1", "--quiet"]) == 0
    shutil.copytree(here / "W", here / "blank")
    for path in ("events.jsonl", "events-end.json", "steps", "thumbnails", ".lock"):
        gone = here / "blank" / path
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink(missing_ok=True)
    return here


@pytest.fixture
def here(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `prepared` to work in."""
    shutil.copytree(prepared, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def refused(words: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, set[str]]:
    """The sentence that answers `camp words`, and what is there now that was not before."""
    before = tree(Path())
    assert main(words.split()) == 2
    shown, after = capsys.readouterr(), tree(Path())
    assert before.items() <= after.items(), "something that was there was changed"
    assert shown.out == ""
    assert "Traceback" not in shown.err
    return shown.err, after.keys() - before.keys()


# What a person may have done to the folders before the command.


def write(path: str, content: str | bytes) -> Callable[[], None]:
    """`path` holds `content`."""

    def done() -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content.encode() if isinstance(content, str) else content)

    return done


def cut(path: str, length: int = 60) -> Callable[[], None]:
    """Only the first bytes of `path` are left."""
    return lambda: os.truncate(path, length)


def changed(**values: object) -> Callable[[], None]:
    """Other values in the workspace.json of W."""

    def done() -> None:
        path = Path("W/workspace.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return done


def begun_with(**values: object) -> Callable[[], None]:
    """Other values of the backbone in the workspace.json of W."""
    return lambda: changed(backbone=json.loads(Path("W/workspace.json").read_text())["backbone"] | values)()


def renamed(old: str, new: str) -> Callable[[], None]:
    return lambda: Path(old).rename(new) and None


def link_to_itself() -> None:
    Path("loop").symlink_to("loop")


def copy_under_another_label() -> None:
    shutil.copy("february/heron/heron-060.png", "february/robin.png")
    Path("february/robin").mkdir()
    Path("february/robin.png").rename("february/robin/again.png")


def only_broken() -> None:
    for number in range(3):
        write(f"broken/heron/{number}.jpg", f"broken {number}")()


def mostly_broken() -> None:
    shutil.copytree("february", "mostly")
    for number in range(5):
        write(f"mostly/{number}.jpg", f"broken {number}")()


def nothing() -> None:
    pass


WORKSPACE: list[tuple[str, Callable[[], None], str, str]] = [
    ("is not there", nothing, "status nowhere", "There is no workspace nowhere; `camp learn nowhere PICTURES` creates one."),
    ("is not there to predict with", nothing, "predict nowhere february", "There is no workspace nowhere;"),
    ("is not there to review", nothing, "review nowhere", "There is no workspace nowhere;"),
    ("is another folder", nothing, "status january", "january is not a workspace: there is no workspace.json in it."),
    ("is a file", nothing, "status note.txt", "note.txt is not a workspace"),
    ("has a name too long", nothing, f"status {LONG}", "cannot be a workspace (File name too long)."),
    ("has a name too long to be made", nothing, f"learn {LONG} february", "cannot be a workspace (File name too long)."),
    ("links to itself", link_to_itself, "status loop", "There is no workspace loop;"),
    ("would be a link to itself", link_to_itself, f"learn loop february {NEW}", "The folder loop could not be created (File exists)."),
    ("would be a file", nothing, f"learn note.txt february {NEW}", "note.txt exists already and is not a workspace; choose a new folder."),
    ("would be in a file", nothing, f"learn note.txt/W february {NEW}", "The folder note.txt/W could not be created (Not a directory)."),
    ("would be a full folder", nothing, f"learn january february {NEW}", "january exists already and is not a workspace; choose a new folder."),
    ("is no JSON", write("W/workspace.json", "{oh dear"), "status W", "W/workspace.json is not valid JSON"),
    ("is a list", write("W/workspace.json", "[]"), "status W", "is of another version of camp (this version reads format 1)."),
    ("is of another version", changed(format=2), "learn W february", "is of another version of camp (this version reads format 1)."),
    ("lacks its seed", write("W/workspace.json", '{"format": 1, "backbone": {}}'), "status W", "W/workspace.json is damaged ('seed'); restore it"),
    ("has a word for a seed", changed(seed="seven"), "status W", "W/workspace.json is damaged"),
    ("has an option that is not known", begun_with(wings=2), "predict W february", "W/workspace.json is damaged"),
    ("has a backbone that is not known", begun_with(backbone="albatross"), "learn W february", 'There is no backbone "albatross"'),
    ("has other weights by now", begun_with(resolution=20), "predict W february", "The weights of conv-tiny are not those that W has learned with; put the old file back."),
    ("has another network by now", begun_with(backbone="resnet18"), "learn W february", "The weights of resnet18 are not those that W has learned with"),
    ("has a damaged log", write("W/events.jsonl", "not an event\n"), "status W", "W/events.jsonl is damaged: line 1 is not an event. Restore it from a copy, or let `camp check W --repair` rebuild it."),
    ("has a log of numbers", write("W/events.jsonl", "17\n"), "learn W february", "W/events.jsonl is damaged: line 1 is not an event. Restore it from a copy, or let `camp check W --repair` rebuild it."),
    ("has an event that is not known", write("W/events.jsonl", '{"event": 1, "kind": "learned", "step": 1, "trunk": ""}\n{"event": 2, "kind": "eaten"}\n'), "status W", 'An event of the kind "eaten" is not known; the workspace is of a newer version.'),
    ("has lost its features", cut("W/steps/0001/features.npy"), "status W", "The learning step W/steps/0001 is damaged"),
    ("has lost its features to predict with", cut("W/steps/0001/features.npy", 400), "predict W february", "The learning step W/steps/0001 is damaged"),
    ("has lost its pictures", cut("W/steps/0001/pictures.safetensors"), "learn W february", "The learning step W/steps/0001 is damaged"),
    ("has lost its tip", cut("W/steps/0001/tip.safetensors", 5000), "export W birds.onnx", "The learning step W/steps/0001 is damaged"),
    ("has lost its metric", cut("W/steps/0001/metric.safetensors"), "review W", "The learning step W/steps/0001 is damaged"),
    ("has lost its categories", cut("W/steps/0001/categories.json"), "serve W", "The learning step W/steps/0001 is damaged (categories.json was changed since it was written)"),
    ("has lost a step", lambda: shutil.rmtree("W/steps/0001"), "status W", "Could not read W/steps/0001/categories.json: No such file or directory."),
    ("has lost a report", lambda: Path("W/steps/0001/report.json").unlink(), "status W", "The learning step W/steps/0001 is damaged (report.json is missing); restore it from a copy."),
    ("has learned nothing to show", nothing, "status blank", "blank has learned nothing yet; `camp learn blank PICTURES` starts it."),
    ("has learned nothing to predict with", nothing, "predict blank february", "blank has learned nothing yet;"),
    ("has learned nothing to export", nothing, "export blank birds.onnx", "blank has learned nothing yet;"),
    ("has learned nothing to review", nothing, "review blank", "blank has learned nothing yet;"),
    ("has learned nothing to serve", nothing, "serve blank", "blank has learned nothing yet;"),
]  # fmt: skip

PICTURES: list[tuple[str, Callable[[], None], str, str]] = [
    ("are not there", nothing, "learn W march", "There is no folder march; give a folder of pictures, as in january/heron/1.jpg."),
    ("are a file", nothing, "learn W note.txt", "note.txt is not a folder; give the folder that holds the pictures."),
    ("are one picture", nothing, "learn W january/heron/heron-000.png", "is not a folder; give the folder that holds the pictures."),
    ("are none", nothing, "learn W empty", "empty holds no pictures; expected files such as 1.jpg or heron/1.png in it."),
    ("are texts", write("texts/heron/1.txt", "a bird"), "learn W texts", "texts holds no pictures;"),
    ("have a name too long", nothing, f"learn W {LONG}", "File name too long."),
    ("link to themselves", link_to_itself, "learn W loop", "There is no folder loop;"),
    ("hold the workspace", nothing, f"learn january/W january {NEW}", "The workspace january/W and the pictures january must be apart; choose another folder."),
    ("are in the workspace", nothing, "learn W W/thumbnails", "The workspace W and the pictures W/thumbnails must be apart;"),
    ("are the workspace", nothing, "learn W W", "The workspace W and the pictures W must be apart;"),
    ("are called unknown", renamed("february/heron", "february/Unknown"), "learn W february", "Rename the folder february/Unknown, or call it unlabelled"),
    ("are called by a number", renamed("february/heron", "february/category 7"), "learn W february", "'category 7' cannot be the name of a category: choose another"),
    ("are called by a very long name", renamed("february/heron", f"february/{'x' * 120}"), "learn W february", "choose one of at most 100 characters, this one has 120."),
    ("have two labels by their table", write("t.csv", "file,label\nheron/heron-060.png,robin\n"), "learn W february --labels t.csv", "1 picture has labels that contradict each other, so nothing was learned; correct them and try again.\nfebruary/heron/heron-060.png: the folder says heron, t.csv says robin"),
    ("have two labels in their table", write("t.csv", "file,label\nunlabelled/robin-060.png,robin\nunlabelled/robin-060.png,wren\n"), "learn W february --labels t.csv", "t.csv says robin (line 2) and wren (line 3)"),
    ("have a table that is not there", nothing, "learn W february --labels t.csv", "There is no file t.csv; expected a CSV with the columns file and label."),
    ("have a folder for a table", nothing, "learn W february --labels empty", "Could not read empty: Is a directory."),
    ("have a table without columns", write("t.csv", "heron-060.png,heron\n"), "learn W february --labels t.csv", "t.csv needs one column called file and one called label; its first line is 'heron-060.png,heron'."),
    ("have a table without rows", write("t.csv", "file,label\n"), "learn W february --labels t.csv", "t.csv has a header but no rows;"),
    ("have an empty table", write("t.csv", ""), "learn W february --labels t.csv", "t.csv is empty;"),
    ("have a table of strangers", write("t.csv", "file,label\nphoenix.png,phoenix\n"), "learn W february --labels t.csv", "t.csv has 1 row whose file is not among the pictures of february: 'phoenix.png' (line 2)"),
    ("have a table of other places", write("t.csv", "file,label\n../january/heron/heron-000.png,heron\n"), "learn W february --labels t.csv", "leads out of the folder; give files relative to february."),
    ("have a binary table", write("t.csv", b"\x89PNG\r\n\x1a\n\x00\x00\xff"), "learn W february --labels t.csv", "t.csv is not text in UTF-8; save the table as CSV in UTF-8."),
    ("have a table of bad names", write("t.csv", "file,label\nunlabelled/robin-060.png,unknown\n"), "learn W february --labels t.csv", "Change line 2 of t.csv, or leave its label empty: 'unknown' cannot be the name"),
    ("have a table of unclosed quotes", write("t.csv", 'file,label\n"heron/heron-060.png,heron\n'), "learn W february --labels t.csv", "of t.csv is not valid CSV"),
]  # fmt: skip

OPTIONS: list[tuple[str, Callable[[], None], str, str]] = [
    ("--new below 0", nothing, "learn W february --new -1", "The number of new categories cannot be negative, and -1 is; 0 means that there are none."),
    ("--new above all pictures", nothing, "learn W february --new 3", "3 new categories are more than there are pictures without a label, 2; ask for fewer."),
    ("--epochs below 0", nothing, "learn W february --epochs -1", "The number of epochs cannot be negative, and -1 is."),
    ("--epochs below 0 of a new workspace", nothing, f"learn V february --epochs -1 {NEW}", "The number of epochs cannot be negative, and -1 is."),
    ("--views without --epochs", nothing, "learn W february --views 4", "Views are for training, and this batch is not trained on: give the epochs too."),
    ("one view", nothing, "learn W february --epochs 1 --views 1", "Two views of a picture are compared, so at least 2 are needed, not 1."),
    ("--thumbnails below 0", nothing, "learn V february --thumbnails -1", "The number of thumbnails cannot be negative, and -1 is."),
    ("another backbone than before", nothing, "learn W february --backbone resnet18", "W was created with other settings and keeps them: leave out options of the backbone"),
    ("another seed than before", nothing, f"learn W february {NEW} --seed 3", "W was created with other settings and keeps them"),
    ("a backbone that is not known", nothing, "learn V february --backbone albatross", 'There is no backbone "albatross"; the names are efficientnet-lite0'),
    ("a backbone for vectors", nothing, "learn V february --backbone embeddings", "The backbone embeddings takes vectors, not pictures; give an .npy or .npz file of vectors."),
    ("weights for what takes none", nothing, "learn V february --backbone conv-tiny --weights w.pth", "conv-tiny is trained from scratch and takes no weights; omit them."),
    ("weights that are not there", nothing, "learn V february --weights w.pth", "There is no file w.pth; weights are a .safetensors, .pth, .pt, .bin file"),
    ("weights that are a text", write("w.pth", "my weights"), "learn V february --weights w.pth", "w.pth"),
    ("weights that are a text by another name", write("w.safetensors", "my weights"), "learn V february --weights w.safetensors", "w.safetensors: Error while deserializing"),
    ("a device that is not there", nothing, "learn V february --device abacus", 'There is no device "abacus" here'),
    ("a device without numbers", nothing, f"learn V february {NEW} --device meta", 'There is no device "meta" here'),
    ("a resolution too large", nothing, "learn V february --resolution 1000000", "A resolution of 1000000 pixels is too large; give at most 2048."),
    ("a resolution that does not fit", nothing, "learn V february --resolution 100", "efficientnet-lite0 takes a resolution that is a multiple of 32 pixels, not 100; the nearest are 96 and 128."),
    ("a resolution too small", nothing, "learn V february --resolution 4", "A resolution of 4 pixels is too small; give 8 or more."),
    ("pictures to predict that are not there", nothing, "predict W march", "There is no march; give a folder of pictures, or a picture."),
    ("pictures to predict of a name too long", nothing, f"predict W {LONG}", "File name too long."),
    ("no pictures to predict", nothing, "predict W empty", "empty contains no pictures."),
    ("--out that is a folder", nothing, "predict W february --out empty", "--out empty is a folder; give the name of a file."),
    ("--out in a file", nothing, "predict W february --out note.txt/birds.csv", "Could not write note.txt/birds.csv: "),
    ("--out of a name too long", nothing, f"predict W february --out {LONG}", "File name too long."),
    ("no ONNX to export", nothing, "export W birds.txt", "birds.txt is not the name of an ONNX file; give a name that ends in .onnx."),
    ("an export into a file", nothing, "export W note.txt/birds.onnx", "Could not write note.txt/birds.onnx: "),
    ("an export over a folder", renamed("empty", "birds.onnx"), "export W birds.onnx", "The file birds.onnx is a folder; give the name of a file."),
    ("--out in the workspace", nothing, "predict W february --out W/events.jsonl", "--out W/events.jsonl is in W, whose files would be damaged; choose another place."),
    ("--out that is a picture", nothing, "predict W february --out february/heron/heron-060.png", "--out february/heron/heron-060.png would replace february/heron/heron-060.png, which is read; choose another name."),
    ("an export in the workspace", nothing, "export W W/steps/birds.onnx", "The file W/steps/birds.onnx is in W, whose files would be damaged; choose another place."),
    ("a port too high", nothing, "serve W --port 99999", "Port 99999 of 127.0.0.1 cannot be used (ports go from 0 to 65535); give another --port, or none"),
    ("a port too low", nothing, "review W --no-browser --port -1", "Port -1 of 127.0.0.1 cannot be used"),
    ("a command that is not known", nothing, "lern W february", 'There is no command "lern"; the commands are learn, review, status'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("done", "words", "said"),
    [
        pytest.param(done, words, said, id=f"{what} {name}")
        for what, cases in (("workspace", WORKSPACE), ("pictures", PICTURES), ("asked for", OPTIONS))
        for name, done, words, said in cases
    ],
)
def test_a_mistake_is_a_sentence_and_changes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], done: Callable[[], None], words: str, said: str
) -> None:
    done()
    sentence, new = refused(words, capsys)
    assert sentence.startswith("camp: ")
    assert said in sentence
    assert not new


@pytest.mark.parametrize(
    ("done", "words", "said"),
    [
        (only_broken, "learn W broken", "3 of 3 pictures cannot be read (first: heron/0.jpg: not an image"),
        (mostly_broken, "learn W mostly", "5 of 9 pictures cannot be read (first: 0.jpg: not an image"),
        (copy_under_another_label, "learn W february", "1 picture has labels that contradict each other"),
        (only_broken, f"learn V broken {NEW}", "3 of 3 pictures cannot be read"),
        (nothing, "learn W january", "All 13 pictures have been learned before and bring no new label"),
    ],
)
def test_what_is_only_seen_by_opening_the_pictures(
    here: Path, capsys: pytest.CaptureFixture[str], done: Callable[[], None], words: str, said: str
) -> None:
    """Work had begun by then: views may be left, for the next attempt, and count for nothing."""
    done()
    capsys.readouterr()
    sentence, new = refused(f"{words} --quiet", capsys)
    assert sentence.startswith(f"camp: {said}")
    assert all(path.startswith(("W/bank", "V")) for path in new)
    batch(here / "march", {"heron": 2}, first=90)
    assert main(["learn", "W", "march", "--quiet"]) == 0  # and the next attempt takes them away
    assert not (here / "W" / "bank").exists()


def test_a_new_workspace_without_enough_memory_is_not_left_behind(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr("camp.app.workspace.pipeline.fill_bank", failing)
    sentence, new = refused(f"learn V february {NEW} --quiet", capsys)
    assert sentence.startswith("camp: There is not enough memory")
    assert not new


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("learn W", "PICTURES"),
        ("learn W february --epoch 3", "--epochs"),
        ("learn W february --new many", "--new"),
        ("learn W february march", "march"),
        ("status", "WORKSPACE"),
        ("predict W february --format xml", "jsonl"),
        ("export W", "FILE"),
        ("review W --port eighty", "--port"),
        ("serve W --hots 0.0.0.0", "--hots"),
    ],
)
def test_a_typo_gets_a_hint(here: Path, capsys: pytest.CaptureFixture[str], words: str, hint: str) -> None:
    sentence, new = refused(words, capsys)
    assert hint in sentence
    assert not new


@pytest.mark.parametrize("command", ["review W --no-browser", "serve W"])
def test_a_port_that_is_taken(here: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence, new = refused(f"{command} --port {port}", capsys)
    assert sentence.startswith(f"camp: Port {port} of 127.0.0.1 cannot be used (Address already in use")
    assert not new


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_place_where_nobody_may_write(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("empty", "W"):
        Path(folder).chmod(0o500)
    try:
        sentence, _ = refused(f"learn empty/V february {NEW}", capsys)
        assert "The folder empty/V could not be created (Permission denied)." in sentence
        sentence, _ = refused("learn W february", capsys)
        assert "W cannot be written to; check its permissions." in sentence
    finally:
        for folder in ("empty", "W"):
            Path(folder).chmod(0o700)


def enormous() -> bytes:
    """The beginning of a PNG of 100,000 x 100,000 pixels, which would take 30 GB."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    rest = b"IDAT" + zlib.compress(b"\0" * 1000)
    chunks = (header, rest, b"IEND")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


BROKEN = {
    "heron/enormous.png": (enormous(), "pixels"),
    "heron/empty.jpg": (b"", "the file is empty"),
    "heron/text.jpg": (b"a heron", "not an image in a supported format"),
    "cut.png": (b"", "damaged or truncated"),
}


def test_some_broken_pictures_among_good_ones_are_listed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, (content, _) in BROKEN.items():
        (here / "february" / key).write_bytes(content)
    picture("robin", 3).resize((64, 64)).save("whole.png")
    (here / "february" / "cut.png").write_bytes(Path("whole.png").read_bytes()[:200])
    (here / "february" / "notes.txt").write_text("seen on Sunday")
    assert main(["learn", "W", "february"]) == 0
    shown = capsys.readouterr()
    assert "february: 4 pictures, 2 with a label." in shown.out
    assert "4 pictures cannot be read and are left out (first: cut.png: damaged or truncated" in shown.err
    lines = (here / "W/steps/0002/unreadable.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["picture", *sorted(BROKEN)]
    for line in lines[1:]:
        assert BROKEN[line.partition(",")[0]][1] in line
    assert Workspace.open(here / "W").reports()[1].unreadable == 4


def test_links_to_themselves_pipes_and_devices_are_listed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = here / "february" / "heron"
    (folder / "loop").symlink_to("loop")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    os.mkfifo(folder / "pipe.jpg")
    listed = ["heron/loop.jpg", "heron/pipe.jpg"]
    if os.geteuid() == 0:  # who may make devices
        os.mknod(folder / "zero.jpg", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        listed.append("heron/zero.jpg")
    assert main(["learn", "W", "february", "--quiet"]) == 0
    lines = (here / "W/steps/0002/unreadable.csv").read_text().splitlines()[1:]
    assert [line.partition(",")[0] for line in lines] == listed
    assert main(["predict", "W", "february", "--out", "out.csv", "--quiet"]) == 0
    lines = Path("out-unreadable.csv").read_text().splitlines()[1:]
    assert [line.partition(",")[0] for line in lines] == listed


def test_predictions_of_nothing_that_can_be_read_are_an_error(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only_broken()
    os.mkfifo("pipe.jpg")
    capsys.readouterr()
    assert main(["predict", "W", "broken", "--out", "out.csv", "--quiet"]) == 2
    assert capsys.readouterr().err == (
        "camp: None of 3 pictures could be read (first: heron/0.jpg: not an image in a supported format).\n"
    )
    assert len(Path("out-unreadable.csv").read_text().splitlines()) == 4
    assert main(["predict", "W", "pipe.jpg", "--quiet"]) == 2
    assert (
        "camp: None of 1 pictures could be read (first: pipe.jpg: it is not a file).\n"
        in capsys.readouterr().err
    )


def test_files_of_killed_processes_are_removed(here: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        dead = process.pid
    left = [f"W/.workspace.json.{dead}.tmp", f"W/thumbnails/00/.x.jpg.{dead}.tmp", f"W/unknown/.x.{dead}.tmp"]
    for path in (*left, f".out.csv.{dead}.tmp", f".other.csv.{dead}.tmp"):
        write(path, b"half of it")()
    assert main(["learn", "W", "february", "--quiet"]) == 0
    assert not any(Path(path).exists() for path in left)
    assert main(["predict", "W", "february", "--out", "out.csv", "--quiet"]) == 0
    assert sorted(path.name for path in here.glob(".*.tmp")) == [f".other.csv.{dead}.tmp"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["learn", "W", ""], "PICTURES"),
        (["learn", " ", "february"], "WORKSPACE"),
        (["learn", "W", "february", "--labels", ""], "--labels"),
        (["status", ""], "WORKSPACE"),
        (["predict", "W", ""], "PICTURES"),
        (["predict", "W", "february", "--out", ""], "--out"),
        (["export", "W", ""], "FILE"),
        (["serve", ""], "WORKSPACE"),
        (["review", ""], "WORKSPACE"),
    ],
)
def test_an_empty_path_is_not_the_present_folder(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], name: str
) -> None:
    before = tree(here)
    assert main(words) == 2
    assert f"camp: {name} is empty; give the name of a file or folder.\n" in capsys.readouterr().err
    assert tree(here) == before


def test_broken_pictures_are_listed_beside_predictions(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, (content, _) in BROKEN.items():
        (here / "february" / key).write_bytes(content)
    assert main(["predict", "W", "february", "--out", "out.csv", "--quiet"]) == 0
    assert ", 4 cannot be read." in capsys.readouterr().out
    assert len(Path("out.csv").read_text().splitlines()) == 5
    listed = Path("out-unreadable.csv").read_text().splitlines()[1:]
    assert [line.partition(",")[0] for line in listed] == sorted(BROKEN)
