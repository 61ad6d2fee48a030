"""The log: every decision and its undoing, permanent ids, and what a crash or a bad disk leaves of it."""

import copy
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_knowledge import EACH, enter, in_memory, knowledge, learned, state

from camp.app.workspace.decisions import (
    Decision,
    Discarded,
    Distinguished,
    Merged,
    Moved,
    Named,
)
from camp.app.workspace.events import Learned
from camp.app.workspace.history import standing
from camp.app.workspace.knowledge import DISCARDED, Knowledge
from camp.app.workspace.log import append_event, end_file, extend_log, read_log
from camp.app.workspace.workspace import Workspace
from camp.core.errors import CampError

NAMES = ("heron", "wren", "crow", None)
PICTURES = 4 * EACH


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return learned(tmp_path / "W")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of `workspace`."""
    return tmp_path / "W" / "events.jsonl"


def test_a_name_is_one_name_however_it_is_spelled() -> None:
    assert Named(category=1, name="he\u200bron\u202c").name == "heron"
    assert Moved(rows=[1], into=9, made=True, name="he\u0301ron").name == "h\u00e9ron"


DECISIONS: list[tuple[Decision, str]] = [
    (Named(category=3, name="wren"), "category 3 is called “wren”"),
    (Named(category=1, name=None), "category 1 has no name any more"),
    (Merged(category=3, into=1), "category 3 is heron"),
    (Merged(category=3, into=4), "category 3 is category 4"),
    (Distinguished(category=3, other=1), "category 3 and heron are different"),
    (Moved(rows=[0], into=2), "1 picture moved to robin"),
    (Moved(rows=[0, 1], into=3), "2 pictures moved to category 3"),
    (Moved(rows=[8, 9], into=5, made=True), "2 pictures became category 5"),
    (Discarded(category=2), "robin discarded"),
    (Discarded(rows=[4]), "1 picture discarded"),
    (Discarded(rows=[4, 5, 6]), "3 pictures discarded"),
]


@pytest.mark.parametrize(("decision", "said"), DECISIONS)
def test_a_decision_is_entered_and_undone(
    workspace: Workspace, log: Path, decision: Decision, said: str
) -> None:
    first = state(workspace.knowledge())
    entered = workspace.decide(decision)
    assert entered.number == 2
    assert entered == decision.model_copy(update={"number": 2, "time": entered.time})
    assert workspace.events()[-1] == entered
    after = workspace.knowledge()
    assert state(after) != first
    assert state(Workspace.open(log.parent).knowledge()) == state(after)  # as another process reads it
    assert entered.describe(after) == said
    assert workspace.undo() == entered
    assert state(workspace.knowledge()) == first
    assert state(Workspace.open(log.parent).knowledge()) == first
    assert len(workspace.events()) == 3  # nothing is ever taken out of the log


def test_undo_goes_back_decision_by_decision(workspace: Workspace) -> None:
    states = [state(workspace.knowledge())]
    for decision, _ in (DECISIONS[0], DECISIONS[2], DECISIONS[7], DECISIONS[10]):
        workspace.decide(decision)
        states.append(state(workspace.knowledge()))
    for before in reversed(states[:-1]):
        workspace.undo()
        assert state(workspace.knowledge()) == before
    with pytest.raises(CampError, match="There is nothing to undo: no decision since the last batch"):
        workspace.undo()


def test_a_decision_after_an_undo(workspace: Workspace) -> None:
    workspace.decide(Named(category=3, name="wren"))
    workspace.undo()
    workspace.decide(Named(category=4, name="wren"))
    assert workspace.knowledge().named() == {"heron": 1, "robin": 2, "wren": 4}
    assert [event.number for event in standing(workspace.events())] == [4]


def test_what_a_batch_has_used_can_not_be_undone(workspace: Workspace) -> None:
    workspace.decide(Named(category=3, name="wren"))
    known = workspace.knowledge()
    known.step = 2
    with workspace.storage.lock():
        enter(workspace, known)
    assert workspace.knowledge().named() == {"heron": 1, "robin": 2, "wren": 3}
    assert standing(workspace.events()) == []
    with pytest.raises(CampError, match="nothing to undo"):
        workspace.undo()


@pytest.mark.parametrize(
    ("decide", "said"),
    [
        (lambda: Named(category=3, name="heron"), 'Category 1 is called "heron" already; merge the two'),
        (lambda: Named(category=3, name="Unknown"), "'Unknown' cannot be the name of a category"),
        (lambda: Named(category=3, name="category 7"), "categories without a name are called like this"),
        (lambda: Named(category=3, name="x" * 101), "at most 100 characters, this one has 101"),
        (lambda: Named(category=3, name=" "), "cannot have an empty name"),
        (lambda: Named(category=8, name="wren"), "There is no category 8."),
        (lambda: Merged(category=1, into=1), "cannot be merged with itself"),
        (
            lambda: Distinguished(category=1, other=1),
            "heron cannot differ from itself; choose two categories.",
        ),
        (lambda: Moved(rows=[99], into=1), "There are pictures 0 to 15, not 99."),
        (lambda: Moved(rows=[1], into=4, made=True), "Category 4 exists already"),
        (lambda: Discarded(rows=[]), "No picture was chosen"),
        (lambda: Discarded(), "Discard either a category or pictures."),
        (lambda: Discarded(category=1, rows=[1]), "Discard either a category or pictures."),
    ],
)
def test_a_decision_that_cannot_be_made_is_not_entered(
    workspace: Workspace, log: Path, decide: Callable[[], Decision], said: str
) -> None:
    before = log.read_bytes()
    with pytest.raises(CampError) as refused:
        workspace.decide(decide())
    assert said in str(refused.value)
    assert log.read_bytes() == before
    assert state(workspace.knowledge()) == state(knowledge())


def test_an_event_of_a_newer_version_is_a_sentence(workspace: Workspace, log: Path) -> None:
    with log.open("a") as file:
        file.write('{"event": 2, "time": "", "kind": "eaten", "category": 1}\n')
    with pytest.raises(
        CampError, match='An event of the kind "eaten" is not known; the workspace is of a newer'
    ):
        workspace.knowledge()


def test_naming_a_category_as_it_is_called_is_allowed(workspace: Workspace) -> None:
    workspace.decide(Named(category=1, name="heron"))
    assert workspace.knowledge().named()["heron"] == 1


Draw = tuple[str, int, int, list[int]]
DRAWS = st.lists(
    st.tuples(
        st.sampled_from(["named", "merged", "apart", "moved", "made", "ended", "without", "undo"]),
        st.integers(0, 9),
        st.integers(0, 9),
        st.lists(st.integers(0, PICTURES - 1), min_size=1, max_size=6),
    ),
    max_size=14,
)


def drawn(known: Knowledge, draw: Draw) -> Decision:
    """The decision that some numbers stand for; some of them cannot be made."""
    kind, a, b, rows = draw
    ids = [category.id for category in known.live()] or [1]
    one, other = ids[a % len(ids)], ids[b % len(ids)]
    return {
        "named": Named(category=one, name=NAMES[b % len(NAMES)]),
        "merged": Merged(category=one, into=other),
        "apart": Distinguished(category=one, other=other),
        "moved": Moved(rows=rows, into=one),
        "made": Moved(rows=rows, into=known.next_id(), made=True),
        "ended": Discarded(category=one),
        "without": Discarded(rows=rows),
    }[kind]


@settings(max_examples=25, deadline=None)
@given(DRAWS)
def test_any_sequence_of_decisions(draws: list[Draw]) -> None:
    """Ids are permanent, no picture is lost, the log alone says everything, and all of it can be taken back."""
    workspace = in_memory()
    first = state(workspace.knowledge())
    known = workspace.knowledge()
    given_out = set(known.categories)
    for draw in draws:
        if draw[0] == "undo":
            if standing(workspace.events()):
                workspace.undo()
        else:
            decision = drawn(known, draw)
            try:
                workspace.decide(decision)
            except CampError:
                assert state(workspace.knowledge()) == state(known)
            else:
                assert state(workspace.knowledge()) == state(decision.apply(known))
                if isinstance(decision, Moved) and decision.made:
                    assert decision.into not in given_out
                    given_out.add(decision.into)
        known = workspace.knowledge()
        assert set(known.categories) <= given_out
        live = {category.id for category in known.live()}
        assert set(known.images.category.tolist()) <= live | {DISCARDED}
        assert known.images.files == knowledge().images.files
        names = [category.name for category in known.live() if category.name is not None]
        assert len(names) == len(set(names))
    again = Workspace(copy.deepcopy(workspace.storage))
    assert state(again.knowledge()) == state(known)
    assert again.knowledge().next_id() == known.next_id() > max(given_out)
    folded = knowledge()
    for event in standing(again.events()):
        folded = event.apply(folded)
    assert state(folded) == state(known)
    while standing(again.events()):
        again.undo()
    assert state(again.knowledge()) == first


def test_an_id_that_was_undone_before_a_batch_is_not_used_after_it(workspace: Workspace) -> None:
    workspace.decide(Moved(rows=[0], into=5, made=True))
    workspace.undo()
    known = workspace.knowledge()
    known.step = 2
    with workspace.storage.lock():
        enter(workspace, known)
    assert workspace.knowledge().next_id() == 6


def test_a_line_that_a_crash_left_half_written(workspace: Workspace, log: Path) -> None:
    workspace.decide(Named(category=3, name="Käuzchen"))
    whole, end = log.read_bytes(), end_file(log).read_bytes()
    line = json.dumps({"event": 3, "kind": "named", "category": 4, "name": "wren"}).encode()
    for rest in (line[:1], line[:20], line[:-1], bytes(len(line)), bytes(40) + line[40:] + b"\n"):
        log.write_bytes(whole + rest)
        end_file(log).write_bytes(end)
        again = Workspace.open(log.parent)
        assert again.knowledge().named() == {"heron": 1, "robin": 2, "Käuzchen": 3}
        entered = again.decide(Named(category=4, name="owl"))
        assert entered.number == 3
        assert log.read_bytes().startswith(whole + b'{"event": 3')
        assert [event.number for event in again.events()] == [1, 2, 3]


def test_a_log_that_can_not_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    with pytest.raises(CampError, match=r"Could not read .*events.jsonl: Is a directory"):
        read_log(tmp_path / "events.jsonl")
    assert read_log(tmp_path / "nothing.jsonl") == []


def test_a_full_disk_leaves_the_log_as_it_was(
    workspace: Workspace, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = log.read_bytes()

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)  # the line has been written by then
    with pytest.raises(CampError, match=r"Could not append to .*: No space left on device"):
        workspace.decide(Named(category=3, name="wren"))
    assert log.read_bytes() == before
    assert workspace.knowledge().named() == {"heron": 1, "robin": 2}


def test_a_decision_on_what_is_no_longer_so_is_refused(workspace: Workspace, log: Path) -> None:
    workspace.decide(Named(category=3, name="wren"), seen=1)
    other = Workspace.open(log.parent)
    for late in (
        lambda: other.decide(Discarded(category=3), seen=1),
        lambda: other.undo(seen=1),
    ):
        with pytest.raises(
            CampError, match="Something else changed the workspace meanwhile; look at it again"
        ):
            late()
    assert len(other.events()) == 2
    other.undo(seen=2)


def test_several_events_are_added_at_once(workspace: Workspace, log: Path, tmp_path: Path) -> None:
    workspace.decide(Named(category=3, name="Käuzchen"))
    extend_log(tmp_path / "copy.jsonl", workspace.events())
    assert (tmp_path / "copy.jsonl").read_bytes() == log.read_bytes()
    with log.open("ab") as file:
        file.write(b'{"event": 3, half')
    undone = workspace.undo()
    extend_log(tmp_path / "copy.jsonl", workspace.events()[2:])
    assert (tmp_path / "copy.jsonl").read_bytes() == log.read_bytes()
    assert undone.number == 2


def test_events_have_numbers_and_times(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    events = [Learned(step=n).dated(n) for n in (1, 2)]
    for event in events:
        append_event(log, event)
    assert all(event.time.endswith("+00:00") for event in events)
    assert read_log(log) == events


def test_lines_of_the_version_before_are_read_and_written_alike(tmp_path: Path) -> None:
    """Every kind of event as it has been written since the first version."""
    log = tmp_path / "events.jsonl"
    time = "2026-01-03T10:00:00+00:00"
    lines = [
        {"kind": "learned", "step": 1, "folder": "january", "trunk": "abc"},
        {"kind": "named", "category": 3, "name": "wren"},
        {"kind": "named", "category": 3, "name": None},
        {"kind": "merged", "category": 3, "into": 1},
        {"kind": "apart", "category": 3, "other": 1},
        {"kind": "moved", "rows": [0, 4], "into": 2},
        {"kind": "moved", "rows": [1], "into": 5, "made": True},
        {"kind": "discarded", "category": 2},
        {"kind": "discarded", "rows": [4]},
        {"kind": "undone", "of": 9},
    ]
    text = "".join(
        json.dumps({"event": number, "time": time, **line}) + "\n" for number, line in enumerate(lines, 1)
    )
    log.write_text(text)
    events = read_log(log)
    assert "".join(event.line() + "\n" for event in events) == text
    assert [event.number for event in standing(events)] == list(range(2, 9))
