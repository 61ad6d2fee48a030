"""The command line. A command's module is imported when it is called, so that `camp --help` is instant."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from camp.core.errors import CampError, ReportedError

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns 0 for success, 2 for a mistake explained in a sentence, 130 after Ctrl-C."""
    code = _command(list(sys.argv[1:] if arguments is None else arguments))
    if arguments is None and "RANK" in os.environ:
        # Threads of Gloo may still hold a tensor, and abort the process while the interpreter is finalized
        # (pytorch/pytorch#179291); everything is written and synced by now.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _command(words: list[str]) -> int:
    """Run a command, and print its mistakes."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP)
        return 0
    if words[0] == "--version":
        from camp.core.version import __version__

        print(f"camp {__version__}")
        return 0
    name, *rest = words
    try:
        return _run(name, rest)
    except SystemExit as stop:  # tyro has shown the help, or what is wrong with an option
        return stop.code if isinstance(stop.code, int) else 0
    except CampError as error:
        rank = os.environ.get("RANK", "0")  # of several processes, see camp.core.distributed
        if rank == "0" or not isinstance(error, ReportedError):
            print(f"camp{'' if rank == '0' else f' (process {rank})'}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `camp predict ... | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        kept = "what was done is kept, and `camp run --resume FOLDER` continues."
        state = "nothing was changed." if name in WORKSPACE_COMMANDS else kept
        print(f"camp: interrupted; {stop if str(stop) else state}", file=sys.stderr)
        return 130


def _run(name: str, words: list[str]) -> int:
    """Import the function of a command and call it."""
    if name not in COMMANDS:
        raise CampError(f'There is no command "{name}"; the commands are {", ".join(COMMANDS)}.')
    command: Callable[..., Any] = getattr(importlib.import_module(f"camp.cli.{name}"), name)
    if name in PARSING_COMMANDS:
        return int(command(words))
    import tyro

    tyro.cli(command, args=words, prog=f"camp {name}")
    return 0
