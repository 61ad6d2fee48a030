"""A workspace on disk: begun, locked, and never half changed, whatever ends the process that learns."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_images import SMALL, batch, tree
from small_knowledge import enter, knowledge, learned, state

from camp.app.workspace import step_files, thumbnails
from camp.app.workspace.decisions import Named
from camp.app.workspace.step_files import new_step
from camp.app.workspace.storage import MemoryStorage, WorkspaceSettings
from camp.app.workspace.workspace import Workspace
from camp.cli import main
from camp.core import progress as progress_module
from camp.core.errors import CampError
from camp.core.progress import Progress
from camp.nn.backbones.settings import BackboneSettings

FEBRUARY = ["learn", "W", "february", "--epochs", "2", "--quiet"]


class Killer:
    """The process of `killing_learn`."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, str(Path(__file__).with_name("killing_learn.py"))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said = folder / "said"

    def ask(self, point: str, folder: Path, words: list[str]) -> None:
        """Have a child run `camp` in `folder`, up to `point`."""
        assert self.process.stdin is not None
        request = {"point": point, "words": words, "folder": str(folder), "said": str(self.said)}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self) -> tuple[int, int | None]:
        """The signal that ended the child, and its exit code."""
        assert self.process.stdout is not None
        ended, code = json.loads(self.process.stdout.readline())
        return ended, code


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    killer = Killer(tmp_path_factory.mktemp("killer"))
    yield killer
    assert killer.process.stdin is not None
    killer.process.stdin.close()
    killer.process.wait(timeout=30)


@pytest.fixture(scope="module")
def january(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace W that has learned a batch and a name, beside it the next batch."""
    here = tmp_path_factory.mktemp("january")
    batch(here / "january", {"heron": 8, "robin": 8}, {"heron": 8, "crow": 24})
    batch(here / "february", {"heron": 2}, {"crow": 3, "owl": 5}, first=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert main(["learn", "W", "january", *SMALL, "--quiet"]) == 0
    Workspace.open(here / "W").decide(Named(category=3, name="crow"))
    return here


@pytest.fixture(scope="module")
def undisturbed(january: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the next batch learned."""
    there = tmp_path_factory.mktemp("undisturbed") / "copy"
    shutil.copytree(january, there)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(there)
        assert main(FEBRUARY) == 0
    return there


@pytest.fixture
def here(january: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `january` to work in."""
    there = tmp_path / "copy"
    shutil.copytree(january, there)
    monkeypatch.chdir(there)
    return there


def numbers(workspace: Path) -> dict[str, Any]:
    """All that a workspace knows, but for times."""
    held = Workspace.open(workspace)
    known, reports = held.knowledge(), held.reports()
    images = vars(known.images)
    return {
        "reports": [report.model_copy(update={"seconds": None, "time": None}) for report in reports],
        "categories": known.categories,
        "calibration": known.calibration,
        "images": {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in images.items()},
        "metric": {name: tensor.tolist() for name, tensor in known.metric.state().items()},
        "tip": {name: t.tolist() for name, t in held.storage.tip(known.step).items()},
        "files": sorted(path for path in tree(workspace)),
    }


def status(capsys: pytest.CaptureFixture[str]) -> str:
    """What `camp status W` prints."""
    capsys.readouterr()
    assert main(["status", "W"]) == 0
    return capsys.readouterr().out


# Begun, opened, locked.


def test_a_workspace_keeps_what_it_was_begun_with(tmp_path: Path) -> None:
    settings = WorkspaceSettings(BackboneSettings(backbone="resnet18", resolution=40), seed=7, thumbnails=0)
    begun = Workspace.create(tmp_path / "deep" / "W", settings)
    assert Workspace.open(tmp_path / "deep" / "W").settings == settings
    assert not begun.learned()
    with pytest.raises(CampError, match=r"W has learned nothing yet; `camp learn .*W PICTURES` starts it\."):
        begun.knowledge()
    with pytest.raises(CampError, match=r"W has learned nothing yet"):
        Workspace(MemoryStorage.load(tmp_path / "deep" / "W")).knowledge()


def test_an_empty_folder_may_become_a_workspace(tmp_path: Path) -> None:
    assert Workspace.create(tmp_path, WorkspaceSettings()).name == str(tmp_path)
    with pytest.raises(CampError, match="exists already and is not a workspace; choose a new folder"):
        Workspace.create(tmp_path, WorkspaceSettings())


@pytest.mark.slow
def test_a_process_that_decides_is_refused_while_another_learns(killer: Killer, here: Path) -> None:
    with working(killer, here):
        with pytest.raises(CampError, match="Another process is working on W; wait until it is done"):
            Workspace.open(Path("W")).decide(Named(category=1, name="egret"))
        with pytest.raises(CampError, match="Another process is working on W"):
            Workspace.open(Path("W")).undo()
    Workspace.open(Path("W")).undo()  # the lock went with the process


@pytest.mark.slow
def test_a_second_learner_waits_and_says_so(
    killer: Killer, here: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(progress_module, "QUIET_SECONDS", 0.02)
    codes: list[int] = []
    second = threading.Thread(target=lambda: codes.append(main(FEBRUARY[:-1])))
    with working(killer, here):
        assert main(["status", "W"]) == 0  # whoever only looks need not wait
        second.start()
        said = ""
        while "Waiting for another process that works on W" not in said:
            assert second.is_alive()
            time.sleep(0.02)
            said += capsys.readouterr().err
        assert not codes
    second.join(timeout=60)
    assert codes == [0]
    assert numbers(here / "W") == numbers(undisturbed / "W")


class working:
    """Inside the `with` another process has the lock of W in `folder`; then it is killed."""

    def __init__(self, killer: Killer, folder: Path) -> None:
        self.killer, self.mark = killer, folder / "waiting"
        killer.ask("waiting", folder, FEBRUARY)

    def __enter__(self) -> None:
        while not self.mark.exists() or not self.mark.read_text():
            assert self.killer.process.poll() is None
            time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        os.kill(int(self.mark.read_text()), signal.SIGKILL)
        assert self.killer.answer() == (signal.SIGKILL, None)


# The event is what counts.


def test_a_step_without_its_event_is_invisible_and_replaced(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    stray = tmp_path / "W/steps/0002"
    stray.mkdir()
    (stray / "features.npy").write_bytes(b"half of some")
    (stray / "other.txt").write_text("of a killed process")
    assert state(Workspace.open(tmp_path / "W").knowledge()) == state(knowledge())
    known = workspace.knowledge()
    known.step = 2
    with workspace.storage.lock():
        enter(workspace, known)
    assert not (stray / "other.txt").exists()
    assert Workspace.open(tmp_path / "W").knowledge().step == 2


def test_old_steps_keep_their_report_only(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    for step in (2, 3):
        known = workspace.knowledge()
        known.step = step
        with workspace.storage.lock():
            enter(workspace, known)
    kept = {
        step: sorted(path.name for path in (tmp_path / f"W/steps/{step:04d}").iterdir()) for step in (1, 2, 3)
    }
    assert kept[1] == kept[2] == ["categories.json", "checksums.json", "report.json", "report.txt"]
    assert {"features.npy", "files.json", "pictures.safetensors", "tip.safetensors"} < set(kept[3])
    assert [report.step for report in workspace.reports()] == [1, 2, 3]


def test_what_a_killed_process_wrote_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".0002.4711.tmp").mkdir()
    (tmp_path / ".0002.4711.tmp" / "features.npy").write_bytes(b"half")
    with new_step(tmp_path / "0002") as folder:
        (folder / "report.json").write_text("{}")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["0002", "checksums.json", "report.json"]


@pytest.mark.parametrize("mishap", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_step_that_fails_vanishes(tmp_path: Path, mishap: BaseException) -> None:
    def fail() -> None:
        with new_step(tmp_path / "0002") as folder:
            (folder / "report.json").write_text("{}")
            raise mishap

    with pytest.raises((CampError, KeyboardInterrupt)):
        fail()
    assert list(tmp_path.iterdir()) == []


# Killed anywhere.


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["bank", "training", "clustering", "thumbnails", "writing", "entering", "event"]
)
def test_killed_before_the_step_counts(
    killer: Killer, here: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str], point: str
) -> None:
    before, shown = tree(here), status(capsys)
    killer.ask(point, here, FEBRUARY)
    assert killer.answer() == (signal.SIGKILL, None)
    after = tree(here)
    if point == "event":  # which has half a line more, and is as it was to whoever reads it
        assert Path("W/events.jsonl").read_text().count("\n") == 2
        after["W/events.jsonl"] = before["W/events.jsonl"]
    assert before.items() <= after.items()
    assert after != before or point == "event"  # something had been done by then
    assert status(capsys) == shown
    if point in ("bank", "event"):  # the others are in `test_killed_over_and_over`
        assert main(FEBRUARY) == 0
        assert numbers(here / "W") == numbers(undisturbed / "W")


@pytest.mark.slow
def test_killed_once_the_step_counts(
    killer: Killer, here: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killer.ask("forgetting", here, FEBRUARY)
    assert killer.answer() == (signal.SIGKILL, None)
    shown = status(capsys)
    assert "february: 10 pictures" in shown
    assert (here / "W/steps/0001/features.npy").exists()
    batch(here / "march", None, {"owl": 3}, first=90)
    assert main(["learn", "W", "march", "--quiet"]) == 0
    assert not (here / "W/steps/0001/features.npy").exists()  # what was not cleared away then is now
    assert not (here / "W/bank").exists()
    assert numbers(here / "W")["reports"][:2] == numbers(undisturbed / "W")["reports"]


@pytest.mark.slow
def test_killed_over_and_over(killer: Killer, here: Path, undisturbed: Path) -> None:
    for point in ("thumbnails", "writing", "entering"):
        killer.ask(point, here, FEBRUARY)
        assert killer.answer() == (signal.SIGKILL, None), point
    assert main(FEBRUARY) == 0
    assert numbers(here / "W") == numbers(undisturbed / "W")


@pytest.mark.slow
def test_killed_when_it_had_just_begun(
    killer: Killer, here: Path, january: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["learn", "V", "january", *SMALL, "--quiet"]
    killer.ask("beginning", here, words)
    assert killer.answer() == (signal.SIGKILL, None)
    assert main(["status", "V"]) == 2
    assert "V has learned nothing yet; `camp learn V PICTURES` starts it." in capsys.readouterr().err
    assert main(words) == 0
    assert Workspace.open(here / "V").reports()[0].categories == (
        Workspace.open(january / "W").reports()[0].categories
    )


# A disk that takes no more.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("largest", "said"),
    [
        (4_000, "The view bank in W/bank/"),
        (10_000, "Could not write W/steps/0002: "),  # features.npy
        (60_000, "Could not write W/steps/0002: "),  # tip.safetensors
    ],
)
def test_a_full_disk_leaves_what_was_there(
    killer: Killer, here: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str],
    largest: int, said: str,
) -> None:  # fmt: skip
    before, shown = tree(here), status(capsys)
    killer.ask(str(largest), here, FEBRUARY)
    assert killer.answer() == (0, 2)
    sentence = killer.said.read_text()
    assert sentence.startswith(f"camp: {said}")
    assert sentence.count("\n") == 1
    after = tree(here)
    assert before.items() <= after.items()
    assert all(path.startswith(("W/bank", "W/thumbnails/")) for path in after.keys() - before.keys())
    assert not [path for path in after.keys() - before.keys() if path.endswith(".jpg")]
    assert status(capsys) == shown
    if largest == 10_000:
        assert main(FEBRUARY) == 0
        assert numbers(here / "W") == numbers(undisturbed / "W")


def test_a_thumbnail_that_can_not_be_written(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk is full after two of them: a monkeypatch, as thumbnails are smaller than all else."""
    saved: list[Path] = []
    save, lock = thumbnails.save_thumbnail, threading.Lock()

    def full(jpeg: bytes, path: Path) -> None:
        with lock:
            if len(saved) == 2:
                raise CampError(f"Could not write {path}: No space left on device.")
            saved.append(path)
        save(jpeg, path)

    monkeypatch.setattr(thumbnails, "save_thumbnail", full)
    before = tree(here)
    assert main(FEBRUARY) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert len(saved) == 2
    after = tree(here)
    assert before.items() <= after.items()
    assert not [path for path in after.keys() - before.keys() if path.endswith(".jpg")]


def test_interrupted_by_the_person(
    here: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    before, shown = tree(here), status(capsys)
    with monkeypatch.context() as patch:
        patch.setattr(step_files, "save_step", interrupted)
        assert main(FEBRUARY) == 130
    assert capsys.readouterr().err == "camp: interrupted; nothing was changed.\n"
    assert before.items() <= tree(here).items()
    assert status(capsys) == shown
    assert main(FEBRUARY) == 0
    assert numbers(here / "W") == numbers(undisturbed / "W")


def test_the_lock_is_free_after_a_refusal(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    with pytest.raises(CampError), workspace.storage.lock():
        raise CampError("refused")
    with workspace.storage.lock(Progress(quiet=True)):
        pass
