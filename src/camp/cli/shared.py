"""What the commands over a workspace have in common."""

from contextlib import AbstractContextManager
from typing import Annotated

import tyro

from camp.core.progress import Bar, Progress

WorkspaceFolder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORKSPACE")]
FalseAlarms = Annotated[float, tyro.conf.arg(metavar="RATE")]
Pictures = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PICTURES")]


def starting(quiet: bool = False) -> AbstractContextManager[Bar]:
    """Show progress during imports that take seconds."""
    return Progress(quiet).track("Starting", 1)
