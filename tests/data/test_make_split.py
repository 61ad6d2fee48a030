"""Splits of data sets by each preset."""

import numpy as np
import pytest
from toys import labels_of, toy, toy_split

from camp.data.class_order import class_orders
from camp.data.datasets.base import Dataset
from camp.data.make_split import make_split
from camp.data.scenario import SCENARIO_PRESETS, Scenario, make_scenario

# Labels


def test_bernoulli_labels_are_about_the_fraction():
    split = make_split(Scenario(tasks=2, novel_fraction=0.2, order="given"), toy(10, 1000), 0)
    counts = np.bincount(labels_of([key for task in split.tasks for key in task.labelled]), minlength=10)
    known = [label for label in range(10) if label not in (4, 9)]
    assert counts[[4, 9]].tolist() == [0, 0]
    assert 430 < counts[known].min() < counts[known].max() < 570
    assert len(set(counts[known])) > 1


def test_exact_labels_are_exactly_the_fraction():
    split = make_split(
        Scenario(tasks=2, labelling="exact", labelled_fraction=0.3, order="given"), toy(10, 20), 0
    )
    counts = np.bincount(labels_of([key for task in split.tasks for key in task.labelled]), minlength=10)
    assert counts.tolist() == [6, 6, 6, 6, 0] * 2


def test_labels_of_a_class_depend_on_nothing_else():
    def labelled(dataset: Dataset, **settings) -> set[str]:
        split = make_split(Scenario(**{"tasks": 2, "order": "given", **settings}), dataset, 3)
        keys = {key for task in split.tasks for key in task.labelled}
        return {key for key in keys if key.startswith("train/000/")}

    first = labelled(toy(10, 40))
    assert labelled(toy(6, 40), novel_fraction=0.5) == first
    assert labelled(toy(10, 40), order="seed", novel_fraction=0.0) == first
    assert labelled(toy(10, 40), tasks=1, tell_k=False) == first
    # A cap takes images away and leaves the labels of the others.
    capped = make_split(Scenario(tasks=2, order="given", images_per_class=15), toy(10, 40), 3)
    kept = {key for task in capped.tasks for key in (*task.labelled, *task.unlabelled)}
    assert labelled(toy(10, 40), images_per_class=15) == first & kept


@pytest.mark.parametrize("labelling", ["bernoulli", "exact"])
def test_a_known_class_has_at_least_one_label(labelling):
    scenario = Scenario(
        tasks=1, novel_fraction=0.0, labelled_fraction=1e-9, labelling=labelling, order="given"
    )
    split = make_split(scenario, toy(30, 5), 0)
    assert np.bincount(labels_of(split.tasks[0].labelled)).tolist() == [1] * 30
    assert split.tasks[0].novel == ()


def test_caps():
    scenario = Scenario(tasks=2, order="given", images_per_class=7, test_per_class=2)
    split = make_split(scenario, toy(10, 20, 6), 0)
    train = [key for task in split.tasks for key in (*task.labelled, *task.unlabelled)]
    assert np.bincount(labels_of(train)).tolist() == [7] * 10
    assert np.bincount(labels_of([key for task in split.tasks for key in task.test])).tolist() == [2] * 10
    assert split != make_split(scenario, toy(10, 20, 6), 1)


def test_a_long_tail_falls_exponentially_over_a_random_order():
    sizes = _train_sizes(imbalance=10)
    assert sorted(sizes, reverse=True) == [200, 155, 120, 93, 72, 56, 43, 33, 26, 20]
    assert sizes != sorted(sizes, reverse=True)
    assert sizes != _train_sizes(seed=1, imbalance=10)
    assert sorted(_train_sizes(imbalance=50, images_per_class=20))[:2] == [2, 2]
    assert _train_sizes(imbalance=1) == _train_sizes() == [200] * 10


def test_a_random_tail_has_classes_of_four_images_to_all():
    sizes = [size for seed in range(20) for size in _train_sizes(seed=seed, imbalance="random")]
    assert 4 <= min(sizes) < 8
    assert 150 < max(sizes) <= 200
    assert 20 < np.median(sizes) < 40  # log-uniform: the geometric mean is 28
    assert _train_sizes(imbalance="random", images_per_class=3) == [3] * 10


def test_a_long_tail_leaves_test_images_and_the_labels_of_the_rest_alone():
    def keys(**settings) -> tuple[set[str], set[str]]:
        split = make_split(Scenario(tasks=2, order="given", **settings), toy(10, 200), 3)
        return {k for t in split.tasks for k in t.labelled}, {k for t in split.tasks for k in t.test}

    full, tailed = keys(), keys(imbalance=4.0)
    assert tailed[1] == full[1]
    assert tailed[0] < full[0]


def _train_sizes(seed: int = 0, **settings) -> list[int]:
    split = make_split(Scenario(tasks=2, order="given", **settings), toy(10, 200), seed)
    return np.bincount(labels_of([k for t in split.tasks for k in (*t.labelled, *t.unlabelled)])).tolist()


# Presets


def test_class_incremental_learning_labels_everything():
    split = toy_split("cil")
    assert all(task.novel == () and task.unlabelled == () for task in split.tasks)
    assert [len(task.labelled) for task in split.tasks] == [200] * 4


@pytest.mark.parametrize("tasks", [5, 10, 20])
def test_cifar100_in_class_incremental_learning_has_equal_tasks(tasks):
    dataset = toy(100, 2, 1, name="cifar100")
    split = make_split(make_scenario("cifar100", "cil", tasks=tasks), dataset, 0)
    order = class_orders()["cifar100"]
    assert [len(task.known) for task in split.tasks] == [100 // tasks] * tasks
    assert split.classes == tuple(dataset.classes[number] for number in order)


@pytest.mark.parametrize("preset", SCENARIO_PRESETS)
def test_whether_all_is_labelled_is_known_before_the_cut(preset):
    changes = {"tasks": SCENARIO_PRESETS[preset]["tasks"]} if "tasks" in SCENARIO_PRESETS[preset] else {}
    split = toy_split(preset, **changes)
    unlabelled = any(task.unlabelled for task in split.tasks)
    assert split.scenario.all_labelled is (not unlabelled)
    assert split.scenario.all_labelled is (preset == "cil")


def test_self_supervised_continual_learning_labels_nothing():
    split = toy_split("ssl-cl")
    assert all(task.known == () and task.labelled == () for task in split.tasks)
    assert [len(task.novel) for task in split.tasks] == [5] * 4


def test_semi_supervised_continual_learning_has_no_novel_classes():
    split = toy_split("semi-cl")
    assert all(task.novel == () and task.labelled and task.unlabelled for task in split.tasks)


def test_generalized_category_discovery_has_one_task():
    split = toy_split("gcd", tasks=1)
    assert len(split.tasks) == 1
    assert split.tasks[0].novel == (16, 17, 18, 19)
    assert make_scenario("cub200", "gcd").tasks == 1


def test_igcd_reveals_and_brings_classes_back():
    split = toy_split("igcd")
    assert split.tasks[0].novel == (4,)
    for index, (before, after) in enumerate(zip(split.tasks, split.tasks[1:]), start=1):
        # What came without a label comes again with it.
        assert set(after.labelled) == set(before.unlabelled)
        # New classes come without.
        assert after.novel == tuple(range(5 * index, 5 * index + 5))
        # Old ones come back, with new images.
        assert set(labels_of(after.unlabelled)) > set(after.novel)
        assert min(labels_of(after.unlabelled)) == 0
        assert set(labels_of(after.test)) == set(after.novel)
    fresh = [key for task in split.tasks for key in task.unlabelled] + list(split.tasks[0].labelled)
    assert len(fresh) == len(set(fresh)) == 20 * 40


def test_cgcd_has_one_step_of_old_and_new():
    split = toy_split("cgcd", tasks=2)
    first, second = split.tasks
    assert first.known == tuple(range(16))
    assert first.unlabelled == ()
    assert len(first.labelled) == 16 * 32
    assert second.labelled == ()
    assert second.novel == (16, 17, 18, 19)
    assert len(second.unlabelled) == 16 * 8 + 4 * 40
    assert not set(first.labelled) & set(second.unlabelled)
