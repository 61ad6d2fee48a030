"""Progress of long operations: live bars in a terminal (rich), a plain line every two seconds in a log."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

QUIET_SECONDS = float(os.environ.get("CAMP_PROGRESS_SECONDS", "2"))
"""Seconds between the lines in a log."""


@dataclass
class Bar:
    """Progress of one operation; `done` and `total` are in any unit."""

    title: str
    total: float
    done: float = 0.0
    note: str = ""
    started: float = field(default_factory=time.monotonic)
    _skipped: float = 0.0

    def advance(self, amount: float = 1.0) -> None:
        """Add `amount` to `done`."""
        self.done += amount

    def skip(self, amount: float) -> None:
        """Add `amount` that was done earlier and does not count for the remaining time."""
        self.done += amount
        self._skipped += amount

    def say(self, note: str) -> None:
        """Set the words that are shown after the remaining time."""
        self.note = note

    def seconds_left(self) -> float | None:
        """Estimate the remaining seconds from the speed so far; None before anything was done."""
        done_here = self.done - self._skipped
        if done_here <= 0:
            return None
        return (time.monotonic() - self.started) / done_here * max(self.total - self.done, 0.0)

    def state(self) -> str:
        """Describe percentage, remaining time and note, without the title."""
        percent = 100 * self.done / self.total if self.total else 100.0
        left = self.seconds_left()
        estimate = "" if left is None else f", {format_duration(left)} left"
        return f"{percent:3.0f} %{estimate}{', ' + self.note if self.note else ''}"

    def line(self) -> str:
        """Describe the state in one line of a log.

        >>> bar = Bar("trunk", 10); bar.advance(5); bar.line().startswith("trunk  50 %")
        True
        """
        return f"{self.title} {self.state()}"


def format_duration(seconds: float) -> str:
    """Format a duration with its two largest units.

    >>> format_duration(5), format_duration(65), format_duration(3700)
    ('5 s', '1 min 05 s', '1 h 01 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def print_to_stderr(line: str) -> None:
    """Print a line to standard error, if anybody can read it: nothing depends on that."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


class Progress:
    """Progress output on stderr, or none at all (`quiet`)."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet

    @contextlib.contextmanager
    def track(self, title: str, total: float) -> Iterator[Bar]:
        """Show a bar during the `with` block; it is refreshed from a thread, also while the block is busy."""
        bar = Bar(title, total)
        if self.quiet:
            yield bar
            return
        with _live_display.show(bar) if sys.stderr.isatty() else _log_lines(bar):
            yield bar

    def note(self, sentence: str) -> None:
        """Print a sentence that stays."""
        if not self.quiet:
            print_to_stderr(sentence)


@contextlib.contextmanager
def _log_lines(bar: Bar) -> Iterator[None]:
    """Print the bar's line every `QUIET_SECONDS`."""
    stop = threading.Event()

    def print_lines() -> None:
        while not stop.wait(QUIET_SECONDS):
            print_to_stderr(bar.line())

    thread = threading.Thread(target=print_lines, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class _LiveDisplay:
    """The bars of all operations under way, in one live display: a terminal can hold only one."""

    def __init__(self) -> None:
        self._bars: list[Bar] = []
        self._lock = threading.Lock()
        self._live: Any = None

    @contextlib.contextmanager
    def show(self, bar: Bar) -> Iterator[None]:
        """Show `bar` in the terminal until the end of the `with` block."""
        from rich.console import Console  # here, because `camp --help` does without it
        from rich.live import Live

        with self._lock:
            self._bars = [*self._bars, bar]
            if self._live is None:
                # Redirected output would go to stderr: standard output must stay where it is.
                self._live = Live(
                    console=Console(stderr=True),
                    get_renderable=self._table,
                    transient=True,
                    redirect_stdout=False,
                )
                self._live.start()
        try:
            yield
        finally:
            with self._lock:
                self._bars = [other for other in self._bars if other is not bar]
                if not self._bars:
                    self._live.stop()
                    self._live = None

    def _table(self) -> "Table":
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        for bar in self._bars:
            shown = ProgressBar(total=bar.total or 1.0, completed=bar.done if bar.total else 1.0, width=30)
            table.add_row(Text(bar.title), shown, Text(bar.state()))
        return table


_live_display = _LiveDisplay()
