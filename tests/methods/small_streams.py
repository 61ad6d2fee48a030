"""Small real streams for the tests of methods: handwritten digits as images or as vectors, cut by hand."""

import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from camp.bench.settings import from_flat
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.fill import fill
from camp.data.bank.views import BankViews, FreshViews, ViewRenderer
from camp.data.datasets import load_dataset
from camp.data.datasets.base import Dataset
from camp.data.scenario import Scenario
from camp.data.split import Split
from camp.data.stream import make_task
from camp.data.tasks import Task, TaskTruth
from camp.data.view_settings import Augmentation, ViewSettings
from camp.methods.base import Method
from camp.methods.registry import METHODS, method_info
from camp.nn.backbones import BackboneSettings, make_backbone
from camp.nn.backbones.base import Backbone

QUIET = Progress(quiet=True)
CPU = torch.device("cpu")
TESTS_PER_CLASS = 4
KINDS = {
    "images": BackboneSettings(backbone="conv-tiny", resolution=8),
    "vectors": BackboneSettings(backbone="embeddings", dim=64),
}
BANKED = {
    "tokens": BackboneSettings(backbone="vit-s16", weights="random", resolution=32, depth=2),
    "maps": BackboneSettings(backbone="efficientnet-lite0", tip="mbconv", resolution=32),
    "pooled": BackboneSettings(backbone="efficientnet-lite0", tip="mlp", resolution=32),
}
"""With a trunk, whose output is kept in a bank; slower than `KINDS`."""
RESNET = {"resnet": BackboneSettings(backbone="resnet18-slim", resolution=16)}
"""Slower than `KINDS`, too."""
SMALL = {
    "epochs": 2,
    "batch_size": 16,
    "n_init": 3,
    "projector_width": 32,
    "max_novel": 3,
    "learning_rate": 1e-3,
    "train": True,
}
"""Options that make a method quick, where it has them; what a method does by default only without training is tried
elsewhere."""

Plan = dict[int, tuple[int, int]]
"""Of each digit of a task the number of labelled and of unlabelled images."""

USUAL: tuple[Plan, ...] = (
    {0: (6, 4), 1: (5, 5), 2: (0, 9)},
    {3: (6, 4), 4: (5, 5), 5: (0, 9)},
)
"""Two tasks of two known digits and a novel one."""
LABELLED: tuple[Plan, ...] = (
    {0: (10, 0), 1: (10, 0), 2: (9, 0)},
    {3: (10, 0), 4: (10, 0), 5: (9, 0)},
)
"""Class-incremental learning: two tasks of three digits, and every image has its label."""


@dataclass(frozen=True)
class Stream:
    """The tasks of a stream and the kind of network they are for."""

    kind: str
    tasks: list[tuple[Task, TaskTruth]]
    device: torch.device = CPU

    def build(self, name: str, seed: int = 0, **options: Any) -> Method:
        """The method `name` at its very beginning."""
        settings = small_settings(name, **options)
        if self.labelled:
            settings = settings.for_labelled_tasks()
        return method_info(name).build(backbone(self.kind, seed, self.device), settings, seed, self.device)

    @property
    def labelled(self) -> bool:
        """Whether every image has its label."""
        return all(bool((task.labels >= 0).all()) for task, _ in self.tasks)


def learn(method: Method, task: Task) -> list[dict[str, float]]:
    """All of one task."""
    method.start_task(task, QUIET)
    terms = [method.train_epoch(epoch) for epoch in range(method.epochs)]
    method.finish_task(QUIET)
    return terms


def backbone(kind: str, seed: int, device: torch.device = CPU) -> Backbone:
    settings = dataclasses.replace((KINDS | BANKED | RESNET)[kind], device=str(device))
    return make_backbone(settings, generator(seed, "backbone"))


def options_of(settings: type) -> set[str]:
    """Names of all options of a settings dataclass, nested ones too."""
    hints = typing.get_type_hints(settings)
    nested = {f.name: hints[f.name] for f in dataclasses.fields(settings)}
    inner = [options_of(kind) for kind in nested.values() if dataclasses.is_dataclass(kind)]
    return set(nested).union(*inner)


def takes(name: str, option: str) -> bool:
    return option in options_of(METHODS[name].settings_class())


def small_settings(name: str, **options: Any) -> Any:
    """The settings of the method `name`, made quick."""
    chosen = {option: value for option, value in SMALL.items() if takes(name, option)}
    return from_flat(name, {**chosen, **options}).settings


def dataset(kind: str, folder: Path) -> Dataset:
    if kind != "vectors":
        return load_dataset("digits")
    path = folder / "digits.npz"
    if not path.exists():
        digits = load_digits()
        np.savez(path, vectors=digits.data.astype(np.float32) / 16, labels=digits.target)
    return load_dataset("embeddings", path)


def split_of(data: Dataset, plans: Sequence[Plan], tell_k: bool) -> Split:
    """The split that deals images as `plans` say, each class in the order of its keys."""
    rows = [np.flatnonzero((data.labels == c) & ~data.is_test) for c in range(10)]
    tests = [np.flatnonzero((data.labels == c) & data.is_test) for c in range(10)]
    taken = [0] * 10
    tasks, seen = [], set()
    for plan in plans:
        parts: dict[str, dict[str, list[str]]] = {"labelled": {}, "unlabelled": {}, "test": {}}
        for digit, counts in plan.items():
            for part, count in zip(("labelled", "unlabelled"), counts):
                chosen = rows[digit][taken[digit] : taken[digit] + count]
                taken[digit] += count
                if count:
                    parts[part][str(digit)] = [data.keys[row] for row in chosen]
            if digit not in seen:
                parts["test"][str(digit)] = [data.keys[row] for row in tests[digit][:TESTS_PER_CLASS]]
        known = [str(digit) for digit, (labelled, _) in plan.items() if labelled]
        novel = [str(d) for d, (labelled, _) in plan.items() if not labelled and d not in seen]
        tasks.append({"known": known, "novel": novel, **parts})
        seen |= set(plan)
    scenario = Scenario(tasks=len(plans), order="given", tell_k=tell_k)
    classes = sorted({str(digit) for plan in plans for digit in plan})
    about = {"dataset": data.name, "seed": 0, "scenario": dataclasses.asdict(scenario), "classes": classes}
    split = Split.from_json({**about, "tasks": tasks})
    split.check(data)
    return split


def kinds_for(name: str) -> list[str]:
    """The kinds of input that the method `name` works on."""
    return ["images"] if METHODS[name].pixels else list(KINDS)


def stream(
    kind: str,
    folder: Path,
    plans: Sequence[Plan] = USUAL,
    tell_k: bool = True,
    device: torch.device = CPU,
) -> Stream:
    """Tasks with views as a run makes them, their bank in `folder`."""
    data = dataset(kind, folder)
    split = split_of(data, plans, tell_k)
    network, look = backbone(kind, 0, device), Augmentation(crop_scale=0.5, flip=0.0, jitter=0.0, grey=0.0)
    spec = BankSpec.for_encoder(network, ViewSettings(augmentations=3), look)
    bank = Bank(folder / kind, spec)
    train = {key for task in split.tasks for key in (*task.labelled, *task.unlabelled)}
    filled = fill(bank, network, data, split.keys(), train, QUIET)
    assert not filled.bad
    renderer = ViewRenderer(network, look, network.mean, network.std)

    def views_of(keys: Sequence[str]) -> BankViews:
        digests = [filled.digests[key] for key in keys]
        if kind in BANKED:
            return BankViews(bank, digests, device)
        return FreshViews(bank, digests, device, renderer)

    return Stream(kind, [make_task(split, data, t, views_of) for t in range(len(plans))], device)
