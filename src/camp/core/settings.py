"""One schema for settings, whatever they are read from.

Settings are frozen dataclasses, possibly nested, with a docstring below each field. tyro turns them into
command-line options; this module reads the same fields from JSON files, keyword arguments, TOML files and single
words of a command line, and pydantic checks every value against the type of its field. A plain field is an option
under its own name, however deeply it is nested: `epochs` sets `settings.training.epochs`.
"""

import dataclasses
import difflib
import functools
import os
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from camp.core.errors import CampError

DOES_NOT_CHANGE_RESULT: Mapping[str, Any] = MappingProxyType({"changes_result": False})
"""Metadata of fields that say where data is or where work is done: `field(metadata=DOES_NOT_CHANGE_RESULT)`."""


class Settings(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Option:
    """A plain field of settings."""

    name: str
    type: Any
    default: Any
    changes_result: bool = True

    @property
    def flag(self) -> str:
        """The option on a command line, such as `--batch-size`."""
        return as_flag(self.name)

    def check(self, value: object) -> Any:
        """Check a value of a program or of a file; numbers of NumPy and paths become plain values.

        >>> Option("epochs", int, 1).check(3)
        3
        """
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        value = value.item() if isinstance(value, np.generic) else value
        value = tuple(value) if isinstance(value, list) else value
        try:
            return _adapter(self.type).validate_python(value, strict=True)
        except ValidationError:
            raise self._error(value) from None

    def parse(self, word: str) -> Any:
        """Read a value from a word of a command line.

        >>> Option("tasks", int | None, None).parse("3"), Option("data", str | None, None).parse("2023")
        (3, '2023')
        """
        if word == "None" and type(None) in typing.get_args(self.type):
            return None
        try:
            return _adapter(self.type).validate_strings(word)
        except ValidationError:
            raise self._error(word) from None

    def _error(self, value: object) -> CampError:
        return CampError(f"{self.name} takes {_describe(self.type)}, not {value!r}.")


def as_flag(name: str) -> str:
    """Return the command-line option of a field.

    >>> as_flag("batch_size")
    '--batch-size'
    """
    return f"--{name.replace('_', '-')}"


def options_of(settings: Settings) -> dict[str, Option]:
    """Return all plain fields of settings by name, with the values in `settings` as defaults."""
    found: dict[str, Option] = {}
    for option in _fields(settings):
        value = option.default
        found |= options_of(value) if _nested(value) else {option.name: option}
    return found


def with_options(settings: S, values: Mapping[str, object]) -> S:
    """Return `settings` with the options in `values`, which are named without regard to nesting.

    Raises:
        CampError: if an option does not exist or has a value of another type.
    """
    check_names(values, options_of(settings))
    changes: dict[str, Any] = {}
    for option in _fields(settings):
        if _nested(option.default):
            inner = {name: values[name] for name in options_of(option.default) if name in values}
            changes[option.name] = with_options(option.default, inner)
        elif option.name in values:
            changes[option.name] = option.check(values[option.name])
    return dataclasses.replace(settings, **changes)


def with_json(settings: S, values: Mapping[str, Any]) -> S:
    """Return `settings` with the nested `values` of a JSON file; what the file lacks stays as it is.

    Raises:
        CampError: if the file has a field that does not exist here, or a value of another type.
    """
    fields = {option.name: option for option in _fields(settings)}
    if not isinstance(values, Mapping):
        raise CampError(f"Settings are values by name ({', '.join(fields)}), not {values!r}.")
    check_names(values, fields)
    changes: dict[str, Any] = {}
    for name, value in values.items():
        nested = fields[name].default
        changes[name] = with_json(nested, value) if _nested(nested) else fields[name].check(value)
    return dataclasses.replace(settings, **changes)


def result_values(settings: Settings) -> dict[str, Any]:
    """Return the nested values that decide what comes out, without those that are None.

    Options that are None are left out so that a new option whose default is None changes no existing value.
    """
    found: dict[str, Any] = {}
    for option in _fields(settings):
        if _nested(option.default):
            found[option.name] = result_values(option.default)
        elif option.default is not None and option.changes_result:
            found[option.name] = option.default
    return found


def check_names(names: Iterable[str], known: Iterable[str], owner: str = "") -> None:
    """Refuse a name that is not among the options `known` of `owner`, with the nearest one as a hint."""
    known = list(known)
    for name in names:
        if name not in known:
            of = f" for {owner}" if owner else ""
            raise CampError(f'There is no option "{name}"{of}{did_you_mean(name, known)}')


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name.

    >>> did_you_mean("epoch", ["epochs", "seed"]), did_you_mean("zyx", ["epochs"])
    ('; did you mean epochs?', '.')
    """
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else "."


def describe_error(error: ValidationError) -> str:
    """Return the first fault that pydantic found, as a sentence without a full stop."""
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}" if place else str(fault["msg"])


def _fields(settings: Settings) -> Iterable[Option]:
    """Yield each field with its value as default; that of a nested field is a dataclass."""
    hints = _hints(type(settings))
    for field in dataclasses.fields(settings):
        changes_result = field.metadata.get("changes_result", True)
        yield Option(field.name, hints[field.name], getattr(settings, field.name), changes_result)


def _nested(value: object) -> bool:
    return dataclasses.is_dataclass(value)


_hints = functools.cache(typing.get_type_hints)
_adapter = functools.cache(TypeAdapter)


def _describe(annotation: Any) -> str:
    """Describe a type in words.

    >>> _describe(float | None), _describe(Literal["a", "b"])
    ('a number or None', "'a' or 'b'")
    """
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is Literal:
        return " or ".join(map(repr, inner))
    if inner:
        return " or ".join(map(_describe, inner))
    words = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}
    return words.get(annotation, "None")
