"""CSV that a spreadsheet shows as it is: no cell is executed as a formula.

Spreadsheets take a cell that begins with one of `= + - @`, a tab or a line break as a formula, and names of files and
categories may come from strangers. Such a cell gets an apostrophe in front, which spreadsheets read as "text follows".
"""

import csv
import re
from collections.abc import Iterable

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
"""Beginning of a cell that is escaped; apostrophes before it are counted, so that escaping can be reversed."""
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return `rows` as CSV; text that a spreadsheet would execute is escaped, numbers stay numbers.

    >>> csv_text([("file", "share"), ("=1+1.jpg", -0.5), ("-3", None)])
    "file,share\\n'=1+1.jpg,-0.5\\n-3,\\n"
    """
    lines = _Lines()
    # The writer quotes a carriage return only if it is part of the line terminator.
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerows([escape_cell(cell) for cell in row] for row in rows)
    return "".join(f"{line[:-2]}\n" for line in lines)


class _Lines(list[str]):
    """Lines of a `csv.writer`, which writes each by one call."""

    write = list.append


def escape_cell(cell: object) -> object:
    """Return a cell that no spreadsheet executes; numbers, also in text, are returned as they are."""
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def unescape_cell(cell: str) -> str:
    """Return the text that `escape_cell` was given.

    >>> unescape_cell("'=1+1.jpg"), unescape_cell("it's"), unescape_cell("-3")
    ('=1+1.jpg', "it's", '-3')
    """
    return cell[1:] if _ESCAPED.match(cell) else cell
