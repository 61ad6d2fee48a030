import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camp.app.inputs.names import INVISIBLE, MAX_LENGTH, check_name, near_misses
from camp.core.errors import CampError


@pytest.mark.parametrize(
    "name", ["heron", "grey heron", "Ardea/cinerea", "鷺", "x" * MAX_LENGTH, "category", "category 7b"]
)
def test_good_names_stay_as_they_are(name: str) -> None:
    assert check_name(name) == name


def test_blanks_around_a_name_and_accents_taken_apart_do_not_matter() -> None:
    assert check_name("\t he\u0301ron \n") == "h\u00e9ron"


@pytest.mark.parametrize(
    "name",
    [
        "heron\u200b",
        "\ufeffheron",
        "he\u00adron",
        "he\u200dron\ufe0f",
        "\u202enoreh\u202c"[::-1],
        "\u2067heron\u2069",
        "heron\u3164 ",
        "heron\U000e0041",
        "\u00a0heron\u2003",
    ],
)
def test_names_that_look_the_same_are_the_same(name: str) -> None:
    assert check_name(name) == "heron"


def test_every_kind_of_blank_is_a_blank() -> None:
    assert check_name("grey\u00a0heron") == check_name("grey\u2002heron") == "grey heron"


def test_accents_meet_when_what_is_between_them_is_removed() -> None:
    assert check_name("he\u034f\u0301ron") == "h\u00e9ron"


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text(st.characters(categories=["Cf", "Mn", "Lo", "Ll", "Zs", "So"]), max_size=8))
def test_nothing_invisible_is_left(name: str) -> None:
    try:
        checked = check_name(name)
    except CampError:
        return
    assert check_name(checked) == checked
    assert not INVISIBLE.search(checked)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "empty name"),
        ("  ", "empty name"),
        ("\u200b", "empty name"),
        ("\u202e\u3164", "empty name"),
        ("unknown\u200b", "choose a word other than"),
        ("x" * (MAX_LENGTH + 1), "at most 100 characters, this one has 101"),
        ("he\x07ron", "without control characters"),
        ("he\nron", "without control characters"),
        ("unlabelled", "choose a word other than"),
        ("UNLABELED", "choose a word other than"),
        (" Unknown ", "choose a word other than"),
        ("category 7", "categories without a name are called like this"),
        ("Category  12", "categories without a name are called like this"),
    ],
)
def test_bad_names_are_refused_with_a_sentence(name: str, words: str) -> None:
    with pytest.raises(CampError, match=words) as caught:
        check_name(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_a_checked_name_passes_the_check_again(name: str) -> None:
    try:
        checked = check_name(name)
    except CampError:
        return
    assert check_name(checked) == checked


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Herron", "heron"),
        ("HERON", "heron"),
        ("herons", "heron"),
        ("Grey heron", "grey_heron"),
        ("grey-heron", "greyheron"),
        ("heron1", "heron 1"),
        ("Blackfooted albatros", "Black_footed_Albatross"),
        ("Blank_footed_Albatruss", "Black_footed_Albatross"),
        ("flycacther", "flycatcher"),
        ("h\u00e9ronn", "he\u0301ron"),
    ],
)
def test_slips_of_the_pen_are_pointed_out(name: str, known: str) -> None:
    assert near_misses([name], ["cormorant", known, "zebra"]) == [
        f'"{name}" is new, and looks like "{known}": rename the folder if it is the same kind.'
    ]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("heron 1", "heron 2"),
        ("heron 12", "heron 1-2"),
        ("robin", "cabin"),
        ("001.Black_footed_Albatross", "002.Laysan_Albatross"),
        ("001.Albatross", "002.Albatross"),
        ("male heron", "female heron"),
        ("Parus major", "Parus minor"),
        ("photographs of the heron", "photographs of the robin"),
        ("C", "C++"),
        ("--", "__"),
        ("cat", "bat"),
    ],
)
def test_different_names_are_left_alone(name: str, known: str) -> None:
    assert near_misses([name], [known]) == []
    assert near_misses([name, known], []) == []


def test_names_that_are_known_exactly_are_not_near_misses() -> None:
    assert near_misses(["heron", "Heron", "heron"], ["Heron", "heron"]) == []


def test_two_new_names_are_pointed_out_once() -> None:
    assert near_misses(["heron", "Herron", "heron"], []) == [
        '"heron" and "Herron" are both new, and look alike: rename one folder if they are the same kind.'
    ]


def test_a_known_name_goes_before_a_new_one_and_the_likest_before_others() -> None:
    first, second = near_misses(["Herron", "herron"], ["heron", "herons"])
    assert '"Herron" is new, and looks like "heron"' in first
    assert '"herron" is new, and looks like "heron"' in second
    assert '"Herons" is new, and looks like "herons"' in near_misses(["Herons"], ["heron", "herons"])[0]


def test_order_does_not_matter_and_every_dropped_letter_is_found_among_a_thousand() -> None:
    draw = random.Random(0)
    known = ["".join(draw.choices(string.ascii_lowercase, k=12)) for _ in range(1000)]
    names = [name[:5] + name[6:] for name in known]
    found = near_misses(names, known)
    assert len(found) == 1000
    assert near_misses(names[::-1], known[::-1]) == found
    assert f'"{names[0]}" is new, and looks like "{known[0]}"' in "\n".join(found)
