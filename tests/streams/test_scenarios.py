"""How classes and labels are dealt: against the numbers of the paper's and the reference's tables."""

import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from camp.errors import CampError
from camp.seeds import numpy_generator
from camp.streams.datasets import DATASETS
from camp.streams.datasets.base import Dataset, FileReader
from camp.streams.scenarios import PRESETS, Scenario, Split, class_orders, scenario_for


def toy(
    classes: int = 10, train: int = 20, test: int = 6, name: str = "folder", names=None, domains=None
) -> Dataset:
    """A data set of names alone."""
    names = names or [f"class_{number:03d}" for number in range(classes)]
    rows = sorted(
        (f"{part}/{label:03d}/{index:03d}.png", label, part == "test")
        for label in range(len(names))
        for part, count in (("train", train), ("test", test))
        for index in range(count)
    )
    return Dataset(
        name=name,
        classes=tuple(names),
        keys=tuple(key for key, _, _ in rows),
        labels=np.array([label for _, label, _ in rows]),
        is_test=np.array([is_test for _, _, is_test in rows]),
        domains=domains,
        reader=FileReader(Path("/")),
    )


def labels_of(keys) -> list[int]:
    """Classes by the names of `toy`."""
    return [int(key.split("/")[1]) for key in keys]


# Class order and the known / novel cut


def test_the_orders_are_those_of_the_reference():
    orders = class_orders()
    assert {name: len(order) for name, order in orders.items()} == {
        "cifar100": 100,
        "stanford_cars": 196,
        "cub200": 200,
        "fgvc_aircraft": 100,
        "imagenet_subset": 100,
    }
    assert orders["cifar100"] == orders["fgvc_aircraft"] == orders["imagenet_subset"]
    assert orders["stanford_cars"][:5] == [186, 41, 73, 102, 194]
    assert orders["stanford_cars"][-4:] == [124, 3, 112, 44]
    assert [name[:3] for name in orders["cub200"][:5]] == ["040", "094", "035", "193", "176"]


def test_cifar100_has_the_novel_classes_of_the_reference():
    split = scenario_for("cifar100").cut(toy(100, 2, 1, name="cifar100"), 0)
    novel = [{split.classes[label] for label in task.novel} for task in split.tasks]
    ids = [{26, 80, 43, 38}, {83, 16, 15, 44}, {97, 2, 64, 66}, {47, 25, 30, 46}, {29, 49, 57, 33}]
    assert novel == [{f"class_{number:03d}" for number in task} for task in ids]
    assert [task.known for task in split.tasks] == [tuple(range(20 * t, 20 * t + 16)) for t in range(5)]


@pytest.mark.parametrize(
    ("name", "classes", "tasks", "known", "novel"),
    [
        ("cifar100", 100, 5, 16, 4),
        ("stanford_cars", 196, 4, 40, 9),
        ("cub200", 200, 5, 32, 8),
        ("fgvc_aircraft", 100, 5, 16, 4),
        ("domainnet", 60, 6, 8, 2),
        ("digits", 10, 2, 4, 1),
    ],
)
def test_the_table_of_splits(name, classes, tasks, known, novel):
    names, domains = None, None
    if name == "cub200":
        names = sorted(class_orders()["cub200"])
    if name == "domainnet":
        kinds = ["clipart", "infograph", "painting", "quickdraw", "real", "sketch"]
        domains = tuple(kind for kind in kinds for _ in range(10))
    dataset = toy(classes, 2, 1, name=name, names=names, domains=domains)
    split = scenario_for(name).cut(dataset, 0)
    split.check(dataset)
    assert [(len(task.known), len(task.novel)) for task in split.tasks] == [(known, novel)] * tasks


@pytest.mark.parametrize("classes", [7, 10, 23, 100])
@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.5, 1.0])
def test_known_and_novel_by_the_rule(classes, tasks, fraction):
    scenario = Scenario(tasks=tasks, novel_fraction=fraction, order="given", labelled_fraction=0.5)
    chunks = np.array_split(np.arange(classes), tasks)
    count = int(classes * fraction // tasks)
    if fraction > 0 and count == 0:
        with pytest.raises(CampError, match="leaves no novel class"):
            scenario.cut(toy(classes, 3, 1), 0)
        return
    split = scenario.cut(toy(classes, 3, 1), 0)
    for task, chunk in zip(split.tasks, chunks):
        novel = len(chunk) if fraction == 1 else count
        assert list(task.known) == chunk.tolist()[: len(chunk) - novel]
        assert list(task.novel) == chunk.tolist()[len(chunk) - novel :]
        assert set(labels_of(task.test)) == set(chunk.tolist())
        assert set(labels_of(task.labelled)) == set(task.known)


def test_a_fraction_that_is_no_binary_number_loses_no_class():
    split = Scenario(tasks=1, novel_fraction=0.29, order="given").cut(toy(100, 2, 1), 0)
    assert len(split.tasks[0].novel) == 29


def test_the_seed_orders_the_classes():
    dataset = toy(30, 2, 1)
    scenario = Scenario(tasks=3, order="seed")
    want = numpy_generator(4, "order").permutation(30)
    assert scenario.cut(dataset, 4).classes == tuple(dataset.classes[label] for label in want)
    assert scenario.cut(dataset, 4).classes != scenario.cut(dataset, 5).classes
    assert Scenario(tasks=3, order="given").cut(dataset, 4).classes == dataset.classes


def test_the_paper_order_does_not_depend_on_the_seed():
    names = sorted(class_orders()["cub200"])
    dataset = toy(200, 1, 1, name="cub200", names=names)
    for seed in (0, 1):
        assert Scenario(order="paper").cut(dataset, seed).classes == tuple(class_orders()["cub200"])


def test_the_paper_order_needs_the_papers_classes():
    with pytest.raises(CampError, match="no published class order"):
        Scenario(order="paper", tasks=2).cut(toy(10), 0)
    with pytest.raises(CampError, match="names 200 classes, but the data hold 10"):
        Scenario(order="paper", tasks=2).cut(toy(10, name="cub200"), 0)
    with pytest.raises(CampError, match="under other names"):
        Scenario(order="paper", tasks=2).cut(toy(200, 1, 1, name="cub200"), 0)


DOMAINS = tuple(domain for domain in "abcdef" for _ in range(10))


def domains_of(split: Split) -> list[set[str]]:
    return [{DOMAINS[int(split.classes[c][-3:])] for c in (*t.known, *t.novel)} for t in split.tasks]


def test_one_domain_a_task():
    dataset = toy(60, 2, 1, name="domainnet", domains=DOMAINS)
    split = scenario_for("domainnet").cut(dataset, 0)
    assert domains_of(split) == [{domain} for domain in "abcdef"]
    assert split.classes == dataset.classes


@pytest.mark.parametrize("tasks", [12, 18])
def test_more_tasks_than_domains_change_the_domain_from_task_to_task(tasks):
    dataset = toy(60, 2, 1, name="domainnet", domains=DOMAINS)
    split = Scenario(tasks=tasks, novel_fraction=0.4).cut(dataset, 0)
    assert domains_of(split) == [{"abcdef"[task % 6]} for task in range(tasks)]
    assert sorted(split.classes) == sorted(dataset.classes)


def test_fewer_tasks_than_domains_take_whole_domains():
    dataset = toy(60, 2, 1, name="domainnet", domains=DOMAINS)
    assert domains_of(Scenario(tasks=3).cut(dataset, 0)) == [{"a", "b"}, {"c", "d"}, {"e", "f"}]
    with pytest.raises(CampError, match="multiple of 6"):
        Scenario(tasks=4).cut(dataset, 0)


# Labels


def test_bernoulli_labels_are_about_the_fraction():
    split = Scenario(tasks=2, novel_fraction=0.2, order="given").cut(toy(10, 1000), 0)
    counts = np.bincount(labels_of([key for task in split.tasks for key in task.labelled]), minlength=10)
    known = [label for label in range(10) if label not in (4, 9)]
    assert counts[[4, 9]].tolist() == [0, 0]
    assert 430 < counts[known].min() < counts[known].max() < 570
    assert len(set(counts[known])) > 1


def test_exact_labels_are_exactly_the_fraction():
    split = Scenario(tasks=2, labelling="exact", labelled_fraction=0.3, order="given").cut(toy(10, 20), 0)
    counts = np.bincount(labels_of([key for task in split.tasks for key in task.labelled]), minlength=10)
    assert counts.tolist() == [6, 6, 6, 6, 0] * 2


def test_labels_of_a_class_depend_on_nothing_else():
    def labelled(dataset: Dataset, **settings) -> set[str]:
        split = Scenario(**{"tasks": 2, "order": "given", **settings}).cut(dataset, 3)
        keys = {key for task in split.tasks for key in task.labelled}
        return {key for key in keys if key.startswith("train/000/")}

    first = labelled(toy(10, 40))
    assert labelled(toy(6, 40), novel_fraction=0.5) == first
    assert labelled(toy(10, 40), order="seed", novel_fraction=0.0) == first
    assert labelled(toy(10, 40), tasks=1, tell_k=False) == first
    # A cap takes pictures away and leaves the labels of the others.
    capped = Scenario(tasks=2, order="given", images_per_class=15).cut(toy(10, 40), 3)
    kept = {key for task in capped.tasks for key in (*task.labelled, *task.unlabelled)}
    assert labelled(toy(10, 40), images_per_class=15) == first & kept


@pytest.mark.parametrize("labelling", ["bernoulli", "exact"])
def test_a_known_class_has_a_label_in_any_case(labelling):
    scenario = Scenario(
        tasks=1, novel_fraction=0.0, labelled_fraction=1e-9, labelling=labelling, order="given"
    )
    split = scenario.cut(toy(30, 5), 0)
    assert np.bincount(labels_of(split.tasks[0].labelled)).tolist() == [1] * 30
    assert split.tasks[0].novel == ()


def test_caps():
    scenario = Scenario(tasks=2, order="given", images_per_class=7, test_per_class=2)
    split = scenario.cut(toy(10, 20, 6), 0)
    train = [key for task in split.tasks for key in (*task.labelled, *task.unlabelled)]
    assert np.bincount(labels_of(train)).tolist() == [7] * 10
    assert np.bincount(labels_of([key for task in split.tasks for key in task.test])).tolist() == [2] * 10
    assert split != scenario.cut(toy(10, 20, 6), 1)


# Presets


def test_presets_are_scenarios_of_every_data_set():
    for dataset in DATASETS:
        for preset in PRESETS:
            assert isinstance(scenario_for(dataset, preset), Scenario)
    with pytest.raises(
        CampError, match="no scenario 'cl'; known are gccd, cil, ssl-cl, semi-cl, gcd, igcd, cgcd"
    ):
        scenario_for("cub200", "cl")
    with pytest.raises(CampError, match="no setting 'task'"):
        scenario_for("cub200", task=2)


def cut(preset: str, **changes) -> Split:
    dataset = toy(20, 40, 5)
    split = scenario_for("folder", preset, **{"tasks": 4, "order": "given", **changes}).cut(dataset, 0)
    split.check(dataset)
    return split


def test_class_incremental_learning_labels_everything():
    split = cut("cil")
    assert all(task.novel == () and task.unlabelled == () for task in split.tasks)
    assert [len(task.labelled) for task in split.tasks] == [200] * 4


@pytest.mark.parametrize("tasks", [5, 10, 20])
def test_cifar100_in_class_incremental_learning_has_equal_tasks(tasks):
    dataset = toy(100, 2, 1, name="cifar100")
    split = scenario_for("cifar100", "cil", tasks=tasks).cut(dataset, 0)
    order = class_orders()["cifar100"]
    assert [len(task.known) for task in split.tasks] == [100 // tasks] * tasks
    assert split.classes == tuple(dataset.classes[number] for number in order)


@pytest.mark.parametrize("preset", PRESETS)
def test_whether_all_is_labelled_is_known_before_the_cut(preset):
    changes = {"tasks": PRESETS[preset]["tasks"]} if "tasks" in PRESETS[preset] else {}
    split = cut(preset, **changes)
    unlabelled = any(task.unlabelled for task in split.tasks)
    assert split.scenario.all_labelled is (not unlabelled)
    assert split.scenario.all_labelled is (preset == "cil")


def test_self_supervised_continual_learning_labels_nothing():
    split = cut("ssl-cl")
    assert all(task.known == () and task.labelled == () for task in split.tasks)
    assert [len(task.novel) for task in split.tasks] == [5] * 4


def test_semi_supervised_continual_learning_has_no_novel_classes():
    split = cut("semi-cl")
    assert all(task.novel == () and task.labelled and task.unlabelled for task in split.tasks)


def test_generalized_category_discovery_has_one_task():
    split = cut("gcd", tasks=1)
    assert len(split.tasks) == 1
    assert split.tasks[0].novel == (16, 17, 18, 19)
    assert scenario_for("cub200", "gcd").tasks == 1


def test_igcd_reveals_and_brings_classes_back():
    split = cut("igcd")
    assert split.tasks[0].novel == (4,)
    for index, (before, after) in enumerate(zip(split.tasks, split.tasks[1:]), start=1):
        # What came without a label comes again with it.
        assert set(after.labelled) == set(before.unlabelled)
        # New classes come without.
        assert after.novel == tuple(range(5 * index, 5 * index + 5))
        # Old ones come back, with new pictures.
        assert set(labels_of(after.unlabelled)) > set(after.novel)
        assert min(labels_of(after.unlabelled)) == 0
        assert set(labels_of(after.test)) == set(after.novel)
    fresh = [key for task in split.tasks for key in task.unlabelled] + list(split.tasks[0].labelled)
    assert len(fresh) == len(set(fresh)) == 20 * 40


def test_cgcd_has_one_step_of_old_and_new():
    split = cut("cgcd", tasks=2)
    first, second = split.tasks
    assert first.known == tuple(range(16))
    assert first.unlabelled == ()
    assert len(first.labelled) == 16 * 32
    assert second.labelled == ()
    assert second.novel == (16, 17, 18, 19)
    assert len(second.unlabelled) == 16 * 8 + 4 * 40
    assert not set(first.labelled) & set(second.unlabelled)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tasks": 0}, "at least one task"),
        ({"novel_fraction": 1.5}, "novel_fraction must lie in 0..1"),
        ({"labelled_fraction": -0.1}, "labelled_fraction must lie in 0..1"),
        ({"labelled_fraction": 0.0}, "Known classes need labels"),
        (
            {"labelled_fraction": 0.0, "novel_fraction": 1.0, "first_novel_fraction": 0.0},
            "Known classes need",
        ),
        ({"labelling": "half"}, "labelling must be one of bernoulli, exact"),
        ({"order": "random"}, "order must be one of paper, seed, given"),
        ({"images_per_class": 0}, "images_per_class must be at least 1"),
        ({"test_per_class": 0}, "test_per_class must be at least 1"),
        ({"first_fraction": 1.0}, "first_fraction must lie between 0 and 1"),
        ({"recurring_fraction": 1.0}, "below 1"),
        ({"tasks": 1, "reveal": True}, "reveal speaks of later tasks"),
        ({"tasks": 1, "recurring_fraction": 0.2}, "recurring_fraction speaks of later tasks"),
        ({"tasks": 1, "first_fraction": 0.2}, "first_fraction speaks of later tasks"),
    ],
)
def test_contradictions_are_refused(settings, sentence):
    with pytest.raises(CampError, match=sentence):
        Scenario(**settings)


def test_more_tasks_than_classes_are_refused():
    with pytest.raises(CampError, match="3 classes cannot be cut into 5 tasks"):
        Scenario(order="given").cut(toy(3), 0)


# The cut as a file


@pytest.mark.parametrize("preset", PRESETS)
def test_a_split_given_back_is_the_same(preset):
    split = cut(preset, **({"tasks": PRESETS[preset]["tasks"]} if "tasks" in PRESETS[preset] else {}))
    text = json.dumps(split.to_json(), ensure_ascii=False)
    again = Split.from_json(json.loads(text))
    assert again == split
    assert json.dumps(again.to_json(), ensure_ascii=False) == text


def test_a_split_reads_by_class_name():
    value = cut("gccd").to_json()
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
    value = cut("gccd").to_json()
    value["tasks"][1]["novel"] = []
    with pytest.raises(CampError, match="Task 1 of the split calls other classes"):
        Split.from_json(value)
    value = cut("gccd").to_json()
    value["scenario"]["speed"] = 3
    with pytest.raises(CampError, match="speed"):
        Split.from_json(value)


def changed(change) -> Split:
    value = cut("gccd").to_json()
    change(value)
    return Split.from_json(value)


def train_on_a_test_picture(value) -> None:
    value["tasks"][0]["unlabelled"]["class_000"].append("test/000/000.png")


def train_twice(value) -> None:
    value["tasks"][1]["unlabelled"]["class_000"] = value["tasks"][0]["unlabelled"]["class_000"]


def label_and_not(value) -> None:
    value["tasks"][0]["unlabelled"]["class_000"].append(value["tasks"][0]["labelled"]["class_000"][0])


def invent_a_picture(value) -> None:
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
        (train_on_a_test_picture, "trains on test/000/000.png in task 0, which is a test picture"),
        (train_twice, "in task 1 and in an earlier one"),
        (label_and_not, "labelled and unlabelled in task 0"),
        (invent_a_picture, "names train/000/999.png, which folder does not have"),
        (call_it_another_class, "says 'class_000'"),
        (rename_the_data_set, "about cub200, but the data set is folder"),
        (rename_a_class, "names the class 'klasse'"),
    ],
)
def test_a_split_of_other_data_is_refused(change, sentence):
    with pytest.raises(CampError, match=sentence):
        changed(change).check(toy(20, 40, 5))


def test_without_some_pictures():
    split = cut("gccd")
    task = split.tasks[0]
    gone = {task.labelled[0], task.unlabelled[0], task.test[0]}
    less = split.without(gone)
    assert set(split.keys()) - set(less.keys()) == gone
    assert set(less.class_of) == set(less.keys())
    assert (less.tasks[0].known, less.tasks[0].novel) == (task.known, task.novel)
    assert less.tasks[1:] == split.tasks[1:]
    assert Split.from_json(less.to_json()) == less


def test_a_class_without_readable_labels_becomes_novel_and_one_without_pictures_goes():
    split = cut("gccd")
    labels = {key for key in split.tasks[0].labelled if split.class_of[key] == 1}
    pictures = {key for key, label in split.class_of.items() if label == 2 and key.startswith("train/")}
    less = split.without(labels | pictures)
    assert less.tasks[0].known == (0, 3)
    assert less.tasks[0].novel == (1, 4)
    assert 2 not in {less.class_of[key] for key in less.tasks[0].test}
    first = {*split.tasks[0].labelled, *split.tasks[0].unlabelled}
    with pytest.raises(CampError, match="Task 0 has no train pictures"):
        split.without(first)


def test_the_orders_are_package_data():
    assert resources.files("camp.streams").joinpath("class_orders.json").is_file()
