"""What a command does when its output cannot be written, when it is ended, and when it fails in an unforeseen way."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from camp.cli import main

FULL = Path("/dev/full")
COMMAND = (sys.executable, "-c", "import sys; from camp.cli import main; sys.exit(main())")
WITH_LETTERS = (
    sys.executable,
    "-c",
    "import sys, camp.cli.methods as m; from camp.cli import main;"
    "m.methods = lambda words: print('h\\xe9ron \\u201cgrey\\u201d \\udcff') or 0; sys.exit(main(['methods']))",
)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_the_output_is_a_sentence(unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with FULL.open("w") as full:
        done = subprocess.run(
            [*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
    assert done.returncode == 2
    rest = "" if unbuffered else "; everything else was done"
    assert done.stderr == f"camp: The output could not be written (No space left on device){rest}.\n"


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_the_errors_changes_nothing() -> None:
    with FULL.open("w") as full:
        done = subprocess.run([*COMMAND, "nope"], stdout=subprocess.PIPE, stderr=full, text=True)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_read_enough_hears_no_more(unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        [*COMMAND, "--help"], stdout=writing, stderr=subprocess.PIPE, text=True, env=environment
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams(closed: str) -> None:
    script = f'"$0" -c "$1" methods {closed}'
    done = subprocess.run(["sh", "-c", script, *COMMAND[::2]], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "utf-8"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_letters_that_the_output_cannot_show_are_escaped(environment: dict[str, str]) -> None:
    done = subprocess.run(WITH_LETTERS, capture_output=True, env={**os.environ, **environment})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"h")
    assert done.stdout.endswith((b"\\udcff\n", b"\xff\n"))


def test_sigterm_is_ctrl_c(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def terminated(words: list[str]) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("camp.cli.run.run", terminated)
    assert main(["run"]) == 128 + signal.SIGTERM
    assert capsys.readouterr().err.startswith("camp: interrupted; what was done is kept")
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_unforeseen_error_is_a_sentence_and_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(words: list[str]) -> int:
        raise KeyError("a name\nin two lines")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("camp.cli.methods.methods", failing)
    assert main(["methods", "a word"]) == 1
    shown = capsys.readouterr()
    [report] = tmp_path.iterdir()
    assert shown.out == ""
    assert shown.err.startswith("camp: This is an error of camp itself (KeyError: ")
    assert shown.err.endswith(f"; please report it with the file {report}.\n")
    assert shown.err.count("\n") == 1
    written = report.read_text()
    assert "camp methods 'a word'" in written
    assert "Traceback" in written
    assert "in failing" in written


def test_an_unforeseen_error_without_a_place_for_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    monkeypatch.setattr("camp.cli.methods.methods", lambda words: 1 // 0)
    assert main(["methods"]) == 1
    assert "its report could not be written (No such file or directory)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")],
)
def test_too_little_memory_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def failing(words: list[str]) -> int:
        raise error

    monkeypatch.setattr("camp.cli.methods.methods", failing)
    assert main(["methods"]) == 2
    assert capsys.readouterr().err.startswith("camp: There is not enough memory")
