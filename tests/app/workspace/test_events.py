"""The log: every decision and its undoing, permanent ids, and what a crash or a bad disk leaves of it."""

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_knowledge import EACH, enter, knowledge, learned, state

from camp.app.workspace.events import (
    Event,
    append_event,
    apply,
    described,
    read_events,
    standing,
    write_events,
)
from camp.app.workspace.folder import Workspace
from camp.app.workspace.knowledge import NOWHERE, Knowledge
from camp.core.errors import CampError

NAMES = ("heron", "wren", "crow", None)
PICTURES = 4 * EACH


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return learned(tmp_path / "W")


DECISIONS: list[tuple[Event, str]] = [
    ({"kind": "named", "category": 3, "name": "wren"}, "category 3 is called “wren”"),
    ({"kind": "named", "category": 1, "name": None}, "category 1 has no name any more"),
    ({"kind": "merged", "category": 3, "into": 1}, "category 3 is heron"),
    ({"kind": "merged", "category": 3, "into": 4}, "category 3 is category 4"),
    ({"kind": "apart", "category": 3, "other": 1}, "category 3 and heron are different"),
    ({"kind": "moved", "rows": [0], "into": 2}, "1 picture moved to robin"),
    ({"kind": "moved", "rows": [0, 1], "into": 3}, "2 pictures moved to category 3"),
    ({"kind": "moved", "rows": [8, 9], "into": 5, "made": True}, "2 pictures became category 5"),
    ({"kind": "discarded", "category": 2}, "robin discarded"),
    ({"kind": "discarded", "rows": [4]}, "1 picture discarded"),
    ({"kind": "discarded", "rows": [4, 5, 6]}, "3 pictures discarded"),
]


@pytest.mark.parametrize(("event", "said"), DECISIONS)
def test_a_decision_is_entered_and_undone(workspace: Workspace, event: Event, said: str) -> None:
    first = state(workspace.knowledge())
    entered = workspace.decide(event)
    assert entered["event"] == 2
    assert event.items() <= entered.items()
    assert read_events(workspace.log)[-1] == entered
    after = workspace.knowledge()
    assert state(after) != first
    assert state(Workspace.open(workspace.path).knowledge()) == state(after)  # as another process reads it
    assert described(entered, after) == said
    assert workspace.undo() == entered
    assert state(workspace.knowledge()) == first
    assert state(Workspace.open(workspace.path).knowledge()) == first
    assert len(workspace.events()) == 3  # nothing is ever taken out of the log


def test_undo_goes_back_decision_by_decision(workspace: Workspace) -> None:
    states = [state(workspace.knowledge())]
    for event, _ in (DECISIONS[0], DECISIONS[2], DECISIONS[7], DECISIONS[10]):
        workspace.decide(event)
        states.append(state(workspace.knowledge()))
    for before in reversed(states[:-1]):
        workspace.undo()
        assert state(workspace.knowledge()) == before
    with pytest.raises(CampError, match="There is nothing to undo: no decision since the last batch"):
        workspace.undo()


def test_a_decision_after_an_undo(workspace: Workspace) -> None:
    workspace.decide({"kind": "named", "category": 3, "name": "wren"})
    workspace.undo()
    workspace.decide({"kind": "named", "category": 4, "name": "wren"})
    assert workspace.knowledge().named() == {"heron": 1, "robin": 2, "wren": 4}
    assert [event["event"] for event in standing(workspace.events())] == [4]


def test_what_a_batch_has_used_can_not_be_undone(workspace: Workspace) -> None:
    workspace.decide({"kind": "named", "category": 3, "name": "wren"})
    known = workspace.knowledge()
    known.step = 2
    with workspace.alone():
        enter(workspace, known)
    assert workspace.knowledge().named() == {"heron": 1, "robin": 2, "wren": 3}
    assert standing(workspace.events()) == []
    with pytest.raises(CampError, match="nothing to undo"):
        workspace.undo()


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"kind": "named", "category": 3, "name": "heron"}, 'Category 1 is called "heron" already; merge the two'),
        ({"kind": "named", "category": 3, "name": "Unknown"}, "'Unknown' cannot be the name of a category"),
        ({"kind": "named", "category": 3, "name": "category 7"}, "categories without a name are called like this"),
        ({"kind": "named", "category": 3, "name": "x" * 101}, "at most 100 characters, this one has 101"),
        ({"kind": "named", "category": 3, "name": " "}, "cannot have an empty name"),
        ({"kind": "named", "category": 8, "name": "wren"}, "There is no category 8."),
        ({"kind": "merged", "category": 1, "into": 1}, "can not be merged with itself"),
        ({"kind": "apart", "category": 1, "other": 1}, "heron can not differ from itself; choose two categories."),
        ({"kind": "moved", "rows": [99], "into": 1}, "There are pictures 0 to 15, not 99."),
        ({"kind": "moved", "rows": [1], "into": 4, "made": True}, "Category 4 exists already"),
        ({"kind": "discarded", "rows": []}, "No picture was chosen"),
        ({"kind": "eaten", "category": 1}, 'An event of the kind "eaten" is not known; the workspace is of a newer'),
    ],
)  # fmt: skip
def test_a_decision_that_can_not_be_made_is_not_entered(
    workspace: Workspace, event: Event, said: str
) -> None:
    before = workspace.log.read_bytes()
    with pytest.raises(CampError) as refused:
        workspace.decide(event)
    assert said in str(refused.value)
    assert workspace.log.read_bytes() == before
    assert state(workspace.knowledge()) == state(knowledge())


def test_naming_a_category_as_it_is_called_is_allowed(workspace: Workspace) -> None:
    workspace.decide({"kind": "named", "category": 1, "name": "heron"})
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


def drawn(known: Knowledge, draw: Draw) -> Event:
    """The decision that some numbers stand for; some of them can not be made."""
    kind, a, b, rows = draw
    ids = [category.id for category in known.live()] or [1]
    one, other = ids[a % len(ids)], ids[b % len(ids)]
    return {
        "named": {"kind": "named", "category": one, "name": NAMES[b % len(NAMES)]},
        "merged": {"kind": "merged", "category": one, "into": other},
        "apart": {"kind": "apart", "category": one, "other": other},
        "moved": {"kind": "moved", "rows": rows, "into": one},
        "made": {"kind": "moved", "rows": rows, "into": known.next_id(), "made": True},
        "ended": {"kind": "discarded", "category": one},
        "without": {"kind": "discarded", "rows": rows},
    }[kind]


@settings(max_examples=25, deadline=None)
@given(DRAWS)
def test_any_sequence_of_decisions(draws: list[Draw]) -> None:
    """Ids are permanent, no picture is lost, the log alone says everything, and all of it can be taken back."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = learned(Path(folder) / "W")
        first = state(workspace.knowledge())
        known = workspace.knowledge()
        given_out = set(known.categories)
        for draw in draws:
            if draw[0] == "undo":
                if standing(workspace.events()):
                    workspace.undo()
            else:
                event = drawn(known, draw)
                try:
                    workspace.decide(event)
                except CampError:
                    assert state(workspace.knowledge()) == state(known)
                else:
                    assert state(workspace.knowledge()) == state(apply(known, event))
                    if event.get("made"):
                        assert event["into"] not in given_out
                        given_out.add(event["into"])
            known = workspace.knowledge()
            assert set(known.categories) <= given_out
            live = {category.id for category in known.live()}
            assert set(known.pictures.category.tolist()) <= live | {NOWHERE}
            assert known.pictures.files == knowledge().pictures.files
            names = [category.name for category in known.live() if category.name is not None]
            assert len(names) == len(set(names))
        again = Workspace.open(workspace.path)
        assert state(again.knowledge()) == state(known)
        assert again.knowledge().next_id() == known.next_id() > max(given_out)
        folded = knowledge()
        for event in standing(again.events()):
            folded = apply(folded, event)
        assert state(folded) == state(known)
        while standing(again.events()):
            again.undo()
        assert state(again.knowledge()) == first


def test_an_id_that_was_undone_before_a_batch_is_not_used_after_it(workspace: Workspace) -> None:
    workspace.decide({"kind": "moved", "rows": [0], "into": 5, "made": True})
    workspace.undo()
    known = workspace.knowledge()
    known.step = 2
    with workspace.alone():
        enter(workspace, known)
    assert workspace.knowledge().next_id() == 6


def test_a_line_that_a_crash_left_half_written(workspace: Workspace) -> None:
    workspace.decide({"kind": "named", "category": 3, "name": "Käuzchen"})
    whole = workspace.log.read_bytes()
    line = json.dumps({"event": 3, "kind": "named", "category": 4, "name": "wren"}).encode()
    for cut in (1, 20, len(line)):  # the last one lacks nothing but its end
        workspace.log.write_bytes(whole + line[:cut])
        again = Workspace.open(workspace.path)
        assert again.knowledge().named() == {"heron": 1, "robin": 2, "Käuzchen": 3}
        entered = again.decide({"kind": "named", "category": 4, "name": "owl"})
        assert entered["event"] == 3
        assert workspace.log.read_bytes().startswith(whole + b'{"event": 3')
        assert [event["event"] for event in again.events()] == [1, 2, 3]


@pytest.mark.parametrize("damage", [b"{nonsense}", b"\xff\xfe", b"", b"5", b'"learned"', b"null", b"{}"])
def test_a_damaged_line_is_a_sentence(workspace: Workspace, damage: bytes) -> None:
    workspace.decide({"kind": "named", "category": 3, "name": "wren"})
    lines = workspace.log.read_bytes().split(b"\n")
    lines.insert(1, damage)
    workspace.log.write_bytes(b"\n".join(lines))
    with pytest.raises(CampError) as refused:
        Workspace.open(workspace.path).knowledge()
    assert str(refused.value) == f"Line 2 of {workspace.log} is damaged; restore the file from a copy."


def test_a_log_that_can_not_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    with pytest.raises(CampError, match=r"Could not read .*events.jsonl: Is a directory"):
        read_events(tmp_path / "events.jsonl")
    assert read_events(tmp_path / "nothing.jsonl") == []


def test_a_full_disk_leaves_the_log_as_it_was(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    before = workspace.log.read_bytes()

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)  # the line has been written by then
    with pytest.raises(CampError, match=r"Could not append to .*: No space left on device"):
        workspace.decide({"kind": "named", "category": 3, "name": "wren"})
    assert workspace.log.read_bytes() == before
    assert workspace.knowledge().named() == {"heron": 1, "robin": 2}


def test_a_decision_on_what_is_no_longer_so_is_refused(workspace: Workspace) -> None:
    workspace.decide({"kind": "named", "category": 3, "name": "wren"}, seen=1)
    other = Workspace.open(workspace.path)
    for late in (
        lambda: other.decide({"kind": "discarded", "category": 3}, seen=1),
        lambda: other.undo(seen=1),
    ):
        with pytest.raises(
            CampError, match="Something else changed the workspace meanwhile; look at it again"
        ):
            late()
    assert len(other.events()) == 2
    other.undo(seen=2)


def test_a_whole_log_at_once(workspace: Workspace, tmp_path: Path) -> None:
    workspace.decide({"kind": "named", "category": 3, "name": "Käuzchen"})
    write_events(tmp_path / "copy.jsonl", workspace.events())
    assert (tmp_path / "copy.jsonl").read_bytes() == workspace.log.read_bytes()


def test_events_have_numbers_and_times(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    entered: list[dict[str, Any]] = [append_event(log, {"kind": "learned", "step": n}) for n in (1, 2)]
    assert [event["event"] for event in entered] == [1, 2]
    assert all(event["time"].endswith("+00:00") for event in entered)
    assert read_events(log) == entered
