"""Holding a value read from JSON against a type."""

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict


def check(value: Any, expected: Any, where: str = "") -> str | None:
    """What is wrong with `value`, in a few words, or None if it is of the type `expected`.

    Knows typed dictionaries (further keys are allowed), lists, dictionaries, unions, literals, plain types.

    >>> check([1, 2.5], list[float])
    >>> check({"a": [1, "x"]}, dict[str, list[int]])
    "a[1] is 'x', expected int"
    """
    origin, inner = get_origin(expected), get_args(expected)
    if origin in (Union, UnionType):
        faults = [check(value, each, where) for each in inner]
        if None in faults:
            return None
        # The fault that names the deepest place is the one that helps.
        return max((fault for fault in faults if fault), key=lambda fault: len(fault.split(" ")[0]))
    if origin is Literal:
        return None if value in inner else _wrong(value, " or ".join(map(repr, inner)), where)
    if is_typeddict(expected):
        if not isinstance(value, dict):
            return _wrong(value, "an object", where)
        missing = sorted(expected.__required_keys__ - value.keys())
        if missing:
            return f"{where or 'it'} lacks {missing[0]!r}"
        hints = get_type_hints(expected)
        return _first(
            check(value[key], hints[key], f"{where}.{key}".strip(".")) for key in hints if key in value
        )
    if origin is list:
        if not isinstance(value, list):
            return _wrong(value, "a list", where)
        return _first(check(entry, inner[0], f"{where}[{i}]") for i, entry in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            return _wrong(value, "an object", where)
        return _first(check(entry, inner[1], f"{where}.{key}".strip(".")) for key, entry in value.items())
    accepted = (int, float) if expected is float else expected
    right = isinstance(value, accepted) and not isinstance(value, bool)
    return None if right else _wrong(value, "null" if expected is type(None) else expected.__name__, where)


def _wrong(value: Any, expected: str, where: str) -> str:
    shown = repr(value)
    return f"{where or 'it'} is {shown if len(shown) < 40 else shown[:36] + ' ...'}, expected {expected}"


def _first(faults: Any) -> str | None:
    return next((fault for fault in faults if fault), None)
