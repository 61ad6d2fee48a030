"""What each decision changes, what it leaves alone, and which are refused."""

import numpy as np
import pytest
from small_knowledge import EACH, knowledge, state

from camp.app.workspace.knowledge import FOUND, LABEL, NOWHERE, PERSON, Category, Knowledge
from camp.core.errors import CampError


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
    assert knowledge().renamed(3, "2").find("2").id == 3


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
    after = known.renamed(3, "wren")
    assert after.find("wren").id == 3
    assert after.renamed(3, None).categories == known.categories
    assert known.categories[3].name is None  # the old knowledge stays as it was


def test_merging_moves_pictures_and_ends_a_category() -> None:
    known = knowledge()
    after = known.merged(3, 1)
    assert after.counts() == {1: 2 * EACH, 2: EACH, 4: EACH}
    assert after.categories[3].merged_into == 1
    assert not after.categories[3].live
    assert (
        after.pictures.told.tolist() == known.pictures.told.tolist()
    )  # nobody looked at the single pictures
    assert after.next_id() == 5
    with pytest.raises(CampError, match="category 3 was merged into category 1"):
        after.renamed(3, "wren")


def test_a_name_survives_a_merge() -> None:
    assert knowledge().merged(1, 3).named() == {"heron": 3, "robin": 2}
    assert knowledge().merged(1, 2).named() == {"robin": 2}  # its own name counts


def test_the_name_of_a_merged_category_is_free_again() -> None:
    assert knowledge().merged(1, 2).renamed(3, "heron").named() == {"robin": 2, "heron": 3}


def test_what_is_different_stays_different() -> None:
    after = knowledge().told_apart(3, 1).told_apart(1, 2).told_apart(1, 3)
    assert after.apart == {(1, 3), (1, 2)}
    assert after.categories == knowledge().categories
    with pytest.raises(CampError, match="heron can not differ from itself; choose two categories"):
        after.told_apart(1, 1)
    with pytest.raises(CampError, match="There is no category 9"):
        after.told_apart(1, 9)


def test_moving_pictures() -> None:
    known = knowledge()
    after = known.moved([0, 1, 1, 15], 2)
    assert after.rows_of(2).tolist() == [0, 1, 4, 5, 6, 7, 15]
    assert after.pictures.told[[0, 1, 15]].tolist() == [PERSON] * 3
    assert after.pictures.told[[2, 4, 6]].tolist() == [FOUND, LABEL, FOUND]
    assert known.rows_of(2).tolist() == [4, 5, 6, 7]


def test_a_category_may_lose_all_its_pictures() -> None:
    after = knowledge().moved(range(EACH), 2)
    assert after.counts() == {1: 0, 2: 2 * EACH, 3: EACH, 4: EACH}
    assert after.find("heron").live


def test_pictures_become_a_category_of_their_own() -> None:
    after = knowledge().moved([8, 9], 5, made=True)
    assert after.categories[5] == Category(5, None, 1, "made")
    assert after.rows_of(5).tolist() == [8, 9]
    assert after.rows_of(3).tolist() == [10, 11]
    with pytest.raises(CampError, match="Category 5 exists already"):
        after.moved([0], 5, made=True)


def test_discarding_a_category() -> None:
    after = knowledge().discarded(2)
    assert after.pictures.category[4:8].tolist() == [NOWHERE] * 4
    assert 2 not in after.counts()
    assert "robin" not in after.named()
    with pytest.raises(CampError, match="robin was discarded"):
        after.find(2)


def test_discarding_pictures() -> None:
    after = knowledge().without([3, 7])
    assert after.pictures.category[[3, 7]].tolist() == [NOWHERE] * 2
    assert after.pictures.told[[3, 7]].tolist() == [PERSON] * 2
    assert after.counts() == {1: 3, 2: 3, 3: 4, 4: 4}
    assert after.moved([3], 4).counts() == {1: 3, 2: 3, 3: 4, 4: 5}  # and back


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda known: known.renamed(9, "wren"), "There is no category 9."),
        (lambda known: known.merged(9, 1), "There is no category 9."),
        (lambda known: known.merged(1, 9), "There is no category 9."),
        (lambda known: known.merged(1, 1), "heron can not be merged with itself; choose two categories."),
        (lambda known: known.moved([0], 9), "There is no category 9."),
        (lambda known: known.moved([0], 2, made=True), "Category 2 exists already; a new one gets a new id."),
        (lambda known: known.moved([], 2), "No picture was chosen; choose at least one."),
        (lambda known: known.moved([16, 3], 2), "There are pictures 0 to 15, not 16."),
        (lambda known: known.without([-1, 3]), "There are pictures 0 to 15, not -1."),
        (lambda known: known.discarded(9), "There is no category 9."),
        (lambda known: known.discarded(3).merged(1, 3), "category 3 was discarded."),
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
    known = knowledge().merged(4, 1)
    assert known.next_id() == 5
    known.used = 8  # by a decision that was undone
    assert known.next_id() == 9
    assert known.renamed(1, "egret").next_id() == 9


def test_nothing_known_yet() -> None:
    pictures = knowledge().pictures
    none = Knowledge(0, {}, pictures, knowledge().metric, knowledge().sure)
    assert none.next_id() == 1
    assert none.live() == []
    assert none.counts() == {}
    assert isinstance(none.rows_of(1), np.ndarray)
