"""What the commands over a workspace have in common."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import tyro

from camp.core.errors import CampError
from camp.core.progress import Bar, Progress

WorkspaceFolder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORKSPACE")]
FalseAlarms = Annotated[float, tyro.conf.arg(metavar="RATE")]
Pictures = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PICTURES")]


def given_path(word: str, name: str) -> Path:
    """Return the path that the option or argument `name` gives; an empty word would mean the present folder.

    >>> given_path("runs/first", "--out").as_posix()
    'runs/first'
    """
    if not word.strip():
        raise CampError(f"{name} is empty; give the name of a file or folder.")
    return Path(word)


def starting(quiet: bool = False) -> AbstractContextManager[Bar]:
    """Show progress during imports that take seconds."""
    return Progress(quiet).track("Starting", 1)
