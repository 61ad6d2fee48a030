"""A split as a file, checked against its data, and without some of its images."""

import json

import pytest
from toys import toy, toy_split

from camp.core.errors import CampError
from camp.data.scenario import SCENARIO_PRESETS
from camp.data.split import Split


@pytest.mark.parametrize("preset", SCENARIO_PRESETS)
def test_a_split_survives_the_round_trip_through_json(preset):
    split = toy_split(
        preset,
        **({"tasks": SCENARIO_PRESETS[preset]["tasks"]} if "tasks" in SCENARIO_PRESETS[preset] else {}),
    )
    text = json.dumps(split.to_json(), ensure_ascii=False)
    again = Split.from_json(json.loads(text))
    assert again == split
    assert json.dumps(again.to_json(), ensure_ascii=False) == text


def test_a_split_file_is_organised_by_class_name():
    value = toy_split("gccd").to_json()
    assert value["tasks"][0]["novel"] == ["class_004"]
    assert list(value["tasks"][0]["labelled"]) == ["class_000", "class_001", "class_002", "class_003"]
    assert value["tasks"][0]["unlabelled"]["class_004"][0].startswith("train/004/")


@pytest.mark.parametrize(
    "value", [None, [], {}, {"classes": ["a"]}, {"classes": ["a"], "tasks": [{"labelled": ["x"]}]}]
)
def test_other_json_is_refused(value):
    with pytest.raises(CampError, match="not a split"):
        Split.from_json(value)


def test_a_split_that_contradicts_itself_is_refused():
    value = toy_split("gccd").to_json()
    value["tasks"][1]["novel"] = []
    with pytest.raises(CampError, match="Task 1 of the split calls other classes"):
        Split.from_json(value)
    value = toy_split("gccd").to_json()
    value["scenario"]["speed"] = 3
    with pytest.raises(CampError, match="speed"):
        Split.from_json(value)


def changed(change) -> Split:
    value = toy_split("gccd").to_json()
    change(value)
    return Split.from_json(value)


def train_on_a_test_image(value) -> None:
    value["tasks"][0]["unlabelled"]["class_000"].append("test/000/000.png")


def train_twice(value) -> None:
    value["tasks"][1]["unlabelled"]["class_000"] = value["tasks"][0]["unlabelled"]["class_000"]


def label_and_not(value) -> None:
    value["tasks"][0]["unlabelled"]["class_000"].append(value["tasks"][0]["labelled"]["class_000"][0])


def invent_an_image(value) -> None:
    value["tasks"][0]["unlabelled"]["class_000"].append("train/000/999.png")


def call_it_another_class(value) -> None:
    value["tasks"][0]["unlabelled"]["class_001"].append(value["tasks"][0]["unlabelled"]["class_000"].pop())


def rename_the_data_set(value) -> None:
    value["dataset"] = "cub200"


def rename_a_class(value) -> None:
    value.update(json.loads(json.dumps(value).replace("class_000", "klasse")))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (train_on_a_test_image, "trains on test/000/000.png in task 0, which is a test image"),
        (train_twice, "in task 1 and in an earlier one"),
        (label_and_not, "labelled and unlabelled in task 0"),
        (invent_an_image, "names train/000/999.png, which folder does not have"),
        (call_it_another_class, "says 'class_000'"),
        (rename_the_data_set, "of cub200, but the data set is folder"),
        (rename_a_class, "names the class 'klasse'"),
    ],
)
def test_a_split_of_other_data_is_refused(change, sentence):
    with pytest.raises(CampError, match=sentence):
        changed(change).check(toy(20, 40, 5))


def test_without_some_images():
    split = toy_split("gccd")
    task = split.tasks[0]
    gone = {task.labelled[0], task.unlabelled[0], task.test[0]}
    less = split.without(gone)
    assert set(split.keys()) - set(less.keys()) == gone
    assert set(less.class_of) == set(less.keys())
    assert (less.tasks[0].known, less.tasks[0].novel) == (task.known, task.novel)
    assert less.tasks[1:] == split.tasks[1:]
    assert Split.from_json(less.to_json()) == less


def test_a_class_without_readable_labels_becomes_novel_and_one_without_images_is_removed():
    split = toy_split("gccd")
    labels = {key for key in split.tasks[0].labelled if split.class_of[key] == 1}
    images = {key for key, label in split.class_of.items() if label == 2 and key.startswith("train/")}
    less = split.without(labels | images)
    assert less.tasks[0].known == (0, 3)
    assert less.tasks[0].novel == (1, 4)
    assert 2 not in {less.class_of[key] for key in less.tasks[0].test}
    first = {*split.tasks[0].labelled, *split.tasks[0].unlabelled}
    with pytest.raises(CampError, match="Task 0 has no train images"):
        split.without(first)
