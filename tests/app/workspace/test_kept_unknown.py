"""Unknown pictures that predictions keep: nothing is lost, nothing is kept twice, and what is accepted stays."""

import dataclasses
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_images import SMALL, batch, picture, tree
from small_knowledge import enter, knowledge, learned

from camp.app.prediction.keep_unknown import unknown_keeper
from camp.app.workspace import kept_unknown
from camp.app.workspace.decisions import Accepted, Dismissed, Named
from camp.app.workspace.kept_unknown import UnknownKeeper, read_kept, tip_fingerprint
from camp.app.workspace.knowledge import REVIEWED
from camp.app.workspace.overview import category_regions
from camp.app.workspace.proposals import proposals
from camp.app.workspace.status import status_text
from camp.app.workspace.storage import MemoryStorage
from camp.app.workspace.workspace import Workspace
from camp.cli import main
from camp.core.errors import CampError
from camp.data.images import image_digest
from camp.discovery.calibration import Calibration

TIP = tip_fingerprint({"weight": torch.ones(2)})
"""That of `small_knowledge`."""


def features(number: int, axis: int = 4) -> np.ndarray:
    """Features of a picture of a fifth kind, which `small_knowledge` does not have."""
    noise = np.random.default_rng((7, axis, number)).normal(0, 0.1, 5)
    return (noise + 3 * np.eye(5)[axis]).astype(np.float16)


def keep(
    workspace: Workspace, numbers: range, tip: str = TIP, block: int = 4, axis: int = 4
) -> UnknownKeeper:
    keeper = unknown_keeper(workspace, block)
    for number in numbers:
        keeper.keep(tip, f"new/{number}.png", b"%d %d" % (axis, number), None, features(number, axis))
    keeper.flush()
    return keeper


def digest(number: int, axis: int = 4) -> str:
    return image_digest(b"%d %d" % (axis, number)).hex()


def test_what_is_kept_is_read_again_once(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    assert keep(workspace, range(6)).kept == 6
    assert keep(workspace, range(3, 9)).kept == 3
    again = unknown_keeper(workspace)
    for _ in range(2):
        again.keep(TIP, "new/20.png", b"4 20", None, features(20))
    again.flush()
    kept = Workspace.open(tmp_path / "W").knowledge().kept
    assert kept.files == tuple(f"new/{number}.png" for number in [*range(9), 20])
    assert kept.digests == tuple(digest(number) for number in [*range(9), 20])
    np.testing.assert_array_equal(kept.features, [features(number) for number in [*range(9), 20]])
    assert kept.features.dtype == np.float16


def test_two_keepers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Neither knows what the other has kept; equal pictures are read once."""
    workspace = learned(tmp_path / "W")
    one, other = unknown_keeper(workspace, 1), unknown_keeper(workspace, 1)
    for number in range(5):
        one.keep(TIP, f"a/{number}", b"4 %d" % number, None, features(number))
        other.keep(TIP, f"b/{number}", b"4 %d" % (number + 3), None, features(number + 3))
    assert sorted(workspace.storage.kept(1).digests) == sorted(digest(number) for number in range(8))


def _keep_and_die(folder: Path) -> None:
    keeper = UnknownKeeper(folder, lambda image, name: None, block=2)
    for number in range(5):
        keeper.keep(TIP, f"new/{number}", b"4 %d" % number, None, features(number))
    (folder / ".half.safetensors.1.tmp").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_leaves_whole_files(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    process = multiprocessing.get_context("fork").Process(
        target=_keep_and_die, args=(tmp_path / "W/unknown",)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert workspace.storage.kept(1).digests == tuple(digest(number) for number in range(4))
    keep(workspace, range(5))
    assert len(workspace.storage.kept(1)) == 5


def test_a_full_workspace_keeps_no_more_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_unknown, "MAX_KEPT", 7)
    workspace = learned(tmp_path / "W")
    keeper = keep(workspace, range(10))
    assert (keeper.kept, keeper.refused, len(workspace.storage.kept(1))) == (7, 3, 7)
    assert keeper.summary() == (
        "7 unknown pictures kept, 3 not: 7 are kept, which is the limit; camp review shows them."
    )
    assert keep(workspace, range(10)).refused == 3


def test_features_of_another_tip_are_left_out_until_predicted_again(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    keep(workspace, range(6), tip="of an earlier step")
    kept = workspace.storage.kept(1)
    assert (len(kept), kept.outdated) == (0, 6)
    text = status_text(Workspace.open(tmp_path / "W"))
    assert "6 unknown pictures were kept before the last training and cannot be compared any more" in text
    keep(workspace, range(2))
    kept = workspace.storage.kept(1)
    assert (len(kept), kept.outdated) == (2, 4)
    assert tip_fingerprint({"weight": torch.ones(2)}) == TIP != tip_fingerprint({"weight": torch.zeros(2)})


def test_a_damaged_file_is_a_sentence(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    keep(workspace, range(2))
    (file,) = (tmp_path / "W/unknown").iterdir()
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(CampError, match=r"is damaged .*; restore it from a copy, or remove it"):
        read_kept(tmp_path / "W/unknown", TIP)


def test_pictures_that_agree_are_proposed_and_status_says_so(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    keep(workspace, range(4))
    assert proposals(Workspace.open(tmp_path / "W").knowledge()) == []
    keep(workspace, range(4, 7))
    keep(workspace, range(20, 30), axis=0)  # around heron
    opened = Workspace.open(tmp_path / "W")
    found = proposals(opened.knowledge())
    assert {digest(number) for number in range(7)} in [set(one.digests) for one in found]
    assert f"17 unknown pictures are kept; camp review shows {len(found)} proposed categor" in status_text(
        opened
    )


def test_an_accepted_proposal_survives_a_restart_and_is_undone_at_once(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    keep(workspace, range(6))
    digests = [digest(number) for number in range(5)]
    workspace.decide(Accepted(digests=digests, into=5, name="owl"))
    unknown = tree(tmp_path / "W/unknown")
    again = Workspace.open(tmp_path / "W")
    for known in (workspace.knowledge(), again.knowledge()):
        rows = known.rows_of(5)
        assert known.named()["owl"] == 5
        assert rows.tolist() == [*range(16, 21)]
        assert (known.images.source[rows] == REVIEWED).all()
        np.testing.assert_array_equal(known.images.features[rows], [features(number) for number in range(5)])
        assert known.images.points.shape == (21, 5)
        assert known.pending().tolist() == [5]
    again.decide(Named(category=5, name="barn owl"))
    in_memory = Workspace(MemoryStorage.load(tmp_path / "W"))
    assert in_memory.knowledge().named()["barn owl"] == 5
    again.undo()
    assert again.undo().describe(again.knowledge()) == "5 unknown pictures became category 5"
    assert len(again.knowledge().images) == 16
    assert len(again.knowledge().pending()) == 6
    assert again.knowledge().next_id() == 6  # the id is not used again
    assert tree(tmp_path / "W/unknown") == unknown
    again.decide(Accepted(digests=digests, into=6, name="owl"))
    assert "5 unknown pictures became owl" in status_text(again)


def test_decisions_that_cannot_be_made(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    keep(workspace, range(6))
    for decision, reason in (
        (Accepted(digests=[], into=5), "No picture was chosen"),
        (Accepted(digests=[digest(0)], into=2), "Category 2 exists already"),
        (Accepted(digests=[digest(0)], into=5, name="heron"), 'There is a category called "heron" already'),
        (Accepted(digests=[digest(77)], into=5), "1 of the 1 unknown pictures are not kept any more"),
    ):
        with pytest.raises(CampError, match=reason):
            workspace.decide(decision)
    workspace.decide(Accepted(digests=[digest(0)], into=5))
    with pytest.raises(CampError, match="were learned or dismissed in the meantime"):
        workspace.decide(Accepted(digests=[digest(0)], into=6))
    with pytest.raises(ValueError, match="pattern"):
        Accepted(digests=["../../etc"], into=7)


def test_dismissed_pictures_do_not_come_again_even_after_a_batch(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    keep(workspace, range(6))
    workspace.decide(Dismissed(digests=[digest(number) for number in range(6)]))
    assert proposals(workspace.knowledge()) == []
    workspace.undo()
    assert len(workspace.knowledge().pending()) == 6
    workspace.decide(Dismissed(digests=[digest(number) for number in range(6)]))
    with workspace.storage.lock():
        enter(workspace, dataclasses.replace(knowledge(), step=2))
    keep(workspace, range(6))
    assert len(Workspace.open(tmp_path / "W").knowledge().pending()) == 0


def test_learned_pictures_are_removed(tmp_path: Path) -> None:
    workspace = learned(tmp_path / "W")
    keep(workspace, range(4), block=2)
    known = dataclasses.replace(knowledge(), step=2)
    for row, number in enumerate((0, 1, 2)):
        known.images.digests[row] = list(bytes.fromhex(digest(number)))
    with workspace.storage.lock():
        enter(workspace, known)
    assert len(list((tmp_path / "W/unknown").iterdir())) == 1  # the file with the pictures 2 and 3
    now = Workspace.open(tmp_path / "W").knowledge()
    assert [now.kept.digests[row] for row in now.pending()] == [digest(3)]


def test_predict_keeps_learn_goes_on_and_accepted_pictures_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it with the commands: the unknown kind becomes a category that the next batch recognises."""
    place = str(tmp_path / "W")
    january = batch(tmp_path / "january", {"heron": 15, "robin": 15, "wren": 15}, {"heron": 10, "robin": 10})
    assert main(["learn", place, str(january), "--new", "0", *SMALL]) == 0
    new = tmp_path / "new"
    new.mkdir()
    for number in range(12):
        picture("owl", number).save(new / f"owl-{number}.png")
    words = ["predict", place, str(new), "--false-alarms", "0.2", "--out", str(tmp_path / "p.csv")]
    before = tree(tmp_path / "W")
    assert main(words) == 0
    assert tree(tmp_path / "W") == before  # nothing is kept unless one asks for it
    assert main([*words, "--keep-unknown"]) == 0
    assert main([*words, "--keep-unknown"]) == 0
    said = capsys.readouterr().err
    assert "12 unknown pictures kept." in said
    assert "0 unknown pictures kept." in said
    workspace = Workspace.open(tmp_path / "W")
    known = workspace.knowledge()
    assert len(known.kept) == 12
    thumbnail = workspace.storage.thumbnail(bytes.fromhex(known.kept.digests[0]))
    assert thumbnail is not None
    assert Image.open(thumbnail).format == "JPEG"
    (proposal,) = proposals(known)
    workspace.decide(Accepted(digests=list(proposal.digests), into=known.next_id(), name="owl"))
    february = batch(tmp_path / "february", {}, {"owl": 8, "robin": 8}, first=100)
    assert main(["learn", place, str(february), "--new", "0"]) == 0
    after = Workspace.open(tmp_path / "W").knowledge()
    assert len(after.rows_of(after.named()["owl"])) == len(proposal.digests) + 8
    assert main(["predict", place, str(new), "--out", str(tmp_path / "p.csv")]) == 0
    rows = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert sum(",owl," in row for row in rows) >= 10


@pytest.mark.parametrize("rate", ["0", "0.7", "nan"])
def test_a_wrong_rate_of_false_alarms_is_a_sentence(
    rate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    january = batch(tmp_path / "january", {"heron": 3, "robin": 3})
    assert main(["learn", str(tmp_path / "W"), str(january), *SMALL]) == 0
    assert main(["predict", str(tmp_path / "W"), str(january), "--false-alarms", rate]) != 0
    assert "The rate of false alarms is a share above 0 and up to 0.5" in capsys.readouterr().err


def test_status_tells_the_expected_detection_rate(tmp_path: Path) -> None:
    """From the tables of the step, which are read again as they were written."""
    workspace = learned(tmp_path / "W")
    assert "kinds it has never seen" not in status_text(workspace)
    tables = Calibration(1.2, 0.5, None, tuple(np.linspace(-1, 1, 201)), tuple(np.linspace(0, 2, 201)))
    with workspace.storage.lock():
        enter(workspace, dataclasses.replace(knowledge(), step=2, calibration=tables))
    opened = Workspace.open(tmp_path / "W")
    assert opened.knowledge().calibration == tables
    sentence = "Of pictures of kinds it has never seen about 55 % are called unknown, at 5 % false alarms."
    assert sentence in status_text(opened)  # 5 % of the known scores are above 0.9, and 55 % of the others


def test_more_false_alarms_mean_smaller_radii(tmp_path: Path) -> None:
    tables = Calibration(1.2, 0.5, None, tuple(np.linspace(-1, 1, 201)), tuple(np.linspace(0, 2, 201)))
    known = dataclasses.replace(knowledge(), calibration=tables)
    few, many = (category_regions(known, rate)[1].radii for rate in (0.05, 0.3))
    assert (many < few).all()
