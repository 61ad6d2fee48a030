"""Standard output and standard error of a command, which may be closed, full or unable to show a letter."""

import io
import os
import sys

from camp.core.progress import print_to_stderr


def prepare_streams() -> None:
    """Let output never fail for a letter that the terminal cannot show, nor for a stream that is closed."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller: else the next file that is opened would take its number
            devnull = os.open(os.devnull, os.O_WRONLY)
            if devnull != number:
                os.dup2(devnull, number)
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def output_fault() -> OSError | None:
    """Write out what is left in both streams; return why standard output cannot be written, if so.

    What cannot be written is discarded: else the interpreter would fail on it again at its end.
    """
    faults = []
    for stream in (sys.stderr, sys.stdout):
        fault = None
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            fault = error
        faults.append(fault)
    return faults[-1]


def complain(sentence: str) -> None:
    """Print a sentence to standard error."""
    print_to_stderr(f"camp: {sentence}")
