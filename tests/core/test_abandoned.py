"""Temporary files of processes that were killed."""

import os
import subprocess
import sys
from pathlib import Path

from camp.core.abandoned import remove_abandoned
from camp.core.files import atomic_write


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def process_that_was_killed(folder: Path) -> int:
    """Let a process begin to write `folder`/note.txt, kill it, and return its number."""
    code = (
        "import os, signal, sys; from pathlib import Path; from camp.core.files import atomic_write\n"
        "with atomic_write(Path(sys.argv[1])) as file: os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(folder / "note.txt")])
    process.wait()
    return process.pid


def test_only_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead = process_that_was_killed(tmp_path / "deep")
    assert names(tmp_path) == [f"deep/.note.txt.{dead}.tmp"]
    (tmp_path / f".folder.{dead}.tmp").mkdir()
    (tmp_path / f".folder.{dead}.tmp" / "file").touch()
    kept = [f".other.{os.getppid()}.tmp", ".tmp", ".x.tmp", "note.txt", f"x.{dead}.tmp"]
    for name in kept:
        (tmp_path / name).touch()
    (tmp_path / f".huge.{'9' * 30}.tmp").touch()
    with atomic_write(tmp_path / "mine.txt"):
        remove_abandoned(tmp_path)
        kept.append(f".mine.txt.{os.getpid()}.tmp")
        assert names(tmp_path) == sorted(kept)
    assert (tmp_path / "mine.txt").exists()


def test_only_files_of_one_name_are_removed(tmp_path: Path) -> None:
    dead = process_that_was_killed(tmp_path)
    process_that_was_killed(tmp_path / "deep")
    (tmp_path / f".other.txt.{dead}.tmp").touch()
    remove_abandoned(tmp_path, "note.txt")
    assert [name.partition(".")[0] for name in names(tmp_path)] == ["", "deep/"]
    remove_abandoned(tmp_path / "gone")


def test_a_process_that_was_not_waited_for_is_dead(tmp_path: Path) -> None:
    """A container whose first process does not reap its children keeps the numbers of killed ones."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    (tmp_path / f".note.txt.{process.pid}.tmp").touch()
    remove_abandoned(tmp_path)
    process.wait()
    assert names(tmp_path) == []
