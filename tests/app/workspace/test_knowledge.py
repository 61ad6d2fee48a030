"""What each decision changes, what it leaves alone, and which are refused."""

import numpy as np
import pytest
from small_knowledge import EACH, knowledge, state

from camp.app.workspace.decisions import (
    Decision,
    Discarded,
    Distinguished,
    Merged,
    Moved,
    Named,
)
from camp.app.workspace.knowledge import CLUSTERED, DISCARDED, LABELLED, REVIEWED, Category, Knowledge
from camp.core.errors import CampError


def applied(known: Knowledge, *decisions: Decision) -> Knowledge:
    for decision in decisions:
        known = decision.apply(known)
    return known


def test_categories_by_name_and_by_number() -> None:
    known = knowledge()
    assert known.named() == {"heron": 1, "robin": 2}
    assert known.counts() == {1: EACH, 2: EACH, 3: EACH, 4: EACH}
    assert (
        known.find("heron").id == known.find(1).id == known.find("1").id == known.find("category 1").id == 1
    )
    assert known.find("category 3").title == "category 3"
    assert known.find("robin").title == "robin"
    assert known.next_id() == 5


def test_a_name_that_is_a_number_is_a_name() -> None:
    assert applied(knowledge(), Named(category=3, name="2")).find("2").id == 3


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("wren", 'There is no category called "wren"; `camp status` lists them.'),
        ("²", 'There is no category called "²"'),
        ("", 'There is no category called ""'),
        (9, "There is no category 9."),
        ("category 9", "There is no category 9."),
        (-1, 'There is no category called "-1"'),
    ],
)
def test_what_is_not_there_is_a_sentence(what: str | int, said: str) -> None:
    with pytest.raises(CampError) as refused:
        knowledge().find(what)
    assert said in str(refused.value)


def test_a_new_name() -> None:
    known = knowledge()
    after = applied(known, Named(category=3, name="wren"))
    assert after.find("wren").id == 3
    assert applied(after, Named(category=3, name=None)).categories == known.categories
    assert known.categories[3].name is None  # the old knowledge stays as it was


def test_merging_moves_pictures_and_ends_a_category() -> None:
    known = knowledge()
    after = applied(known, Merged(category=3, into=1))
    assert after.counts() == {1: 2 * EACH, 2: EACH, 4: EACH}
    assert after.categories[3].merged_into == 1
    assert not after.categories[3].live
    assert (
        after.images.source.tolist() == known.images.source.tolist()
    )  # nobody looked at the single pictures
    assert after.next_id() == 5
    with pytest.raises(CampError, match="category 3 was merged into category 1"):
        applied(after, Named(category=3, name="wren"))


def test_a_name_survives_a_merge() -> None:
    assert applied(knowledge(), Merged(category=1, into=3)).named() == {"heron": 3, "robin": 2}
    assert applied(knowledge(), Merged(category=1, into=2)).named() == {"robin": 2}  # its own name counts


def test_the_name_of_a_merged_category_is_free_again() -> None:
    assert applied(knowledge(), Merged(category=1, into=2), Named(category=3, name="heron")).named() == {
        "robin": 2,
        "heron": 3,
    }


def test_what_is_different_stays_different() -> None:
    after = applied(
        knowledge(),
        Distinguished(category=3, other=1),
        Distinguished(category=1, other=2),
        Distinguished(category=1, other=3),
    )
    assert after.distinct == {(1, 3), (1, 2)}
    assert after.categories == knowledge().categories
    with pytest.raises(CampError, match="heron cannot differ from itself; choose two categories"):
        applied(after, Distinguished(category=1, other=1))
    with pytest.raises(CampError, match="There is no category 9"):
        applied(after, Distinguished(category=1, other=9))


def test_moving_pictures() -> None:
    known = knowledge()
    after = applied(known, Moved(rows=[0, 1, 1, 15], into=2))
    assert after.rows_of(2).tolist() == [0, 1, 4, 5, 6, 7, 15]
    assert after.images.source[[0, 1, 15]].tolist() == [REVIEWED] * 3
    assert after.images.source[[2, 4, 6]].tolist() == [CLUSTERED, LABELLED, CLUSTERED]
    assert known.rows_of(2).tolist() == [4, 5, 6, 7]


def test_a_category_may_lose_all_its_pictures() -> None:
    after = applied(knowledge(), Moved(rows=list(range(EACH)), into=2))
    assert after.counts() == {1: 0, 2: 2 * EACH, 3: EACH, 4: EACH}
    assert after.find("heron").live


def test_pictures_become_a_category_of_their_own() -> None:
    after = applied(knowledge(), Moved(rows=[8, 9], into=5, made=True))
    assert after.categories[5] == Category(5, None, 1, "made")
    assert after.rows_of(5).tolist() == [8, 9]
    assert after.rows_of(3).tolist() == [10, 11]
    with pytest.raises(CampError, match="Category 5 exists already"):
        applied(after, Moved(rows=[0], into=5, made=True))


def test_discarding_a_category() -> None:
    after = applied(knowledge(), Discarded(category=2))
    assert after.images.category[4:8].tolist() == [DISCARDED] * 4
    assert 2 not in after.counts()
    assert "robin" not in after.named()
    with pytest.raises(CampError, match="robin was discarded"):
        after.find(2)


def test_discarding_pictures() -> None:
    after = applied(knowledge(), Discarded(rows=[3, 7]))
    assert after.images.category[[3, 7]].tolist() == [DISCARDED] * 2
    assert after.images.source[[3, 7]].tolist() == [REVIEWED] * 2
    assert after.counts() == {1: 3, 2: 3, 3: 4, 4: 4}
    assert applied(after, Moved(rows=[3], into=4)).counts() == {1: 3, 2: 3, 3: 4, 4: 5}  # and back


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda known: applied(known, Named(category=9, name="wren")), "There is no category 9."),
        (lambda known: applied(known, Merged(category=9, into=1)), "There is no category 9."),
        (lambda known: applied(known, Merged(category=1, into=9)), "There is no category 9."),
        (
            lambda known: applied(known, Merged(category=1, into=1)),
            "heron cannot be merged with itself; choose two categories.",
        ),
        (lambda known: applied(known, Moved(rows=[0], into=9)), "There is no category 9."),
        (
            lambda known: applied(known, Moved(rows=[0], into=2, made=True)),
            "Category 2 exists already; a new one gets a new id.",
        ),
        (lambda known: applied(known, Moved(rows=[], into=2)), "No picture was chosen; choose at least one."),
        (lambda known: applied(known, Moved(rows=[16, 3], into=2)), "There are pictures 0 to 15, not 16."),
        (lambda known: known.assign([-1, 3], DISCARDED), "There are pictures 0 to 15, not -1."),
        (lambda known: applied(known, Discarded(category=9)), "There is no category 9."),
        (
            lambda known: applied(known, Discarded(category=3), Merged(category=1, into=3)),
            "category 3 was discarded.",
        ),
    ],
)
def test_what_can_not_be_decided_is_a_sentence(change, said: str) -> None:  # type: ignore[no-untyped-def]
    known = knowledge()
    before = state(known)
    with pytest.raises(CampError) as refused:
        change(known)
    assert str(refused.value) == said
    assert state(known) == before


def test_ids_are_not_used_again() -> None:
    known = applied(knowledge(), Merged(category=4, into=1))
    assert known.next_id() == 5
    known.highest_made_id = 8  # by a decision that was undone
    assert known.next_id() == 9
    assert applied(known, Named(category=1, name="egret")).next_id() == 9


def test_nothing_known_yet() -> None:
    images = knowledge().images
    none = Knowledge(0, {}, images, knowledge().metric, knowledge().calibration)
    assert none.next_id() == 1
    assert none.live() == []
    assert none.counts() == {}
    assert isinstance(none.rows_of(1), np.ndarray)
