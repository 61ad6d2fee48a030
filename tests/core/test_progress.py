"""Progress in a terminal and in a log."""

import io
import re
import subprocess
import sys
import time

import pytest

from camp.core import progress
from camp.core.progress import Bar, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_while_the_work_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.02)
    with Progress().track("Trunk", 4) as bar:
        bar.advance()
        bar.say("1.0 GB")
        time.sleep(0.2)
    lines = log.getvalue().splitlines()
    assert len(lines) >= 2
    assert re.fullmatch(r"Trunk  25 %, \d+ s left, 1\.0 GB", lines[-1])


def test_a_terminal_shows_all_bars_and_keeps_notes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Progress().track("Task 1", 2) as outer, Progress().track("Epochs", 10) as inner:
        outer.advance()
        inner.total = 20  # known only later, as in a download
        inner.done = 5
        Progress().note("A sentence that stays.")
        print("a result")
        time.sleep(0.5)
    shown = terminal.getvalue()
    assert "Task 1" in shown
    assert " 50 %" in shown
    assert "Epochs" in shown
    assert " 25 %" in shown
    assert "A sentence that stays." in shown
    assert capsys.readouterr().out == "a result\n"
    assert progress._live_display._live is None


def test_nothing_is_shown_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(quiet=True).track("Trunk", 1) as bar:
        bar.advance()
    Progress(quiet=True).note("Nothing.")
    assert capsys.readouterr().err == ""


def test_skipped_work_does_not_count_for_the_speed() -> None:
    bar = Bar("download", 100)
    bar.skip(50)
    assert bar.seconds_left() is None
    bar.started = time.monotonic() - 10
    bar.advance(10)
    assert bar.seconds_left() == pytest.approx(40, rel=0.01)


def test_rich_is_imported_only_when_bars_are_shown() -> None:
    code = "import sys, camp.core.progress; print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
