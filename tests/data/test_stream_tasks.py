"""Tasks and their ground truth."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from camp.core.errors import CampError
from camp.core.types import UNLABELLED
from camp.data.datasets import load_dataset
from camp.data.make_split import make_split
from camp.data.scenario import Scenario, make_scenario
from camp.data.stream import make_task


class Named:
    """Views that only know how many they are; the test remembers which."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = tuple(keys)

    def __len__(self) -> int:
        return len(self.keys)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="module")
def truth_of(digits):
    return {key: digits.classes[label] for key, label in zip(digits.keys, digits.labels)}


@pytest.mark.parametrize("preset", ["gccd", "cil", "ssl-cl", "semi-cl", "igcd", "cgcd", "gcd"])
def test_labels_and_truth_belong_to_the_images(digits, truth_of, preset):
    split = make_split(make_scenario("digits", preset), digits, 1)
    numbers: dict[int, str] = {}
    for index, dealt in enumerate(split.tasks):
        task, truth = make_task(split, digits, index, Named)
        assert task.views.keys == truth.train_keys
        assert sorted(truth.train_keys) == sorted([*dealt.labelled, *dealt.unlabelled])
        assert len(task) == len(task.labels) == len(truth.train_classes)
        assert truth.test_views.keys == truth.test_keys == dealt.test
        for key, label, true in zip(truth.train_keys, task.labels.tolist(), truth.train_classes):
            assert truth.class_names[true] == truth_of[key]
            assert (label == UNLABELLED) == (key in dealt.unlabelled)
            if label != UNLABELLED:
                assert truth.class_of_label[label] == true
                assert numbers.setdefault(label, truth_of[key]) == truth_of[key]  # a number keeps its class
        for key, true in zip(truth.test_keys, truth.test_classes):
            assert truth.class_names[true] == truth_of[key]
        assert sorted(numbers) == list(range(len(truth.class_of_label)))
        assert (task.n_novel, task.total) == (len(dealt.novel), 10)
        assert (truth.known, truth.novel) == (dealt.known, dealt.novel)


def test_numbers_count_known_classes_only(digits):
    split = make_split(make_scenario("digits"), digits, 0)
    assert [make_task(split, digits, index, Named)[1].class_of_label for index in range(2)] == [
        (0, 1, 2, 3),
        (0, 1, 2, 3, 5, 6, 7, 8),
    ]


def test_a_revealed_class_gets_the_next_number(digits):
    split = make_split(make_scenario("digits", "igcd"), digits, 0)
    _, truth = make_task(split, digits, 1, Named)
    assert split.tasks[0].novel == (4,)
    assert truth.class_of_label == (0, 1, 2, 3, 4)


def test_k_may_be_unknown(digits):
    split = make_split(Scenario(tasks=2, order="given", tell_k=False), digits, 0)
    task, _ = make_task(split, digits, 0, Named)
    assert (task.n_novel, task.total) == (None, None)


def test_the_order_of_a_task_does_not_reveal_classes(digits):
    split = make_split(make_scenario("digits"), digits, 0)
    task, truth = make_task(split, digits, 0, Named)
    again, _ = make_task(split, digits, 0, Named)
    assert torch.equal(task.labels, again.labels)
    assert task.views.keys == again.views.keys
    assert list(truth.train_keys) != sorted(truth.train_keys)
    # Neighbours are of the same class about as often as any two images.
    classes = truth.train_classes
    neighbours = (classes[1:] == classes[:-1]).mean()
    any_two = (np.bincount(classes) ** 2).sum() / len(classes) ** 2
    assert abs(neighbours - any_two) < 0.05
    labelled = (task.labels != UNLABELLED).double()
    assert abs(np.corrcoef(np.arange(len(task)), labelled.numpy())[0, 1]) < 0.1


def test_wrong_tasks_are_refused(digits):
    split = make_split(make_scenario("digits"), digits, 0)
    with pytest.raises(CampError, match=r"tasks 0\.\.1, not 2"):
        make_task(split, digits, 2, Named)
    with pytest.raises(CampError, match="of digits"):
        make_task(split, type(digits)(**{**vars(digits), "name": "other"}), 0, Named)
