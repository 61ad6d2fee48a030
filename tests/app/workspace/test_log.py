"""The file of the log: every line that is lost, repeated, exchanged or changed is noticed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_knowledge import enter, learned

from camp.app.workspace.check import check_workspace
from camp.app.workspace.decisions import Moved, Named
from camp.app.workspace.log import LogEnd, end_file, read_log
from camp.app.workspace.workspace import Workspace
from camp.cli import main
from camp.core.errors import CampError
from camp.core.files import checksum
from camp.core.progress import Progress


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a workspace: a batch and four decisions."""
    workspace = learned(tmp_path / "W")
    for decision in (
        Named(category=3, name="wren"),
        Named(category=4, name="owl"),
        Moved(rows=[8], into=4),
        Named(category=3, name="crow"),
    ):
        workspace.decide(decision)
    return tmp_path / "W" / "events.jsonl"


def lines(log: Path) -> list[bytes]:
    return log.read_bytes().splitlines(keepends=True)


def test_every_line_has_its_number_and_the_checksum_of_the_line_before(log: Path) -> None:
    before = checksum(b"")
    for number, line in enumerate(lines(log), start=1):
        values = json.loads(line)
        assert (values["event"], values["before"]) == (number, before)
        before = checksum(line.rstrip(b"\n"))
    assert LogEnd.read(log) == LogEnd(5, before)


def swap(first: int, second: int) -> Callable[[list[bytes]], list[bytes]]:
    def done(found: list[bytes]) -> list[bytes]:
        found[first], found[second] = found[second], found[first]
        return found

    return done


def change(number: int, old: bytes, new: bytes) -> Callable[[list[bytes]], list[bytes]]:
    def done(found: list[bytes]) -> list[bytes]:
        assert old in found[number]
        found[number] = found[number].replace(old, new)
        return found

    return done


DAMAGE: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "all lines lost": (lambda found: [], "all 5 of 5 events are missing"),
    "zeros": (lambda found: [bytes(len(b"".join(found)))], "all 5 of 5 events are missing"),
    "first line lost": (lambda found: found[1:], "line 1 is event 2, lines are missing or repeated"),
    "line lost": (lambda found: found[:2] + found[3:], "line 3 is event 4, lines are missing or repeated"),
    "last line lost": (lambda found: found[:-1], "the last 1 of 5 events are missing"),
    "last lines lost": (lambda found: found[:2], "the last 3 of 5 events are missing"),
    "line repeated": (lambda found: [*found[:3], found[2], *found[3:]], "line 4 is event 3"),
    "last line repeated": (lambda found: [*found, found[-1]], "line 6 is event 5"),
    "lines exchanged": (swap(1, 2), "line 2 is event 3"),
    "numbers exchanged too": (
        lambda found: change(1, b'"event": 3', b'"event": 2')(change(2, b'"event": 2', b'"event": 3')(swap(1, 2)(found))),
        "line 2 does not continue line 1",
    ),
    "a name changed": (change(1, b"wren", b"wran"), "line 3 does not continue line 2, which was changed"),
    "the last name changed": (change(4, b"crow", b"craw"), "line 5 was changed or exchanged"),
    "no event": (change(1, b'"category": 3', b'"category": "x"'), "line 2 is not an event"),
    "the kind changed": (change(1, b'"named"', b'"nimed"'), "line 2 is not an event"),
    "the last kind changed": (change(4, b'"named"', b'"nimed"'), "line 5 is not an event"),
    "no decision": (change(3, b'"moved", "rows": [8], "into": 4', b'"discarded"'), "line 4 is not an event"),
    "the end of two lines lost": (change(1, b"\n", b""), "line 2 is not an event"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed_and_nothing_is_written(
    log: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, reason = DAMAGE[damage]
    log.write_bytes(b"".join(change(lines(log))))
    damaged, end = log.read_bytes(), end_file(log).read_bytes()
    workspace = Workspace.open(log.parent)
    for act in (
        workspace.knowledge,
        lambda: workspace.decide(Named(category=4, name="egret")),
        lambda: enter(workspace, learned(log.parent.parent / "V").knowledge()),
    ):
        with pytest.raises(CampError) as refused:
            act()
        assert f"{log} is damaged: {reason}" in str(refused.value)
        assert f"`camp check {log.parent} --repair`" in str(refused.value)
    assert main(["status", str(log.parent)]) == 2
    assert reason in capsys.readouterr().err
    assert (log.read_bytes(), end_file(log).read_bytes()) == (damaged, end)
    assert {path.name for path in (log.parent / "steps").iterdir()} == {"0001"}


def test_a_lost_log_is_noticed_by_the_steps(log: Path) -> None:
    """Without `events-end.json` too, as in version 0.1.0."""
    log.unlink()
    with pytest.raises(CampError, match="all 5 of 5 events are missing"):
        read_log(log)
    end_file(log).unlink()
    with pytest.raises(CampError, match=r"it does not know of step 1, which is in .*steps"):
        Workspace.open(log.parent).learned()


def test_a_lost_end_of_the_last_line_loses_no_event(log: Path) -> None:
    whole = log.read_bytes()
    log.write_bytes(whole[:-1])
    workspace = Workspace.open(log.parent)
    assert len(workspace.events()) == 5
    assert workspace.decide(Named(category=4, name="egret")).number == 6
    assert log.read_bytes().startswith(whole + b'{"event": 6')


def test_a_log_may_be_ahead_of_its_end(log: Path) -> None:
    """As after a crash between the two."""
    first = LogEnd(1, checksum(lines(log)[0].rstrip(b"\n")))
    first.write(log)
    assert len(Workspace.open(log.parent).events()) == 5
    log.write_bytes(b"".join(change(0, b"january", b"februar")(lines(log)[:1])))
    with pytest.raises(CampError, match="line 1 was changed or exchanged"):
        read_log(log)


def test_a_kind_of_a_newer_version_is_a_sentence(log: Path) -> None:
    """The line is what was written, as far as this can be seen: no other line says anything else."""
    *first, last = lines(log)
    last = last.replace(b'"named"', b'"nimed"')
    log.write_bytes(b"".join([*first, last]))
    LogEnd(5, checksum(last.rstrip(b"\n"))).write(log)
    with pytest.raises(CampError, match='"nimed" is not known; the workspace is of a newer version'):
        read_log(log)
    [finding] = check_workspace(log.parent, Progress(quiet=True))
    assert "nimed" in finding.said
    assert not finding.repairable


def test_a_damaged_end_is_a_sentence(log: Path) -> None:
    for content in (b"", b"{}", b"[1]", bytes(30)):
        end_file(log).write_bytes(content)
        with pytest.raises(CampError, match=r"events-end.json is damaged: it does not say how many events"):
            read_log(log)


def test_a_log_of_the_version_before_is_continued_with_checksums(tmp_path: Path) -> None:
    old = Path(shutil.copytree(Path(__file__).with_name("workspace-0.1.0"), tmp_path / "W"))
    before = lines(old / "events.jsonl")
    workspace = Workspace.open(old)
    workspace.decide(Named(category=3, name="owl"))
    workspace.decide(Named(category=3, name="crow"))
    assert workspace.knowledge().named() == {"heron": 1, "robin": 2, "crow": 3}
    after = lines(old / "events.jsonl")
    assert after[:7] == before
    assert json.loads(after[7])["before"] == checksum(before[6].rstrip(b"\n"))
    for remove in (0, 3, 6, 8):  # lines of both versions
        (old / "events.jsonl").write_bytes(b"".join(line for i, line in enumerate(after) if i != remove))
        with pytest.raises(CampError, match="is damaged"):
            Workspace.open(old).events()
    (old / "events.jsonl").write_bytes(b"".join(after[:8]) + before[0].replace(b'"event": 1', b'"event": 9'))
    with pytest.raises(CampError, match="line 9 does not continue line 8"):
        Workspace.open(old).events()
