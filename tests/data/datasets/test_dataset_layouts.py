"""All data sets: class folders are read, and folders with other content are refused."""

import pytest
from tiny_trees import paint, parts

from camp.core.errors import CampError
from camp.data.datasets import DATASETS, load_dataset
from camp.data.datasets.base import official_names
from camp.data.datasets.folders import normalised_name

COMMON = [
    ("cifar10", ["cat", "dog"]),
    ("cifar100", ["apple", "worm"]),
    ("cub200", ["001.Black_footed_Albatross", "200.Common_Yellowthroat"]),
    ("stanford_cars", ["Acura RL Sedan 2012", "Volvo 240 Sedan 1993"]),
    ("fgvc_aircraft", ["747-100", "Yak-42"]),
    ("tiny_imagenet", ["n01443537", "n01629819"]),
    ("folder", ["cup", "spoon"]),
]


@pytest.mark.parametrize(("name", "classes"), COMMON)
def test_every_image_data_set_reads_class_folders(tmp_path, name, classes):
    for class_name in classes:
        for index in range(3):
            paint(tmp_path / "train" / class_name / f"{index}.png")
        paint(tmp_path / "test" / class_name / "9.png")
    dataset = load_dataset(name, tmp_path)
    assert dataset.classes == tuple(classes)
    assert parts(dataset, classes[1]) == (
        [f"train/{classes[1]}/{index}.png" for index in range(3)],
        [f"test/{classes[1]}/9.png"],
    )
    assert dataset.decode(dataset.read(dataset.keys[0])).size == (4, 4)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stanford_cars", "fgvc_aircraft"])
def test_foreign_classes_are_refused(tmp_path, name):
    for part in ("train", "test"):
        paint(tmp_path / part / "teapot" / "1.png")
    with pytest.raises(CampError, match=f"'teapot', which is not a class of {name}"):
        load_dataset(name, tmp_path)


@pytest.mark.parametrize("name", [name for name, info in DATASETS.items() if not info.embedded])
def test_wrong_places_are_refused_in_a_sentence(tmp_path, name):
    with pytest.raises(CampError, match="does not exist"):
        load_dataset(name, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CampError, match="is empty; expected"):
        load_dataset(name, tmp_path / "empty")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    with pytest.raises(CampError, match=r"expected|numpy"):
        load_dataset(name, tmp_path / "other")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stanford_cars", "fgvc_aircraft"])
def test_official_names_differ_without_case_and_signs(name):
    names = official_names(name)
    assert len(names) == DATASETS[name].n_classes
    assert len({normalised_name(class_name) for class_name in names}) == len(names)
