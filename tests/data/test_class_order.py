"""Class orders and novel classes against the tables of the paper and of the authors' code."""

from importlib import resources

import numpy as np
import pytest
from toys import labels_of, toy

from camp.core.errors import CampError
from camp.core.seeds import numpy_generator
from camp.data.class_order import class_orders
from camp.data.make_split import make_split
from camp.data.scenario import Scenario, make_scenario
from camp.data.split import Split


def test_the_orders_are_package_data():
    assert resources.files("camp.data").joinpath("class_orders.json").is_file()


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
    split = make_split(make_scenario("cifar100"), toy(100, 2, 1, name="cifar100"), 0)
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
    split = make_split(make_scenario(name), dataset, 0)
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
            make_split(scenario, toy(classes, 3, 1), 0)
        return
    split = make_split(scenario, toy(classes, 3, 1), 0)
    for task, chunk in zip(split.tasks, chunks):
        novel = len(chunk) if fraction == 1 else count
        assert list(task.known) == chunk.tolist()[: len(chunk) - novel]
        assert list(task.novel) == chunk.tolist()[len(chunk) - novel :]
        assert set(labels_of(task.test)) == set(chunk.tolist())
        assert set(labels_of(task.labelled)) == set(task.known)


def test_rounding_of_the_fraction_loses_no_class():
    split = make_split(Scenario(tasks=1, novel_fraction=0.29, order="given"), toy(100, 2, 1), 0)
    assert len(split.tasks[0].novel) == 29


def test_more_tasks_than_classes_are_refused():
    with pytest.raises(CampError, match="3 classes cannot be divided into 5 tasks"):
        make_split(Scenario(order="given"), toy(3), 0)


def test_the_seed_orders_the_classes():
    dataset = toy(30, 2, 1)
    scenario = Scenario(tasks=3, order="seed")
    want = numpy_generator(4, "order").permutation(30)
    assert make_split(scenario, dataset, 4).classes == tuple(dataset.classes[label] for label in want)
    assert make_split(scenario, dataset, 4).classes != make_split(scenario, dataset, 5).classes
    assert make_split(Scenario(tasks=3, order="given"), dataset, 4).classes == dataset.classes


def test_the_paper_order_does_not_depend_on_the_seed():
    names = sorted(class_orders()["cub200"])
    dataset = toy(200, 1, 1, name="cub200", names=names)
    for seed in (0, 1):
        assert make_split(Scenario(order="paper"), dataset, seed).classes == tuple(class_orders()["cub200"])


def test_the_paper_order_needs_the_papers_classes():
    with pytest.raises(CampError, match="no published class order"):
        make_split(Scenario(order="paper", tasks=2), toy(10), 0)
    with pytest.raises(CampError, match="names 200 classes, but the data hold 10"):
        make_split(Scenario(order="paper", tasks=2), toy(10, name="cub200"), 0)
    with pytest.raises(CampError, match="under other names"):
        make_split(Scenario(order="paper", tasks=2), toy(200, 1, 1, name="cub200"), 0)


# Domains

DOMAINS = tuple(domain for domain in "abcdef" for _ in range(10))


def domains_of(split: Split) -> list[set[str]]:
    return [{DOMAINS[int(split.classes[c][-3:])] for c in (*t.known, *t.novel)} for t in split.tasks]


def test_one_domain_a_task():
    dataset = toy(60, 2, 1, name="domainnet", domains=DOMAINS)
    split = make_split(make_scenario("domainnet"), dataset, 0)
    assert domains_of(split) == [{domain} for domain in "abcdef"]
    assert split.classes == dataset.classes


@pytest.mark.parametrize("tasks", [12, 18])
def test_more_tasks_than_domains_change_the_domain_from_task_to_task(tasks):
    dataset = toy(60, 2, 1, name="domainnet", domains=DOMAINS)
    split = make_split(Scenario(tasks=tasks, novel_fraction=0.4), dataset, 0)
    assert domains_of(split) == [{"abcdef"[task % 6]} for task in range(tasks)]
    assert sorted(split.classes) == sorted(dataset.classes)


def test_fewer_tasks_than_domains_take_whole_domains():
    dataset = toy(60, 2, 1, name="domainnet", domains=DOMAINS)
    assert domains_of(make_split(Scenario(tasks=3), dataset, 0)) == [{"a", "b"}, {"c", "d"}, {"e", "f"}]
    with pytest.raises(CampError, match="multiple of 6"):
        make_split(Scenario(tasks=4), dataset, 0)


def test_of_many_classes_the_first_of_the_order_are_used():
    dataset = toy(20, 4, 2)
    whole = make_split(make_scenario("folder", "gccd", tasks=2, order="seed"), dataset, 3)
    some = make_split(make_scenario("folder", "gccd", tasks=2, order="seed", classes=10), dataset, 3)
    assert set(some.classes) == set(whole.classes[:10])
    assert [(len(task.known), len(task.novel)) for task in some.tasks] == [(4, 1), (4, 1)]
    some.check(dataset)
    assert Split.from_json(some.to_json()) == some
    with pytest.raises(CampError, match="has 20 classes, not 21"):
        make_split(make_scenario("folder", "gccd", tasks=2, classes=21), dataset, 0)
    with pytest.raises(CampError, match="3 classes cannot be divided into 4 tasks"):
        make_scenario("folder", "gccd", tasks=4, classes=3)


def test_tasks_that_are_domains_keep_their_classes():
    domains = tuple(domain for domain in ("clipart", "sketch") for _ in range(5))
    with pytest.raises(CampError, match="use the order 'seed' for fewer"):
        make_split(
            make_scenario("domainnet", tasks=2, classes=4),
            toy(10, 4, 2, name="domainnet", domains=domains),
            0,
        )
