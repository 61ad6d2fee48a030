"""The command line. A command's module is imported when it is called, so that `camp --help` is instant."""

import contextlib
import errno
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from camp.cli.streams import complain, output_fault, prepare_streams
from camp.core.errors import CampError, ReportedError, is_out_of_memory
from camp.core.machine import let_waiting_threads_sleep

HELP = """camp: discover categories in image collections that keep growing, from a few labels

Your own pictures:
  camp learn      learn a folder of pictures, some of them sorted by kind:   camp learn BIRDS january/
  camp review     name, merge and split what was found, on a local page:     camp review BIRDS
  camp status     show the categories and what each batch has taught:        camp status BIRDS
  camp predict    recognise pictures, to CSV or JSON lines:                  camp predict BIRDS new/
  camp export     write one ONNX file for any runtime:                       camp export BIRDS birds.onnx
  camp serve      recognise pictures over HTTP on this machine:              camp serve BIRDS
  camp check      verify a workspace, a run folder or a view bank:           camp check BIRDS

The paper's experiments:
  camp run        run one experiment: a data set, a backbone and a method
                  continue it:         camp run --resume FOLDER
                  compare methods:     camp run --method camp,gcd --out FOLDER
  camp report     make a page or a table from run folders
  camp study      run a grid of experiments and draw its figure or table; without a name, list those of the paper
  camp datasets   list the data sets; camp datasets get NAME downloads one
  camp methods    list the methods
  camp demo       compare CAMP with GCD on scikit-learn's digits and write a page, in a few minutes

camp COMMAND --help explains the options of a command."""

WORKSPACE_COMMANDS = ("learn", "review", "status", "predict", "export", "serve", "check")
COMMANDS = (*WORKSPACE_COMMANDS, "run", "report", "study", "datasets", "methods", "demo")
"""Names of the commands, of their modules in `camp.cli`, and of the functions in these."""
PARSING_COMMANDS = ("run", "study", "datasets", "methods")
"""Commands that parse their arguments themselves and return an exit code; tyro parses those of the others."""

UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of an output that nobody reads, and of a disk that takes no more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0 is success, 2 a mistake that a sentence explains, 1 an error of the program itself, 130 Ctrl-C, 143 SIGTERM, and
    141 an output that was closed by its reader.
    """
    if arguments is None:
        let_waiting_threads_sleep()
    words = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    with _sigterm_interrupts():
        code = _command(words)
        fault = output_fault()
        if fault is not None and code == 0:
            code = _lost_output(fault, done=True)
    if arguments is None and "RANK" in os.environ:
        # Threads of Gloo may still hold a tensor, and abort the process while the interpreter is finalized
        # (pytorch/pytorch#179291); everything is written and synced by now.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        if before is not None:  # a handler that was not made in Python cannot be put back
            signal.signal(signal.SIGTERM, before)


def _command(words: list[str]) -> int:
    """Run a command, and print its mistakes."""
    name = words[0] if words else "help"
    try:
        return _run(name, words[1:])
    except SystemExit as stop:  # tyro has shown the help, or what is wrong with an option
        return stop.code if isinstance(stop.code, int) else 0
    except CampError as error:
        rank = os.environ.get("RANK", "0")  # of several processes, see camp.core.distributed
        if rank == "0" or not isinstance(error, ReportedError):
            complain(str(error) if rank == "0" else f"In process {rank}: {error}")
        return 2
    except KeyboardInterrupt as interruption:
        kept = "what was done is kept, and `camp run --resume FOLDER` continues."
        state = "nothing was changed." if name in WORKSPACE_COMMANDS else kept
        number, said = _interruption(interruption)
        complain(f"interrupted; {said or state}")
        return 128 + number
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE:
            return _lost_output(error)
        if is_out_of_memory(error):
            complain("There is not enough memory; use fewer or smaller pictures, or a machine with more.")
            return 2
        from camp.cli.crash import crash_sentence

        complain(crash_sentence(words, error))
        return 1


def _interruption(stop: KeyboardInterrupt) -> tuple[int, str]:
    """Return the signal of an interruption, and what a command has said of its state when it passed it on."""
    arguments = [*stop.args, *(stop.__cause__.args if stop.__cause__ is not None else ())]
    said = next((one for one in arguments if isinstance(one, str)), "")
    return next((one for one in arguments if isinstance(one, int)), signal.SIGINT), said


def _lost_output(fault: OSError, done: bool = False) -> int:
    """Say why output is incomplete, unless its reader has read enough, as in `camp predict ... | head`.

    Args:
        fault: Why it could not be written.
        done: Whether the command did everything but this.
    """
    if isinstance(fault, BrokenPipeError):
        return 141
    rest = "; everything else was done" if done else ""
    complain(f"{fault.filename or 'The output'} could not be written ({fault.strerror or fault}){rest}.")
    return 2


def _run(name: str, words: list[str]) -> int:
    """Import the function of a command and call it."""
    if name in ("-h", "--help", "help"):
        print(HELP)
        return 0
    if name == "--version":
        from camp.core.version import __version__

        print(f"camp {__version__}")
        return 0
    if name not in COMMANDS:
        raise CampError(f'There is no command "{name}"; the commands are {", ".join(COMMANDS)}.')
    command: Callable[..., Any] = getattr(importlib.import_module(f"camp.cli.{name}"), name)
    if name in PARSING_COMMANDS:
        return int(command(words))
    import tyro

    tyro.cli(command, args=words, prog=f"camp {name}")
    return 0
