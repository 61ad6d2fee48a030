"""Files that survive a power failure, and their checksums."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from camp.core.errors import CampError
from camp.core.files import (
    FileMark,
    append,
    append_json_line,
    atomic_write,
    checksum_fits,
    file_checksum,
    make_folder,
    read_json,
    read_json_lines,
    with_checksum,
    write_json,
)
from crashes import Recorder, restore, states


def test_what_was_written_is_there_after_a_power_failure(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with Recorder(root) as recorder:
        write_json(root / "deep" / "er" / "a.json", {"version": 1})
        recorder.done("first")
        append_json_line(root / "deep" / "lines.jsonl", {"line": 1})
        recorder.done("line")
        write_json(root / "deep" / "er" / "a.json", {"version": 2})
        recorder.done("second")
        append_json_line(root / "deep" / "lines.jsonl", {"line": 2})
        recorder.done("last line")
    for number, (promised, state) in enumerate(states(recorder)):
        left = restore(state, tmp_path / str(number))
        if "first" in promised:
            assert read_json(left / "deep/er/a.json")["version"] in ((2,) if "second" in promised else (1, 2))
        lines = [line["line"] for line in read_json_lines(left / "deep/lines.jsonl")]
        assert lines == [1, 2][: len(lines)]
        assert len(lines) >= ("line" in promised) + ("last line" in promised)


def test_without_its_entry_the_former_file_may_come_back_but_is_whole(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with Recorder(root) as recorder:
        for content in (b"old", b"new"):
            with atomic_write(root / "a", sync_entry=False) as file:
                file.write(content)
    left = {state.get("a") for _, state in states(recorder)}
    assert left == {None, b"old", b"new"}


def test_the_recording_notices_what_it_missed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not recorded"), Recorder(tmp_path):
        subprocess.run(["mkdir", tmp_path / "by-another-process"], check=True)


def test_appending_leaves_the_file_as_it_was_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntorn")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    append(path, b"two\n", end=4)
    assert path.read_bytes() == b"one\ntwo\n"
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        append(path, b"three\n")
    assert path.read_bytes() == b"one\ntwo\n"
    with pytest.raises(CampError, match=r"Could not append to .*log: No space left on device"):
        append_json_line(path, {})


def test_checksums(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2
    assert file_checksum(tmp_path / "a") == expected
    assert FileMark.of(tmp_path / "a") == FileMark(3, expected)
    values = {"b": [1, 2.5, None, float("nan")], "a": {10: "x", 9: "ä"}}
    write_json(tmp_path / "v.json", with_checksum(values))
    read = read_json(tmp_path / "v.json")
    assert checksum_fits(read)
    assert checksum_fits({"of": "version 0.1.0"})
    read["b"][0] = 2
    assert not checksum_fits(read)


def test_folders_are_made_and_may_exist(tmp_path: Path) -> None:
    for _ in range(2):
        make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a/b/c").is_dir()
