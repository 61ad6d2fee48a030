"""What is measured after a task, on a line: features are numbers, and a method without centroids sorts them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from camp.bench.evaluation.accuracy import AccuracyRow
from camp.bench.evaluation.after_task import Evaluator, TaskMeasurement
from camp.bench.evaluation.class_groups import NO_CLASS, PROTOCOLS
from camp.bench.records import _most_typical, category_records
from camp.core.progress import Progress
from camp.data.datasets import load_dataset
from camp.data.tasks import Task, TaskTruth
from camp.methods.base import CentroidDrift, LearnedCategory

QUIET = Progress(quiet=True)
PERFECT = AccuracyRow(all=[1.0], known=[1.0], novel=[1.0])


class Numbers:
    """Views that are the features themselves, (n, 1)."""

    def __init__(self, values: list[float]) -> None:
        self.values = torch.tensor(values)[:, None]

    def __len__(self) -> int:
        return len(self.values)

    def clean(self, rows: Tensor) -> dict[str, Tensor]:
        return {"z": self.values[rows]}


class Sorter:
    """Puts a number into the category whose place is nearest; it has categories, but no centroids."""

    centroids, drift = None, None

    def __init__(self, places: list[float], labels: list[int | None], task: int = 0) -> None:
        self.places = torch.tensor(places)
        self.categories = [LearnedCategory(i, task, label, 1) for i, label in enumerate(labels)]
        self.train = torch.empty(0, 1)

    def features(self, batch: dict[str, Tensor]) -> Tensor:
        return batch["z"]

    def predict(
        self, features: Tensor, allowed: Tensor | None = None, centroids: Tensor | None = None
    ) -> Tensor:
        places = self.places if centroids is None else centroids[:, 0]
        allowed = torch.arange(len(self.places)) if allowed is None else allowed
        return allowed[(features - places[allowed]).abs().argmin(dim=1)]

    def assigned(self) -> Tensor:
        return self.predict(self.train)


def first_task(method: Sorter) -> list[tuple[Task, TaskTruth]]:
    """Known classes 0 at 0 and novel ones 1 at 10, 2 at 20; three images each, and as many for the test."""
    views = Numbers([0.0, 0.1, 0.2, 10.0, 10.1, 10.2, 20.0, 20.1, 20.2])
    classes = np.repeat([0, 1, 2], 3)
    method.train = views.values
    labels = torch.tensor([0, 0, *[-1] * 7])
    names, keys = ("zero", "ten", "twenty"), tuple("abcdefghi")
    truth = TaskTruth(0, (0,), (1, 2), classes, keys, views, classes, keys, (0,), names)  # type: ignore[arg-type]
    return [(Task(0, views, labels, 2, 3), truth)]  # type: ignore[arg-type]


def measured(evaluator: Evaluator, method: Any) -> TaskMeasurement:
    return evaluator.after_task(method, first_task(method), QUIET)


def test_every_protocol_has_a_row_and_a_summary() -> None:
    record = measured(Evaluator(), Sorter([0.0, 10.0, 20.0], [0, None, None]))
    for name in PROTOCOLS:
        assert record.rows[name] == PERFECT
        assert record.summary[name].final.all == 1.0


@pytest.mark.filterwarnings("error")  # the mean of nothing warns
def test_a_category_without_images_stands_for_nothing_and_the_others_are_matched() -> None:
    evaluator = Evaluator()
    record = measured(evaluator, Sorter([0.0, 500.0, 20.0, 10.0], [0, None, None, None]))
    assert evaluator.class_of_category == [0, NO_CLASS, 2, 1]
    assert record.rows["agnostic"].novel == [1.0]
    nobody = Evaluator()
    measured(nobody, Sorter([0.0, 500.0], [0, None]))
    assert nobody.class_of_category == [0, NO_CLASS]


def test_a_task_matched_by_itself_forgives_swapped_names() -> None:
    """The category of the known class sits on the novel class at 10: wrong, but kept apart."""
    record = measured(Evaluator(), Sorter([10.0, 0.0, 20.0], [0, None, None]))
    assert record.rows["test_hungarian"].known == [0.0]
    assert record.rows["task_hungarian"] == PERFECT


def test_a_checkpoint_from_before_a_protocol_goes_on_without_it() -> None:
    old = Evaluator()
    measured(old, Sorter([0.0, 10.0, 20.0], [0, None, None]))
    state = old.model_dump()
    del state["rows"]["task_hungarian"]
    method = Sorter([0.0, 10.0, 20.0], [0, None, None])
    [(task, truth)] = first_task(method)
    record = Evaluator.model_validate(state).after_task(method, [(task, truth), (task, truth)], QUIET)  # type: ignore[arg-type]
    assert "task_hungarian" not in record.rows
    assert "task_hungarian" not in record.summary
    assert len(record.rows["agnostic"].all) == 2
    assert record.summary["agnostic"].final.all == 1.0


class Moved(Sorter):
    """The same by centroids, of which the first stood elsewhere before."""

    def __init__(self, places: list[float], labels: list[int | None], before: float) -> None:
        super().__init__(places, labels)
        self.centroids = self.places[:, None]  # type: ignore[assignment]
        self.drift = CentroidDrift(torch.tensor([[before]]), self.places[:1, None])  # type: ignore[assignment]


def test_accuracy_by_centroids_as_they_were_stored() -> None:
    labels: list[int | None] = [0, None, None]
    moved = Moved(
        [0.0, 10.0, 20.0], labels, before=30.0
    )  # which is nobody's place: zeros were taken for tens
    record = measured(Evaluator(), moved)
    assert record.rows["agnostic"] == PERFECT
    assert record.stored == AccuracyRow(all=[2 / 3], known=[0.0], novel=[1.0])
    assert moved.centroids[:, 0].tolist() == [0.0, 10.0, 20.0]  # type: ignore[index]
    assert measured(Evaluator(), Moved([0.0, 10.0, 20.0], labels, before=0.0)).stored is None
    assert measured(Evaluator(), Sorter([0.0, 10.0, 20.0], labels)).stored is None


def test_typical_images_are_nearest_to_the_mean_where_there_are_no_centroids(tmp_path: Path) -> None:
    method = Sorter([0.0, 10.0, 500.0], [0, None, None])
    views = Numbers([0.0, 8.0, 9.0, 9.6, 10.0, 10.5, 11.1, 12.0, 14.0])
    method.train = views.values
    dataset = load_dataset("digits")
    classes = np.array([0, *[1] * 8])
    keys = tuple(dataset.keys[:9])
    truth = TaskTruth(0, (0,), (1,), classes, keys, views, classes, keys, (0,), ("zero", "ten"))  # type: ignore[arg-type]
    task = Task(0, views, torch.full((9,), -1), 1, 2)  # type: ignore[arg-type]
    known, found, empty = category_records(method, task, truth, [0, 1, NO_CLASS], dataset, tmp_path)  # type: ignore[arg-type]
    assert known.images == empty.images == []
    assert len(found.images) == 6
    rows = _most_typical(method, task, np.arange(1, 9), 1)  # type: ignore[arg-type]
    assert rows == [5, 4, 6, 3, 7, 2]  # the mean is 10.5
    assert (empty.matched, empty.purity) == (None, None)
