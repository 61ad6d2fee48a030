"""`camp check` on a workspace: it finds every kind of damage, and rebuilds the log."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_images import tree
from small_knowledge import enter, knowledge, learned, state

from camp.app.workspace.decisions import Merged, Moved, Named
from camp.app.workspace.events import Lost
from camp.app.workspace.log import end_file
from camp.app.workspace.storage import FolderStorage
from camp.app.workspace.thumbnails import encode_thumbnail, save_thumbnail
from camp.app.workspace.workspace import Workspace
from camp.cli import main
from camp.core.errors import CampError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace W of two steps: events 1 learned, 2 named, 3 learned, 4 named, 5 moved, 6 named, 7 undone."""
    workspace = learned(tmp_path / "W")
    workspace.decide(Named(category=3, name="wren"))
    after = workspace.knowledge()
    after.step = 2
    with workspace.storage.lock():
        enter(workspace, after)
    workspace.decide(Named(category=4, name="owl"))
    workspace.decide(Moved(rows=[0], into=5, made=True))
    workspace.decide(Named(category=5, name="crow"))
    workspace.undo()
    save_thumbnail(
        encode_thumbnail(Image.new("RGB", (20, 20))), FolderStorage.open(tmp_path / "W").thumbnail(bytes(16))
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["check", "W", "--quiet", *options])
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    return code, shown.out + shown.err


def test_a_whole_workspace(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(here)
    expected = "W: workspace with 2 steps and 7 events; no damage was found.\n"
    assert check(capsys) == (0, expected)
    assert check(capsys, "--repair") == (0, expected)
    assert tree(here) == before


def test_a_workspace_of_the_version_before(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree("W")
    shutil.copytree(Path(__file__).with_name("workspace-0.1.0"), "W")
    before = tree(here)
    assert check(capsys) == (0, "W: workspace with 2 steps and 7 events; no damage was found.\n")
    assert tree(here) == before


STEP = "W/steps/0002"


def flip(path: str, place: int = -9) -> Callable[[], None]:
    """One bit of a file is another one."""

    def done() -> None:
        data = bytearray(Path(path).read_bytes())
        data[place] ^= 4
        Path(path).write_bytes(bytes(data))

    return done


def other_features(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[], None]:
    return lambda: np.save(f"{STEP}/features.npy", change(np.load(f"{STEP}/features.npy")))


DAMAGE: dict[str, tuple[Callable[[], None], str]] = {
    **{
        f"a bit of {name}": (flip(f"{STEP}/{name}"), f"{STEP}: {name} was changed since it was written")
        for name in (
            "features.npy", "pictures.safetensors", "tip.safetensors", "metric.safetensors",
            "categories.json", "files.json", "report.json",
        )
    },
    "a report of an old step": (flip("W/steps/0001/report.json"), "W/steps/0001: report.json was changed"),
    "the checksums": (lambda: Path(f"{STEP}/checksums.json").write_text("[]"), "checksums.json is damaged"),
    "a missing file": (lambda: Path(f"{STEP}/tip.safetensors").unlink(), f"{STEP}: tip.safetensors is missing"),
    "features that are no numbers": (other_features(lambda x: x * np.nan), "features.npy was changed"),
    "features of other images": (other_features(lambda x: x[1:]), "features.npy was changed"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_of_a_step_is_found_and_nothing_reads_it(
    here: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    done, said = DAMAGE[damage]
    done()
    code, shown = check(capsys)
    assert code == 2
    assert said in shown
    assert "restore it from a copy" in shown
    assert shown.endswith("camp: W is damaged.\n")
    workspace = Workspace.open(here / "W")
    with pytest.raises(CampError, match=r"steps/000[12]"):
        (workspace.knowledge(), workspace.storage.tip(2), workspace.reports())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x * np.float16(np.nan), "features holds numbers that are not finite"),
        (lambda x: x[1:], r"features has the shape (15, 5) and not (16, 5)"),
        (lambda x: x[:, 1:], r"features has the shape (16, 4) and not (16, 5)"),
    ],
)
def test_without_checksums_what_can_be_seen_is_found(
    here: Path, capsys: pytest.CaptureFixture[str], change: Callable[[np.ndarray], np.ndarray], said: str
) -> None:
    Path(f"{STEP}/checksums.json").unlink()
    other_features(change)()
    with pytest.raises(CampError) as refused:
        Workspace.open(Path("W")).knowledge()
    assert said in str(refused.value)
    code, shown = check(capsys)
    assert (code, said in shown) == (2, True)


def test_a_copy_for_people_is_written_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(f"{STEP}/report.txt").read_text()
    Path(f"{STEP}/report.txt").write_text("something else")
    assert check(capsys)[0] == 2
    assert check(capsys, "--repair")[0] == 0
    assert Path(f"{STEP}/report.txt").read_text() == text
    assert check(capsys)[0] == 0


def test_broken_thumbnails_are_removed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [path] = Path("W/thumbnails").rglob("*.jpg")
    path.write_bytes(path.read_bytes()[:40])
    code, shown = check(capsys)
    assert (code, "1 thumbnail cannot be decoded" in shown) == (2, True)
    assert check(capsys, "--repair")[0] == 0
    assert not path.exists()


# The log.


def events(workspace: Path) -> list[str]:
    return [event.kind for event in Workspace.open(workspace).events()]


def remove_log(names: tuple[str, ...]) -> None:
    for name in names:
        Path("W", name).unlink()


@pytest.mark.parametrize("names", [("events.jsonl",), ("events.jsonl", "events-end.json")])
def test_a_lost_log_is_rebuilt_from_the_steps(
    here: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...]
) -> None:
    remove_log(names)
    before = tree(here)
    assert main(["status", "W"]) == 2
    code, shown = check(capsys)
    assert code == 2
    assert "--repair rebuilds the log with 2 steps and 0 decisions" in shown
    assert "`camp check W --repair`" in shown
    assert tree(here) == before
    assert check(capsys, "--repair")[0] == 0
    rest = 5 if len(names) == 1 else 0  # it was known that there were 7 events
    assert sorted(events(here / "W")) == sorted(["learned", "learned", *["lost"] * rest])
    workspace = Workspace.open(here / "W")
    after = knowledge()
    assert state(workspace.knowledge())[2:] == state(after)[2:]
    assert workspace.knowledge().named() == {
        "heron": 1,
        "robin": 2,
        "wren": 3,
    }  # decided before the last step
    assert workspace.learned()[-1].trunk == "none"
    workspace.decide(Named(category=4, name="owl"))
    assert check(capsys)[0] == 0


def test_a_log_of_zeros_is_rebuilt(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Path("W/events.jsonl")
    log.write_bytes(bytes(log.stat().st_size))
    assert check(capsys, "--repair")[0] == 0
    assert events(here / "W").count("learned") == 2
    assert set(Path("W/events-damaged-1.jsonl").read_bytes()) == {0}


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7])
def test_a_lost_line_costs_what_it_said(here: Path, capsys: pytest.CaptureFixture[str], number: int) -> None:
    expected = state(Workspace.open(here / "W").knowledge())
    log = Path("W/events.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[: number - 1] + lines[number:]))
    damaged = log.read_bytes()
    assert check(capsys, "--repair")[0] == 0
    assert Path("W/events-damaged-1.jsonl").read_bytes() == damaged
    workspace = Workspace.open(here / "W")
    kinds = events(here / "W")
    assert len(kinds) == 7
    assert kinds.count("learned") == 2
    if number <= 3:  # the last step holds what was decided before it, and its own line is made again
        assert state(workspace.knowledge()) == expected
    if number == 5:  # nor can the category that was made there be named
        assert [event.number for event in workspace.events() if isinstance(event, Lost)] == [5]
        assert workspace.knowledge().named() == {"heron": 1, "robin": 2, "wren": 3, "owl": 4}
    assert check(capsys)[0] == 0


def test_a_decision_that_can_not_be_made_any_more_is_left_out(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Workspace.open(here / "W").decide(Merged(category=5, into=1))
    log = Path("W/events.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:4] + lines[5:]))
    code, shown = check(capsys, "--repair")
    assert code == 0
    assert "2 events cannot be recovered" in shown
    assert [e.number for e in Workspace.open(here / "W").events() if isinstance(e, Lost)] == [5, 8]


def test_repeated_and_exchanged_lines_lose_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = Workspace.open(here / "W").events()
    log = Path("W/events.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:2], lines[3], lines[2], lines[1], *lines[4:]]))
    assert check(capsys, "--repair")[0] == 0
    assert Workspace.open(here / "W").events() == expected
    assert log.read_bytes() == b"".join(lines)


def test_a_changed_line_is_not_believed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Path("W/events.jsonl")
    log.write_bytes(log.read_bytes().replace(b'"owl"', b'"owk"'))
    assert check(capsys, "--repair")[0] == 0
    workspace = Workspace.open(here / "W")
    assert events(here / "W")[3] == "lost"
    assert "owk" not in workspace.knowledge().named()


def test_a_damaged_end_is_written_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = Workspace.open(here / "W").events()
    end = end_file(Path("W/events.jsonl"))
    whole = json.loads(end.read_bytes())
    end.write_bytes(b"")
    assert check(capsys)[0] == 2
    assert check(capsys, "--repair")[0] == 0
    assert Workspace.open(here / "W").events() == expected
    assert json.loads(end.read_bytes()) == whole


def test_a_step_of_a_killed_process_is_no_damage(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("W/steps/0002", "W/steps/0003")
    assert check(capsys)[0] == 0
    assert events(here / "W").count("learned") == 2


def test_a_step_of_a_killed_process_is_not_entered(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Although an event was lost, in whose place it would fit."""
    shutil.copytree("W/steps/0002", "W/steps/0003")
    log = Path("W/events.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:4] + lines[5:]))
    assert check(capsys, "--repair")[0] == 0
    assert events(here / "W").count("learned") == 2


def test_the_log_of_the_version_before_is_rebuilt(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree("W")
    shutil.copytree(Path(__file__).with_name("workspace-0.1.0"), "W")
    trunks = [event.trunk for event in Workspace.open(here / "W").learned()]
    Path("W/events.jsonl").unlink()
    assert check(capsys, "--repair")[0] == 0
    workspace = Workspace.open(here / "W")
    assert [event.trunk for event in workspace.learned()] == trunks
    assert workspace.knowledge().step == 2


@pytest.mark.parametrize("path", ["nowhere", "W/workspace.json", "."])
def test_what_can_not_be_checked(here: Path, capsys: pytest.CaptureFixture[str], path: str) -> None:
    assert main(["check", path]) == 2
    said = capsys.readouterr().err
    assert "There is no folder" in said or "is neither a workspace nor a run folder nor a view bank" in said
