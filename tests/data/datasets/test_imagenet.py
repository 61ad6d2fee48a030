"""The layouts of a hundred classes of ImageNet and of Tiny ImageNet."""

import json
import shutil
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from tiny_trees import paint, parts

from camp.bench.settings import DataSettings
from camp.core.errors import CampError
from camp.data.datasets import load_dataset
from camp.data.datasets.imagenet_subset import subset_1993
from camp.data.make_split import make_split


def test_the_usual_hundred_of_imagenet_comes_from_the_seed_of_the_cifar_order():
    orders = json.loads(resources.files("camp.data").joinpath("class_orders.json").read_text())
    hundred = subset_1993([str(number) for number in range(100)])
    assert hundred == [str(number) for number in orders["cifar100"]]


def imagenet_tree(root: Path, classes: int) -> list[str]:
    wnids = [f"n{number:08d}" for number in range(classes)]
    for wnid in wnids:
        for part in ("train", "val"):
            folder = root / part / wnid
            folder.mkdir(parents=True)
            (folder / f"{wnid}_1.JPEG").touch()
    return wnids


def test_imagenet_subset(tmp_path):
    wnids = imagenet_tree(tmp_path, 1000)
    dataset = load_dataset("imagenet_subset", tmp_path)
    assert dataset.classes == tuple(sorted(subset_1993(wnids)))
    assert len(set(dataset.classes)) == 100
    assert len(dataset) == 200
    assert parts(dataset, dataset.classes[0])[1] == [f"val/{dataset.classes[0]}/{dataset.classes[0]}_1.JPEG"]
    shutil.rmtree(tmp_path / "val" / dataset.classes[5])
    with pytest.raises(CampError, match=dataset.classes[5]):
        load_dataset("imagenet_subset", tmp_path)


@pytest.mark.parametrize("classes", [100, 1000])
@pytest.mark.parametrize("tasks", [5, 10, 20])
def test_imagenet_subset_in_class_incremental_learning(tmp_path, classes, tasks):
    """The usual hundred, sorted, in the order that numpy's seed 1993 gives to a hundred things."""
    imagenet_tree(tmp_path, classes)
    dataset = load_dataset("imagenet_subset", tmp_path)
    split = make_split(
        DataSettings(dataset="imagenet_subset", setting="cil", tasks=tasks).scenario(), dataset, seed=3
    )
    assert [len(task.known) for task in split.tasks] == [100 // tasks] * tasks
    assert all(not task.novel and not task.unlabelled for task in split.tasks)
    order = np.random.RandomState(1993).permutation(100)
    assert split.classes == tuple(sorted(dataset.classes)[number] for number in order)
    if classes == 1000:  # mailbox, confectionery, screen: the first of the published list
        assert [name[-4:] for name in split.classes[:3]] == ["0637", "0509", "0782"]


def test_imagenet_subset_of_exactly_a_hundred(tmp_path):
    wnids = imagenet_tree(tmp_path, 100)
    assert load_dataset("imagenet_subset", tmp_path).classes == tuple(wnids)
    shutil.rmtree(tmp_path / "train" / wnids[0])
    with pytest.raises(CampError, match="99 class folders"):
        load_dataset("imagenet_subset", tmp_path)


@pytest.mark.parametrize("inside", [".", "tiny-imagenet-200"])
def test_tiny_imagenet(tmp_path, inside):
    root = tmp_path / inside
    for wnid in ("n02", "n01"):
        paint(root / "train" / wnid / "images" / f"{wnid}_0.JPEG")
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("x\n")
    for number in (0, 1):
        paint(root / "val" / "images" / f"val_{number}.JPEG")
        paint(root / "test" / "images" / f"test_{number}.JPEG")
    (root / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n"
    )
    (root / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\ttoad\n")
    dataset = load_dataset("tiny_imagenet", tmp_path)
    assert dataset.classes == ("n01 goldfish", "n02 toad")
    assert parts(dataset, "n02 toad") == (["train/n02/images/n02_0.JPEG"], ["val/images/val_0.JPEG"])
    (root / "val" / "val_annotations.txt").write_text("val_7.JPEG\tn02\t0\t0\t9\t9\n")
    with pytest.raises(CampError, match="val_7"):
        load_dataset("tiny_imagenet", tmp_path)
