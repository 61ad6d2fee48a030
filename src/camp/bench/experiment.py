"""An experiment: its data set, split, backbone and method, ready to run."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch

from camp.bench.settings import RunSettings
from camp.core import distributed
from camp.core.errors import CampError
from camp.core.files import read_json
from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.data.bank.bank import REFERENCE_MEAN, REFERENCE_STD, Bank, BankSpec
from camp.data.bank.fill import Block, FillResult, fill
from camp.data.bank.views import BankViews, ViewRenderer, open_bank_views
from camp.data.datasets import dataset_info, load_dataset
from camp.data.datasets.base import Dataset
from camp.data.make_split import make_split
from camp.data.split import Split
from camp.data.stream import make_task
from camp.data.tasks import Task, TaskTruth
from camp.methods.base import Method
from camp.methods.registry import method_info
from camp.nn.backbones import make_backbone
from camp.nn.backbones.base import Backbone
from camp.nn.backbones.settings import BackboneSettings

BlockMaker = Callable[[dict[str, bytes], list[str]], Iterable[Block]]
"""Makes blocks of views from the fingerprints of all images and the keys that the bank lacks."""

_SCALE_VECTORS = 10_000
"""Number of vectors of the first task by which the scale of vectors is measured."""


@dataclass(frozen=True)
class Experiment:
    """The parts of an experiment. Preparing them finds mistakes of the user before anything is written."""

    settings: RunSettings
    """With the defaults that depend on the split filled in."""
    dataset: Dataset
    split: Split
    backbone: Backbone
    method: Method
    device: torch.device

    @classmethod
    def prepare(cls, settings: RunSettings, split: Split | None = None) -> Self:
        """Load the data set, divide it into tasks unless `split` is given, and build the backbone and the method."""
        data = settings.data
        path = Path(data.data) if data.data is not None else None
        dataset = load_dataset(data.dataset, path, **data.loader_options())
        split = split or _make_split(settings, dataset)
        split.check(dataset)
        check_split(split)
        device_name = distributed.local_device(settings.backbone.device)
        chosen = dataclasses.replace(_backbone_settings(settings, dataset, split), device=device_name)
        backbone = make_backbone(chosen, generator(settings.seed, "backbone"))
        settings = settings.for_split(split)
        build, device = method_info(settings.method).build, torch.device(device_name)
        method: Method = build(backbone, settings.settings, settings.seed, device)
        _check_views(settings, method)
        experiment = cls(settings, dataset, split, backbone, method, device)
        experiment.bank().check_place()
        return experiment

    def image_keys(self) -> tuple[list[str], set[str]]:
        """Return the keys of all images of the split, sorted, and those of images that need augmented views."""
        train = {key for task in self.split.tasks for key in (*task.labelled, *task.unlabelled)}
        keys = sorted(train.union(*(task.test for task in self.split.tasks)))
        return keys, train if self.method.trains else set()

    def bank(self) -> Bank:
        """Open the view bank that the experiment reads."""
        views = self.settings.views
        return Bank.open(views, BankSpec.for_encoder(self.backbone, views, self.settings.augmentation()))

    def fill_bank(self, progress: Progress, make_blocks: BlockMaker | None = None) -> FillResult:
        """Add the views of all images of the split to the view bank; `make_blocks` makes them elsewhere."""
        keys, train = self.image_keys()
        return fill(self.bank(), self.backbone, self.dataset, keys, train, progress, make_blocks)

    def tasks(self, digests: dict[str, bytes]) -> list[tuple[Task, TaskTruth]]:
        """Return the tasks of the split, and apart from them their true labels; `digests` are those of `fill_bank`."""
        bank = self.bank()
        reference = self.settings.views.normalisation == "reference"
        renderer = ViewRenderer(
            self.backbone,
            self.settings.augmentation(),
            REFERENCE_MEAN if reference else self.backbone.mean,
            REFERENCE_STD if reference else self.backbone.std,
        )

        def open_views(keys: Sequence[str]) -> BankViews:
            return open_bank_views(bank, [digests[key] for key in keys], self.device, renderer)

        return [make_task(self.split, self.dataset, t, open_views) for t in range(len(self.split.tasks))]


def check_split(split: Split) -> None:
    """Refuse a split that cannot be run to its end."""
    for index, task in enumerate(split.tasks):
        if not split.scenario.tell_k and not task.labelled:
            raise CampError(
                f"The number of categories is estimated from labelled images, and task {index + 1} has none: "
                "use --k known."
            )
    if not split.tasks[0].test:
        raise CampError("The first task has no test images, so nothing could be measured; add some.")


def _check_views(settings: RunSettings, method: Method) -> None:
    """Refuse a bank with too few views for training."""
    views = settings.views
    if method.trains and views.views == "bank" and views.augmentations < 2:
        raise CampError(
            f"Training compares two views of an image, so {settings.method} needs at least 2 augmentations, "
            f"not {views.augmentations}."
        )


def _make_split(settings: RunSettings, dataset: Dataset) -> Split:
    if settings.data.split is None:
        return make_split(settings.data.scenario(), dataset, settings.seed)
    split = Split.from_json(read_json(Path(settings.data.split)))
    split.check(dataset)
    scenario = dataclasses.replace(split.scenario, tell_k=settings.data.k == "known")
    return dataclasses.replace(split, scenario=scenario)


def _backbone_settings(settings: RunSettings, dataset: Dataset, split: Split) -> BackboneSettings:
    """Fill in what depends on the data: the data set's preferred backbone, length and scale of vectors."""
    backbone = settings.backbone
    if backbone.backbone is None and backbone.weights is None:
        preferred = dataset_info(settings.data.dataset).backbone
        backbone = backbone.with_name(preferred) if preferred else backbone
    if backbone.backbone != "embeddings":
        return backbone
    first = sorted((*split.tasks[0].labelled, *split.tasks[0].unlabelled))[:_SCALE_VECTORS]
    vectors = [dataset.decode(dataset.read(key)) for key in first]
    if not all(isinstance(vector, np.ndarray) for vector in vectors):
        raise CampError(f"The backbone embeddings takes vectors, and {dataset.name} has images.")
    return backbone.with_vectors(np.stack([np.asarray(vector) for vector in vectors]))
