"""Settings read from programs, files and words of a command line, by one schema."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from camp.core.errors import CampError
from camp.core.settings import (
    DOES_NOT_CHANGE_RESULT,
    Option,
    options_of,
    result_values,
    with_json,
    with_options,
)


@dataclass(frozen=True)
class Inner:
    steps: int = 10
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise CampError("steps must be at least 1.")


@dataclass(frozen=True)
class Outer:
    mode: Literal["fast", "exact"] = "fast"
    data: str | None = field(default=None, metadata=DOES_NOT_CHANGE_RESULT)
    sizes: tuple[int, ...] = (1, 2)
    inner: Inner = field(default_factory=lambda: Inner(steps=20))


def test_options_are_named_without_regard_to_nesting() -> None:
    options = options_of(Outer())
    assert list(options) == ["mode", "data", "sizes", "steps", "rate"]
    assert (options["steps"].default, options["steps"].flag) == (20, "--steps")
    assert [option.name for option in options.values() if not option.changes_result] == ["data"]
    assert with_options(Outer(), {"rate": 0.5}).inner == Inner(steps=20, rate=0.5)


def test_json_keeps_what_the_file_lacks_and_builds_tuples() -> None:
    read = with_json(Outer(), {"sizes": [3], "inner": {"rate": 0.5}})
    assert read == Outer(sizes=(3,), inner=Inner(steps=20, rate=0.5))


def test_only_values_that_change_the_result_are_compared() -> None:
    assert result_values(Outer(data="x")) == {"mode": "fast", "sizes": (1, 2), "inner": {"steps": 20}}


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (float, 1, 1.0),
        (float, np.float32(0.5), 0.5),
        (int, np.int64(3), 3),
        (str | None, Path("a/b"), "a/b"),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Literal["a", "b"] | None, None, None),
    ],
)
def test_values_of_programs_and_files(annotation: Any, given: object, value: object) -> None:
    checked = Option("x", annotation, None).check(given)
    assert checked == value
    assert type(checked) is type(value)


@pytest.mark.parametrize(
    ("annotation", "word", "value"),
    [
        (int | None, "3", 3),
        (int | None, "None", None),
        (float, "1e-3", 0.001),
        (str | None, "2023", "2023"),
        (str, "None", "None"),
        (bool, "False", False),
        (bool | None, "true", True),
        (Literal["a", "b"], "b", "b"),
    ],
)
def test_words_of_a_command_line(annotation: Any, word: str, value: object) -> None:
    parsed = Option("x", annotation, None).parse(word)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("annotation", "given", "sentence"),
    [
        (int, True, "x takes a whole number, not True."),
        (int, "3", "x takes a whole number, not '3'."),
        (int | None, 2.5, "x takes a whole number or None, not 2.5."),
        (float, "much", "x takes a number, not 'much'."),
        (bool, 0, "x takes True or False, not 0."),
        (str | None, 3, "x takes a text or None, not 3."),
        (Literal["a", "b"], "c", "x takes 'a' or 'b', not 'c'."),
    ],
)
def test_a_value_of_another_type_is_a_sentence(annotation: Any, given: object, sentence: str) -> None:
    with pytest.raises(CampError) as error:
        Option("x", annotation, None).check(given)
    assert str(error.value) == sentence


@pytest.mark.parametrize("word", ["three", "3.5", "", "None"])
def test_a_word_that_is_no_number_is_a_sentence(word: str) -> None:
    with pytest.raises(CampError) as error:
        Option("x", int, None).parse(word)
    assert str(error.value) == f"x takes a whole number, not {word!r}."


def test_contradictions_are_refused_by_the_settings_themselves() -> None:
    with pytest.raises(CampError, match="steps must be at least 1"):
        with_options(Outer(), {"steps": 0})
    with pytest.raises(CampError, match="steps must be at least 1"):
        with_json(Outer(), {"inner": {"steps": 0}})


def test_unknown_names_are_refused_with_a_hint() -> None:
    with pytest.raises(CampError, match=r'There is no option "step"; did you mean steps\?'):
        with_options(Outer(), {"step": 1})
    with pytest.raises(CampError, match=r'There is no option "rate"\.'):
        with_json(Outer(), {"rate": 1})  # it is nested in a file
