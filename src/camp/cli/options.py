"""Options of `camp run` in a list of words, for commands that take them for several methods at once."""

import argparse
import typing
from collections.abc import Container, Mapping, Sequence
from typing import Any, NoReturn

from camp.core.errors import CampError
from camp.core.settings import Option


class Parser(argparse.ArgumentParser):
    """A parser of some of the options in a list of words; mistakes are sentences."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        """Raise the mistake."""
        raise CampError(f"{message[0].upper()}{message[1:]}.")


def given_options(
    words: Sequence[str], options: Mapping[str, Option], lists: Container[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Return the values of the options that are given, and the words that belong to none of them.

    Args:
        words: `--name value`, `--name=value`, and for switches `--name` and `--no-name`.
        options: The options by name.
        lists: Names of options that take several values, separated by commas and returned as a tuple.

    >>> given_options(["--epochs=3", "--x"], {"epochs": Option("epochs", int, 1)})
    ({'epochs': 3}, ['--x'])
    """
    parser = Parser()
    for name, option in options.items():
        if bool in (option.type, *typing.get_args(option.type)):
            parser.add_argument(option.flag, dest=name, nargs="?", const="True")
            parser.add_argument(f"--no-{option.flag[2:]}", dest=name, action="store_const", const="False")
        else:
            parser.add_argument(option.flag, dest=name)
    found, rest = parser.parse_known_args(list(words))
    values: dict[str, Any] = {}
    for name, word in vars(found).items():
        parts = word.split(",") if name in lists else [word]
        parsed = tuple(options[name].parse(part) for part in parts)
        values[name] = parsed if len(parsed) > 1 else parsed[0]
    return values, rest


def unknown_option(rest: Sequence[str]) -> str | None:
    """Return the first unknown option among words that are left over; a stray word is a mistake.

    >>> unknown_option(["--zyx=1"]), unknown_option([])
    ('--zyx', None)
    """
    if rest and not rest[0].startswith("--"):
        raise CampError(f'"{rest[0]}" belongs to no option; leave it out.')
    return rest[0].split("=")[0] if rest else None
