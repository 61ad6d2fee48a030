"""Validation of category names and labels, and detection of probable misspellings."""

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

from camp.app.inputs.base import InputError
from camp.core.errors import CampError

MAX_LENGTH = 100
"""Maximum length of a name, in characters."""
UNLABELLED_FOLDERS = ("unlabelled", "unlabeled")
"""Names of folders of images without a label, in upper or lower case."""
RESERVED = (*UNLABELLED_FOLDERS, "unknown")
"""Words with a special meaning, in upper or lower case."""
MIN_SIMILARITY = 0.85
"""Smallest `SequenceMatcher.ratio` of two spellings of a name."""
MAX_EDITS = 2
"""Maximum number of wrong, missing or additional letters between two spellings."""
INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    r"\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that are not shown (Default_Ignorable_Code_Point of Unicode), those that change the direction of text
among them."""
_BINS = 64
"""Letters are counted by their code modulo this; that letters share a bin costs time, never a match."""


def normalised(name: str) -> str:
    r"""Return the one spelling of names that look the same, or differ in how accents are stored only.

    Accents are composed (NFC), characters that are not shown are removed, and so are blanks at the ends.

    >>> normalised(" heron\u200b") == normalised("heron")
    True
    """
    seen = INVISIBLE.sub("", name)
    blanks = "".join(" " if unicodedata.category(letter) == "Zs" else letter for letter in seen)
    return unicodedata.normalize("NFC", blanks).strip()


def check_name(name: str) -> str:
    """Return the one spelling of a name (`normalised`), or raise a `CampError` if it is not valid.

    >>> check_name(" grey heron ")
    'grey heron'
    """
    name = normalised(name)
    if all(unicodedata.category(letter) in ("Cf", "Zs") for letter in name):
        raise CampError("A category cannot have an empty name: choose one that can be seen.")
    shown = repr(name if len(name) <= MAX_LENGTH else name[:40] + "…")
    if len(name) > MAX_LENGTH:
        advice = f"choose one of at most {MAX_LENGTH} characters, this one has {len(name)}"
    elif any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in name):
        advice = "choose one without control characters"
    elif name.casefold() in RESERVED:
        advice = f"choose a word other than {', '.join(RESERVED)}, which have a meaning of their own"
    elif re.fullmatch(r"category\s+\d+", name.casefold()):
        advice = "choose another, since categories without a name are called like this"
    else:
        return name
    raise CampError(f"{shown} cannot be the name of a category: {advice}.")


def read_label(value: object) -> tuple[str | None, bool]:
    """Return the name that a label stands for, None for unlabelled, and whether the label is an integer."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and np.isnan(value)) or value == -1:
        return None, False
    if isinstance(value, str):
        name = check_name(value)
        if name != value:
            raise InputError(f"The label {value!r} would be called {name!r}; give it in this form.")
        return name, False
    if not isinstance(value, int | float) or value != value // 1:
        raise InputError(
            f"Unknown label type: {value!r} is neither a name nor an integer; use -1 or None for unlabelled."
        )
    if value < 0:
        raise InputError(
            f"The label {value} is negative; -1 means unlabelled, and other negative numbers are discovered categories."
        )
    return str(int(value)), True


def near_misses(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return a sentence for each new name that is spelled much like a known one or like another new one.

    Names that differ in their digits are taken as different on purpose.

    >>> near_misses(["Herron", "robin"], ["heron", "cabin"])
    ['"Herron" is new, and looks like "heron": rename the folder if it is the same kind.']
    """
    old = sorted(set(known))
    new = sorted(set(names) - set(known))
    every = old + new
    folded = [_folded(name) for name in every]
    counts = _letter_counts(folded)
    sizes = counts.sum(axis=1)
    sentences = []
    for position in range(len(old), len(every)):
        # Each edit changes at most two counts, and the ratio is bounded by them as well: this leaves few pairs.
        apart = np.abs(counts[:position] - counts[position]).sum(axis=1)
        most = np.minimum(2 * MAX_EDITS, (1 - MIN_SIMILARITY) * (sizes[:position] + sizes[position]))
        alike = [
            (similarity, other)
            for other in np.flatnonzero(apart <= most).tolist()
            if re.findall(r"\d+", every[other]) == re.findall(r"\d+", every[position])
            and (similarity := _similarity(folded[position], folded[other])) >= MIN_SIMILARITY
        ]
        if alike:
            # A known name counts before one that is new itself, then the likest, then the first.
            _, other = max(alike, key=lambda found: (found[1] < len(old), found[0], -found[1]))
            name, like = every[position], every[other]
            advice = f'is new, and looks like "{like}": rename the folder if it is the same kind.'
            if other >= len(old):
                advice = (
                    f'and "{like}" are both new, and look alike: rename one folder if they are the same kind.'
                )
            sentences.append(f'"{name}" {advice}')
    return sentences


def _folded(name: str) -> str:
    """Remove case, blanks and punctuation; symbols stay, so that `C` is not `C++`."""
    letters = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in letters if unicodedata.category(letter)[0] not in "PZC")


def _letter_counts(folded: Sequence[str]) -> np.ndarray:
    """Count the letters of each name: (n, bins)."""
    counts = np.zeros((len(folded), _BINS), dtype=np.int16)
    for row, letters in zip(counts, folded):
        for letter in letters:
            row[ord(letter) % _BINS] += 1
    return counts


def _similarity(one: str, other: str) -> float:
    """Return the similarity of two names, or 0 if the difference is no typing error."""
    if one == other:
        return 1.0 if one else 0.0
    # A typing error seldom affects the first letter, but male and female, ripe and unripe differ there.
    if one[:1] != other[:1]:
        return 0.0
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    edits = sum(max(b - a, d - c) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal")
    return matcher.ratio() if edits <= MAX_EDITS else 0.0
