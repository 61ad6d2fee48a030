"""Where the output of a command may go."""

import os
import threading
from pathlib import Path

import pytest

from camp.core.errors import CampError
from camp.core.output_file import check_output, is_stream, open_output, write_output


def test_a_file_is_replaced_once_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out.csv"
    write_output(out, "first")

    def fail() -> None:
        with open_output(out) as file:
            file.write(b"second")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        fail()
    assert out.read_text() == "first"
    assert [path.name for path in out.parent.iterdir()] == ["out.csv"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.csv"
    link.symlink_to("there/out.csv")
    for text in ("new", "newer"):  # it leads nowhere at first
        write_output(link, text)
        assert link.is_symlink()
        assert (tmp_path / "there/out.csv").read_text() == text


def test_a_fifo_is_written_through(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert is_stream(fifo)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    write_output(fifo, "through")
    reader.join(timeout=20)
    assert read == [b"through"]
    assert is_stream(fifo)


def test_a_device_stays_one() -> None:
    before = Path("/dev/null").stat().st_rdev
    write_output(Path("/dev/null"), "nothing")
    assert Path("/dev/null").stat().st_rdev == before
    assert is_stream(Path("/dev/stdout"))
    if Path("/dev/full").exists():
        with pytest.raises(CampError, match=r"Could not write /dev/full: No space left on device"):
            write_output(Path("/dev/full"), "no room")


def test_what_is_read_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "W" / "steps").mkdir(parents=True)
    (tmp_path / "heron.jpg").write_bytes(b"a picture")
    (tmp_path / "link.jpg").symlink_to("heron.jpg")
    os.link(tmp_path / "heron.jpg", tmp_path / "hard.jpg")
    (tmp_path / "into").symlink_to("W/steps")
    folders, files = [tmp_path / "W"], [tmp_path / "gone.jpg", tmp_path / "heron.jpg"]

    def check(name: str) -> None:
        check_output(tmp_path / name, "--out", folders, files)

    for name in ("W/events.jsonl", "W/new.csv", "W/../W/new.csv", "into/new.csv"):
        with pytest.raises(CampError, match=r"--out .* is in .*W, whose files would be damaged"):
            check(name)
    for name in ("heron.jpg", "link.jpg", "hard.jpg"):
        with pytest.raises(CampError, match=r"would replace .*heron.jpg, which is read"):
            check(name)
    with pytest.raises(CampError, match="is a folder; give the name of a file"):
        check("")
    for name in ("new.csv", "Wide.csv", "gone.jpg"):
        check(name)
