"""Progress of long work: a live bar with the time left in a terminal, a plain line every two seconds in a log."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

QUIET_SECONDS = float(os.environ.get("CAMP_PROGRESS_SECONDS", "2"))
"""How long a log may stay silent."""


class Bar:
    """One piece of work: `advance` it as parts are done, `say` what it is doing now."""

    def __init__(self, title: str, total: float) -> None:
        self.title = title
        self.total = total
        self.done = 0.0
        self.note = ""
        self.started = time.monotonic()
        self._first = 0.0

    def advance(self, amount: float = 1.0) -> None:
        """`amount` more of `total` is done."""
        self.done += amount

    def skip(self, amount: float) -> None:
        """`amount` was done before this bar began: it counts, but says nothing about the speed."""
        self.done += amount
        self._first += amount

    def say(self, note: str) -> None:
        """A few words about the present state, shown behind the estimate."""
        self.note = note

    def seconds_left(self) -> float | None:
        """Estimate from the speed so far, or None before there is one."""
        gained = self.done - self._first
        if gained <= 0:
            return None
        return (time.monotonic() - self.started) / gained * max(self.total - self.done, 0.0)

    def line(self) -> str:
        """The state in one line.

        >>> bar = Bar("trunk", 10); bar.advance(5); bar.line().startswith("trunk  50 %")
        True
        """
        share = 100 * self.done / self.total if self.total else 100.0
        left = self.seconds_left()
        estimate = "" if left is None else f", {clock(left)} left"
        return f"{self.title} {share:3.0f} %{estimate}{', ' + self.note if self.note else ''}"


def clock(seconds: float) -> str:
    """Seconds as a person says them.

    >>> clock(5), clock(65), clock(3700)
    ('5 s', '1 min 05 s', '1 h 01 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Progress:
    """Where progress goes: stderr, live in a terminal and in lines elsewhere; or nowhere (`quiet`)."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet

    @contextlib.contextmanager
    def track(self, title: str, total: float) -> Iterator[Bar]:
        """A bar for the work inside the `with`; it speaks by itself, also while the work is silent."""
        bar = Bar(title, total)
        if self.quiet:
            yield bar
            return
        live = sys.stderr.isatty()
        stop = threading.Event()

        def speak() -> None:
            while not stop.wait(0.2 if live else QUIET_SECONDS):
                print(
                    f"\r\x1b[K{bar.line()}" if live else bar.line(), end="" if live else "\n", file=sys.stderr
                )
                sys.stderr.flush()

        speaker = threading.Thread(target=speak, daemon=True)
        speaker.start()
        try:
            yield bar
        finally:
            stop.set()
            speaker.join()
            if live:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def note(self, sentence: str) -> None:
        """A sentence that stays."""
        if not self.quiet:
            print(sentence, file=sys.stderr, flush=True)
