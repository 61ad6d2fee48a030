"""What the commands over a workspace have in common."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Annotated

import tyro

from camp.core.progress import Bar, Progress

WorkspaceFolder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORKSPACE")]
Pictures = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PICTURES")]


def command(function: Callable[..., int]) -> Callable[[list[str]], int]:
    """Make the command `camp NAME` of a function whose parameters are its options."""

    def run(words: list[str]) -> int:
        return tyro.cli(function, args=words, prog=f"camp {function.__name__}")

    return run


def starting(quiet: bool = False) -> AbstractContextManager[Bar]:
    """Show progress during imports that take seconds."""
    return Progress(quiet).track("Starting", 1)
