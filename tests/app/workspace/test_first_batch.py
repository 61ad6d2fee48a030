"""Two first batches at once, and interruptions that come when everything is stored."""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_images import SMALL, batch, picture, tree

from camp.app.workspace import pipeline, storage
from camp.app.workspace.log import append_event
from camp.app.workspace.storage import FolderStorage, WorkspaceGoneError
from camp.app.workspace.workspace import Workspace
from camp.cli import learn as learn_command
from camp.cli import main
from camp.core import progress as progress_module

OPTIONS = [*SMALL, "--epochs", "0"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Batches, all labelled, as discovery takes seconds: a good one, another, and one in which a picture has two labels, which shows once it is opened."""
    here = tmp_path_factory.mktemp("prepared")
    batch(here / "good", {"heron": 4, "robin": 4})
    batch(here / "other", {"heron": 4, "robin": 4}, first=60)
    batch(here / "contradicting", {"heron": 3, "robin": 3}, first=30)
    picture("heron", 30).save(here / "contradicting" / "robin" / "again.png")
    return here


@pytest.fixture
def here(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(prepared, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


class Held:
    """Stops the first call of `owner.name` until it is released."""

    def __init__(self, owner: Any, name: str, patch: pytest.MonkeyPatch) -> None:
        self.reached, self.released = threading.Event(), threading.Event()
        original = getattr(owner, name)

        def held(*arguments: Any, **options: Any) -> Any:
            if not self.reached.is_set():
                self.reached.set()
                assert self.released.wait(60)
            return original(*arguments, **options)

        patch.setattr(owner, name, held)


@pytest.mark.parametrize(("owner", "name"), [(pipeline, "fill_bank"), (FolderStorage, "begin")])
@pytest.mark.parametrize(
    ("first", "code", "learned"),
    [("contradicting", 2, ["good"]), pytest.param("other", 0, ["other", "good"], marks=pytest.mark.slow)],
)
def test_the_second_of_two_first_batches_waits(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    owner: Any, name: str, first: str, code: int, learned: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(progress_module, "QUIET_SECONDS", 0.02)
    codes: dict[str, int] = {}

    def learn(name: str) -> threading.Thread:
        thread = threading.Thread(
            target=lambda: codes.update({name: main(["learn", "RACE", name, *OPTIONS])})
        )
        thread.start()
        return thread

    held = Held(owner, name, monkeypatch)
    threads = [learn(first)]
    assert held.reached.wait(60)
    threads.append(learn("good"))
    said = ""
    while "Waiting for another process that works on RACE" not in said:
        assert threads[1].is_alive()
        time.sleep(0.02)
        said += capsys.readouterr().err
    assert not codes
    held.released.set()
    for thread in threads:
        thread.join(timeout=60)
    assert codes == {first: code, "good": 0}
    assert [report.folder for report in Workspace.open(here / "RACE").reports()] == learned


def test_a_first_batch_that_fails_leaves_nothing(here: Path) -> None:
    before = tree(here)
    assert main(["learn", "V", "contradicting", *OPTIONS, "--quiet"]) == 2
    assert tree(here) == before
    assert not (here / "V").exists()


def test_a_workspace_that_was_removed_while_waiting_is_a_sentence(here: Path) -> None:
    assert main(["learn", "V", "good", *OPTIONS, "--quiet"]) == 0
    opened = FolderStorage.open(Path("V"))
    Path("V/workspace.json").unlink()
    with (
        pytest.raises(WorkspaceGoneError, match="The workspace V was removed in the meantime"),
        opened.lock(),
    ):
        pass


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def append_and_interrupt(*arguments: Any) -> None:
    append_event(*arguments)
    raise KeyboardInterrupt


POINTS: dict[str, tuple[Any, str, Callable[..., None]]] = {
    "with the event in the log": (storage, "append_event", append_and_interrupt),
    "with all of it stored": (FolderStorage, "clean_up", interrupt),
}


@pytest.mark.parametrize("point", POINTS)
def test_interrupted_when_the_batch_is_learned(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], point: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(*POINTS[point])
        assert main(["learn", "V", "good", *OPTIONS, "--quiet"]) == 130
    assert (
        capsys.readouterr().err == "camp: interrupted; the batch good had been learned by then, as step 1.\n"
    )
    assert [report.folder for report in Workspace.open(here / "V").reports()] == ["good"]
    assert [path for path in tree(here / "V") if path.endswith(".jpg")]
    assert main(["check", "V", "--quiet"]) == 0


def test_interrupted_before_that(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(storage, "append_event", interrupt)
        assert main(["learn", "V", "good", *OPTIONS, "--quiet"]) == 130
    assert capsys.readouterr().err == "camp: interrupted; nothing was changed.\n"
    assert not [path for path in tree(here / "V") if path.endswith(".jpg")]
    assert not Workspace.open(here / "V").reports()


def test_interrupted_while_the_report_is_printed(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*words: object, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learn_command, "print", printed, raising=False)
        assert main(["learn", "V", "good", *OPTIONS, "--quiet"]) == 130
    assert "the batch good had been learned by then, as step 1." in capsys.readouterr().err
