"""Which category a label means, and what becomes of pictures that come again."""

import numpy as np
from small_knowledge import EACH, knowledge

from camp.app.workspace.category_ids import find_links, number_labels, split_repeated
from camp.app.workspace.decisions import Discarded, Merged
from camp.app.workspace.knowledge import DISCARDED, REVIEWED
from camp.app.workspace.report import Link
from camp.core.types import UNLABELLED

OLD = [1, 2, 3, 4]


def test_labels_of_known_names() -> None:
    found = number_labels(knowledge(), OLD, ["robin", None, "heron", "robin"], [])
    assert found.ids == OLD
    assert found.labels.tolist() == [1, UNLABELLED, 0, 1]
    assert found.names == {}


def test_new_names_get_new_ids_in_the_order_they_come() -> None:
    found = number_labels(knowledge(), OLD, ["wren", "crow", "wren", "heron"], [])
    assert found.ids == [*OLD, 5, 6]
    assert found.labels.tolist() == [4, 5, 4, 0]
    assert found.names == {5: "wren", 6: "crow"}


def test_new_ids_begin_above_all_that_were_ever_used() -> None:
    known = Merged(category=4, into=1).apply(knowledge())
    known.highest_made_id = 7
    found = number_labels(known, [1, 2, 3], ["wren"], [])
    assert found.ids == [1, 2, 3, 8]


def test_a_category_without_pictures_is_found_by_its_name() -> None:
    known = knowledge().assign(range(EACH), 2)  # heron has none any more
    found = number_labels(known, [2, 3, 4], [None, "heron"], [])
    assert found.ids == [2, 3, 4, 1]
    assert found.labels.tolist() == [UNLABELLED, 3]
    assert found.names == {}


def test_the_name_of_an_ended_category_begins_a_new_one() -> None:
    for known in (Discarded(category=2).apply(knowledge()), Merged(category=2, into=1).apply(knowledge())):
        found = number_labels(known, [1, 3, 4], ["robin"], [])
        assert found.ids == [1, 3, 4, 5]
        assert found.names == {5: "robin"}


def test_a_link_gives_the_name_to_the_old_category() -> None:
    found = number_labels(knowledge(), OLD, ["wren", None, "wren"], [Link(3, "wren", 0.9)])
    assert found.ids == OLD
    assert found.labels.tolist() == [2, UNLABELLED, 2]
    assert found.names == {3: "wren"}


def test_a_first_batch() -> None:
    none = knowledge()
    none.categories = {}
    found = number_labels(none, [], ["wren", None], [])
    assert found.ids == [1]
    assert found.labels.tolist() == [0, UNLABELLED]


def test_a_name_is_linked_to_the_category_that_most_of_its_pictures_look_like() -> None:
    names = ["wren"] * 5
    assert find_links(knowledge(), OLD, names, [2, 2, 2, 0, DISCARDED]) == [Link(3, "wren", 0.6)]
    assert find_links(knowledge(), OLD, names, [2, 2, 3, 0, DISCARDED]) == []  # too few of them
    assert find_links(knowledge(), OLD, names, [DISCARDED] * 5) == []
    assert find_links(knowledge(), OLD, [None] * 5, [2] * 5) == []


def test_a_category_that_has_a_name_gets_no_other() -> None:
    assert find_links(knowledge(), OLD, ["wren"] * 3, [0, 0, 0]) == []
    assert (
        find_links(knowledge(), OLD, ["heron"] * 3, [2, 2, 2]) == []
    )  # nor a name that is taken a second category


def test_two_names_for_one_category_go_to_the_one_that_agrees_more() -> None:
    names = ["wren"] * 4 + ["crow"] * 4
    nearest = [2, 2, 2, 0, 2, 2, 2, 2]
    assert find_links(knowledge(), OLD, names, nearest) == [Link(3, "crow", 1.0)]
    assert find_links(knowledge(), OLD, names[::-1], nearest) == [Link(3, "wren", 1.0)]


def test_pictures_that_come_again_are_those_that_are_known() -> None:
    known = knowledge().assign([9], 4, REVIEWED).assign([14], DISCARDED, REVIEWED)
    coming = np.array([[row] * 16 for row in (0, 2, 9, 14, 200)], dtype=np.uint8)
    # 0 had a label, 2 was found by clustering, 9 was moved by a person, 14 discarded, 200 is new.
    stays, counts = split_repeated(known, coming, [None] * 5)
    assert stays.tolist() == list(range(16))
    assert counts.tolist() == [4]


def test_a_label_that_nobody_gave_before_counts() -> None:
    known = knowledge().assign([9], 4, REVIEWED).assign([14], DISCARDED, REVIEWED)
    coming = np.array([[row] * 16 for row in (0, 2, 9, 14)], dtype=np.uint8)
    # heron again; heron for what was only found to be one; and for what a person moved elsewhere or discarded.
    stays, counts = split_repeated(known, coming, ["heron"] * 4)
    assert stays.tolist() == [row for row in range(16) if row not in (2, 9, 14)]
    assert counts.tolist() == [1, 2, 3]


def test_nothing_comes_again() -> None:
    stays, counts = split_repeated(knowledge(), np.full((2, 16), 99, np.uint8), [None, "heron"])
    assert stays.tolist() == list(range(16))
    assert counts.tolist() == [0, 1]
