"""Cells of CSV files: never a formula, numbers as they are, and readable again."""

import ast
import csv
import io
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import camp
from camp.core.csv_output import csv_text, escape_cell, unescape_cell

SOURCES = Path(camp.__file__).parent


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1", "\n=1", "=", "-", "-1_0", "+١"],
)
def test_a_formula_becomes_text(text: str) -> None:
    assert escape_cell(text) == f"'{text}"


@pytest.mark.parametrize(
    "value", [-1, -0.5, 3, None, True, "-1", "+2.5", "-1e-05", "heron", "a=b", "1-2", "'quoted'", " =1", ""]
)
def test_numbers_and_other_text_stay(value: object) -> None:
    assert escape_cell(value) is value


@given(st.text(alphabet="'=+-@\t\r\n1a", max_size=6))
@example("'=1")
@example("''-5")
def test_what_was_escaped_is_read_again(text: str) -> None:
    assert unescape_cell(str(escape_cell(text))) == text


@given(
    st.lists(st.lists(st.text(alphabet="'=+-@\t\r\n1a,;\"", min_size=1, max_size=6), min_size=1), min_size=1)
)
def test_a_table_is_read_again(rows: list[list[str]]) -> None:
    read = csv.reader(io.StringIO(csv_text(rows), newline=""))
    assert [[unescape_cell(cell) for cell in row] for row in read] == rows


def test_every_csv_is_written_here() -> None:
    """Another writer would forget to escape."""
    writers = [
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("writer", "DictWriter")
    ]
    assert writers == ["core/csv_output.py"]
