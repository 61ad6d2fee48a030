"""A power failure at any time while a workspace is created, learns and decides: nothing that was promised is lost."""

import shutil
from pathlib import Path

from small_knowledge import SETTINGS, enter, knowledge, state

from camp.app.workspace.decisions import Named
from camp.app.workspace.knowledge import Knowledge
from camp.app.workspace.storage import FolderStorage
from camp.app.workspace.workspace import Workspace
from crashes import Recorder, restore, states


def second() -> Knowledge:
    """The next step."""
    after = knowledge()
    after.step = 2
    return after


def go_on(workspace: Workspace) -> None:
    """Decide and learn."""
    events, after = len(workspace.events()), knowledge()
    if events:
        assert workspace.decide(Named(category=1, name="egret")).number == events + 1
    after.step = 1 + len(workspace.learned())
    with workspace.storage.lock():
        enter(workspace, after)
    assert Workspace.open(Path(workspace.name)).knowledge().step == after.step


def test_a_workspace_after_a_power_failure(tmp_path: Path) -> None:
    """After any failure it is as before or after the operation under way, and is continued."""
    root = tmp_path / "root"
    root.mkdir()
    expected = [0, state(knowledge())]
    with Recorder(root) as recorder:
        workspace = Workspace.create(root / "W", SETTINGS)
        recorder.done(0)
        with workspace.storage.lock():
            enter(workspace, knowledge())
        recorder.done(1)
        workspace.decide(Named(category=3, name="wren"))
        expected.append(state(workspace.knowledge()))
        recorder.done(2)
        with workspace.storage.lock():
            enter(workspace, second())
        expected.append(state(workspace.knowledge()))
        recorder.done(3)
        workspace.decide(Named(category=4, name="owl"))
        expected.append(state(workspace.knowledge()))
        recorder.done(4)
        workspace.undo()
        expected.append(state(workspace.knowledge()))
        recorder.done(5)
    count = 0
    for promised, left in states(recorder, variants=2):
        count += 1
        folder = restore(left, tmp_path / "state")
        if promised or FolderStorage.exists(folder / "W"):
            opened = Workspace.open(folder / "W")
            events = len(opened.events())
            assert events in {max(promised, default=0), max(promised, default=0) + 1}
            if events:
                assert state(opened.knowledge()) == expected[events]
                opened.storage.tip(opened.learned()[-1].step)
            if count % 5 == 0:
                go_on(opened)
        shutil.rmtree(folder)
    assert count > 200
