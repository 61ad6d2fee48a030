"""The layouts of DomainNet and the number of classes per domain."""

from pathlib import Path

import pytest
from tiny_trees import paint, parts

from camp.bench.settings import DataSettings
from camp.core.errors import CampError
from camp.data.datasets import load_dataset
from camp.data.make_split import make_split

DOMAINS = ["clipart", "infograph", "painting", "quickdraw", "real", "sketch"]


def domainnet_tree(root: Path, classes: int = 12, per_class: int = 10) -> None:
    for domain in DOMAINS:
        for number in range(classes):
            for index in range(per_class):
                paint(root / domain / f"thing_{number:02d}" / f"{domain}_{index:02d}.png", number)


def test_domainnet_reference_split(tmp_path):
    domainnet_tree(tmp_path)
    dataset = load_dataset("domainnet", tmp_path)
    assert len(dataset.classes) == 60
    assert dataset.classes[:2] == ("clipart/thing_00", "clipart/thing_01")
    assert [dataset.domains[label] for label in range(0, 60, 10)] == DOMAINS
    train, test = parts(dataset, "real/thing_03")
    assert [key.split("_")[-1] for key in test] == ["00.png", "01.png"]
    assert len(train) == 8
    assert len(load_dataset("domainnet", tmp_path, classes_per_domain=None).classes) == 72
    with pytest.raises(CampError, match="official lists"):
        load_dataset("domainnet", tmp_path, split="official")
    with pytest.raises(CampError, match="at least 1"):
        load_dataset("domainnet", tmp_path, classes_per_domain=0)


@pytest.mark.parametrize("inside", [".", "txt"])
def test_domainnet_official_lists(tmp_path, inside):
    domainnet_tree(tmp_path, classes=2, per_class=4)
    (tmp_path / inside).mkdir(exist_ok=True)
    for domain in DOMAINS:
        for part, indices in (("train", (0, 2)), ("test", (1,))):
            lines = [
                f"{domain}/thing_{n:02d}/{domain}_{index:02d}.png {n}\n"
                for n in range(2)
                for index in indices
            ]
            (tmp_path / inside / f"{domain}_{part}.txt").write_text("".join(lines))
    dataset = load_dataset("domainnet", tmp_path)
    train, test = parts(dataset, "sketch/thing_01")
    assert train == ["sketch/thing_01/sketch_00.png", "sketch/thing_01/sketch_02.png"]
    assert test == ["sketch/thing_01/sketch_01.png"]
    assert len(load_dataset("domainnet", tmp_path, split="reference")) == 48


@pytest.mark.parametrize(("tasks", "classes"), [(6, 50), (12, 25), (24, 10)])
def test_domainnet_in_class_incremental_learning(tmp_path, tasks, classes):
    """Tasks of one domain each, which changes from task to task; each thing of each domain comes once."""
    domainnet_tree(tmp_path, classes=51, per_class=2)
    asked = DataSettings(dataset="domainnet", setting="cil", tasks=tasks)
    dataset = load_dataset("domainnet", tmp_path, **asked.loader_options())
    split = make_split(asked.scenario(), dataset, seed=0)
    names = [[split.classes[c] for c in task.known] for task in split.tasks]
    assert [len(task) for task in names] == [classes] * tasks
    assert [{name.split("/")[0] for name in task} for task in names] == [
        {DOMAINS[t % 6]} for t in range(tasks)
    ]
    assert len({name for task in names for name in task}) == classes * tasks
    assert all(not task.novel and not task.unlabelled for task in split.tasks)


def test_classes_of_a_domain_are_those_of_the_setting():
    def options(**settings):
        return DataSettings(dataset="domainnet", **settings).loader_options()

    assert options() == {}  # the loader's own ten
    assert options(setting="cil") == options(setting="cil", tasks=6) == {"classes_per_domain": 50}
    assert options(setting="cil", classes_per_domain=20) == options(classes_per_domain=20)
    assert DataSettings(dataset="cub200", official_split=False).loader_options() == {"split": "reference"}
    assert DataSettings(dataset="cifar100", setting="cil").loader_options() == {}
    with pytest.raises(CampError, match="classes_per_domain is for domainnet, not digits"):
        DataSettings(classes_per_domain=3)


def test_domainnet_in_class_folders(tmp_path):
    for domain in DOMAINS:
        for part in ("train", "test"):
            paint(tmp_path / part / domain / "bird" / f"{part}.png")
    dataset = load_dataset("domainnet", tmp_path)
    assert dataset.domains == tuple(DOMAINS)
    assert parts(dataset, "painting/bird") == (
        ["train/painting/bird/train.png"],
        ["test/painting/bird/test.png"],
    )
