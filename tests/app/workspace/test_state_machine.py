"""Any sequence of batches, decisions, undos, kills, damage and reopening, compared with a model in memory.

The model knows names and images of categories, and nothing about files. A kill ends a forked process in one of its
synchronisations with the disk, by SIGKILL.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from small_knowledge import enter, knowledge, learned, state

from camp.app.workspace.check import check_workspace
from camp.app.workspace.decisions import Decision, Discarded, Merged, Moved, Named
from camp.app.workspace.knowledge import DISCARDED
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError
from camp.core.progress import Progress

N_ROWS = len(knowledge().images)
WORDS = ("heron", "robin", "wren", "owl", "crow")
MAX_SYNCS = 14
"""More synchronisations than a batch needs."""
rows = st.lists(st.integers(0, N_ROWS - 1), min_size=1, max_size=4, unique=True)
categories, words = st.integers(1, 9), st.sampled_from(WORDS)


@dataclass(frozen=True)
class Model:
    """What a person has said."""

    names: dict[int, str | None]
    """Names of the live categories."""
    category: tuple[int, ...]
    """Category of each image."""
    highest: int
    """The highest id that was ever used."""

    def named(self, id: int, name: str) -> "Model | None":
        """A category has another name; None if that cannot be."""
        if id not in self.names or name in {word for one, word in self.names.items() if one != id}:
            return None
        return replace(self, names={**self.names, id: name})

    def merged(self, id: int, into: int) -> "Model | None":
        """Two categories are one."""
        if id == into or not {id, into} <= self.names.keys():
            return None
        name = self.names[into] if self.names[into] is not None else self.names[id]
        names = {one: word for one, word in self.names.items() if one != id}
        category = tuple(into if one == id else one for one in self.category)
        return replace(self, names={**names, into: name}, category=category)

    def moved(self, chosen: list[int], into: int) -> "Model | None":
        """Images are in another category."""
        if into not in (*self.names, DISCARDED):
            return None
        category = tuple(into if row in chosen else one for row, one in enumerate(self.category))
        return replace(self, category=category)

    def made(self, chosen: list[int]) -> "Model | None":
        """Images are a new category."""
        id = self.highest + 1
        return replace(self, names={**self.names, id: None}, highest=id).moved(chosen, id)


@dataclass
class History:
    """The model after the last batch and after each standing decision since."""

    now: Model
    before: list[Model] = field(default_factory=list)


class WorkspaceMachine(RuleBasedStateMachine):
    """A workspace on disk and its model."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="camp-state-"))
        self.workspace = learned(self.root / "W")
        known = self.workspace.knowledge()
        names = {id: one.name for id, one in known.categories.items()}
        self.history = History(Model(names, tuple(known.images.category.tolist()), max(names)))

    def teardown(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.root)

    def decide(self, decision: Decision, after: Model | None, kill: int | None) -> None:
        """Take a decision, perhaps in a process that is killed; what the model refuses is refused."""
        if after is None:
            with pytest.raises(CampError):
                self.workspace.decide(decision)
        elif self.done(lambda: self.workspace.decide(decision), kill):
            self.history = History(after, [*self.history.before, self.history.now])

    def done(self, action: Callable[[], object], kill: int | None) -> bool:
        """Whether an action was done: always without a kill, otherwise if the log says so."""
        if kill is None:
            action()
            return True
        count = len(self.workspace.events())
        _killed(action, kill)
        self.workspace = Workspace.open(self.root / "W")
        return len(self.workspace.events()) > count

    kills = st.none() | st.integers(1, MAX_SYNCS)

    @rule(id=categories, name=words, kill=kills)
    def name(self, id: int, name: str, kill: int | None) -> None:
        self.decide(Named(category=id, name=name), self.history.now.named(id, name), kill)

    @rule(id=categories, into=categories, kill=kills)
    def merge(self, id: int, into: int, kill: int | None) -> None:
        self.decide(Merged(category=id, into=into), self.history.now.merged(id, into), kill)

    @rule(chosen=rows, into=categories, kill=kills)
    def move(self, chosen: list[int], into: int, kill: int | None) -> None:
        self.decide(Moved(rows=chosen, into=into), self.history.now.moved(chosen, into), kill)

    @rule(chosen=rows, kill=kills)
    def make(self, chosen: list[int], kill: int | None) -> None:
        decision = Moved(rows=chosen, into=self.history.now.highest + 1, made=True)
        self.decide(decision, self.history.now.made(chosen), kill)

    @rule(chosen=rows)
    def discard(self, chosen: list[int]) -> None:
        self.decide(Discarded(rows=chosen), self.history.now.moved(chosen, DISCARDED), None)

    @rule(kill=kills)
    def undo(self, kill: int | None) -> None:
        if not self.history.before:
            with pytest.raises(CampError, match="nothing to undo"):
                self.workspace.undo()
        elif self.done(self.workspace.undo, kill):
            *before, last = self.history.before
            # The id of a category that was made is not used again.
            self.history = History(replace(last, highest=self.history.now.highest), before)

    @rule(kill=kills)
    def learn(self, kill: int | None) -> None:
        """A batch ends the time in which decisions can be undone."""
        after = self.workspace.knowledge()
        after.step += 1

        def write() -> None:
            with self.workspace.storage.lock():
                enter(self.workspace, after)

        if self.done(write, kill):
            self.history = History(self.history.now)

    @rule()
    def reopen(self) -> None:
        self.workspace = Workspace.open(self.root / "W")

    @rule(
        faults=st.lists(
            st.tuples(st.integers(0, 99), st.floats(0, 1), st.integers(1, 255)), min_size=8, max_size=8
        )
    )
    def corrupt(self, faults: list[tuple[int, float, int]]) -> None:
        """A changed byte of any file is noticed, or changes nothing."""
        everything, place = _everything(Workspace.open(self.root / "W")), self.root / "copy"
        shutil.copytree(self.root / "W", place)
        files = sorted(path for path in place.rglob("*") if path.is_file() and path.stat().st_size)
        files = [path for path in files if path.name != "workspace.json"]
        for number, part, bits in faults:
            path = files[number % len(files)]
            whole = path.read_bytes()
            changed = bytearray(whole)
            changed[round(part * (len(whole) - 1))] ^= bits
            path.write_bytes(bytes(changed))
            try:
                assert _everything(Workspace.open(place)) == everything
            except CampError:
                assert check_workspace(place, Progress(quiet=True))
            path.write_bytes(whole)
        shutil.rmtree(place)

    @invariant()
    def as_the_model(self) -> None:
        assert _model_of(Workspace.open(self.root / "W"), self.history.now.highest) == self.history.now


def _model_of(workspace: Workspace, highest: int) -> Model:
    known = workspace.knowledge()
    names = {one.id: one.name for one in known.live()}
    return Model(names, tuple(known.images.category.tolist()), highest)


def _everything(workspace: Workspace) -> tuple[object, ...]:
    known = workspace.knowledge()
    images, tip = known.images, workspace.storage.tip(known.step)
    arrays = (images.features, images.points, images.positions, images.digests, images.steps)
    arrays = (*arrays, *known.metric.state().values(), *(tensor.numpy() for tensor in tip.values()))
    content = [array.tobytes() for array in arrays]
    return *state(known), images.files, content, workspace.events(), workspace.reports()


def _killed(action: Callable[[], object], number: int) -> None:
    """Carry out an action in a process that is killed before its synchronisation with this number."""
    child = os.fork()
    if child == 0:
        sync, calls = os.fsync, 0

        def counted(handle: int) -> None:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            sync(handle)

        os.fsync = counted
        try:
            action()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


TestWorkspaceMachine = pytest.mark.slow(WorkspaceMachine.TestCase)
TestWorkspaceMachine.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None, derandomize=True, database=None
)
