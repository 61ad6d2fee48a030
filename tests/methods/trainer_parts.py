"""A trainer of a few digits: its views, its networks, and how it is composed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from camp.core.progress import Progress
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.fill import fill
from camp.data.bank.views import BankViews, FreshViews, ViewRenderer
from camp.data.datasets import load_dataset
from camp.data.view_settings import Augmentation, ViewSettings
from camp.data.views import Batch, Field
from camp.methods.distillation import Distillation, Distiller, OldFeatures
from camp.methods.settings import Training
from camp.methods.trainer import Trainer, TrainingData
from camp.methods.two_views import TwoViewObjective, TwoViewStep
from camp.nn.backbones.base import Backbone, fingerprint_of
from camp.nn.backbones.residual_mlp import ResidualMlp

QUIET = Progress(quiet=True)
CPU = torch.device("cpu")
DIM = 12
OWN, EXEMPLARS, BATCH = 9, 2, 4
LABELS = torch.tensor([0, 1, 0, -1, -1, 2, -1, 1, -1, 3, 3])
"""Of nine images of the task and two exemplars."""
TRAINING = Training(epochs=10, batch_size=BATCH, learning_rate=0.01, clip=0.3, weight_decay=0.02)
DISTILLATION = Distillation(0.5, "mse", "all", "mean")

Parameters = dict[str, Tensor]


class Recording(BankViews):
    """Views that remember which were asked for."""

    asked: list[tuple[Tensor, Tensor]]

    def augmented(self, rows: Tensor, ids: Tensor) -> Batch:
        self.asked.append((rows.clone(), ids.clone()))
        return super().augmented(rows, ids)


def backbone() -> Backbone:
    """A trunk that projects the pixels of a digit at random, and a residual MLP in double precision."""
    projection = torch.randn(3 * 8 * 8, DIM, generator=torch.Generator().manual_seed(3)) / 8
    return Backbone(
        name="projection",
        dim=DIM,
        resolution=8,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        fields=(Field("vector", (DIM,), "exact"),),
        trunk=lambda x: {"vector": x.flatten(1) @ projection},
        tip=tip(0),
        fingerprint=fingerprint_of("projection of digits"),
        note="",
    )


def tip(seed: int) -> nn.Module:
    """A tip that has been trained a little, so that it is not the identity."""
    draw = torch.Generator().manual_seed(seed)
    network = ResidualMlp(DIM, DIM, draw)
    nn.init.normal_(network.fc2.weight, std=0.2, generator=draw)
    return network.double()


def digit_views(folder: Path) -> Callable[[type[BankViews]], Any]:
    """Views of a few digits out of a real bank in `folder` (three augmentations each), or made fresh."""
    data, network = load_dataset("digits"), backbone()
    keys = [key for key, test in zip(data.keys, data.is_test) if not test][: OWN + EXEMPLARS]
    look = Augmentation(crop_scale=0.5, flip=0.0)

    def views(kind: type[BankViews]) -> Any:
        settings = ViewSettings(views="fresh") if kind is FreshViews else ViewSettings(augmentations=3)
        spec = BankSpec.for_encoder(network, settings, look)
        bank = Bank(folder / spec.fingerprint(), spec)
        found = fill(bank, network, data, keys, set(keys), QUIET).digests
        digests = [found[key] for key in keys]
        if kind is FreshViews:
            return FreshViews(bank, digests, CPU, ViewRenderer(network, look, network.mean, network.std))
        opened = kind(bank, digests, CPU)
        if isinstance(opened, Recording):
            opened.asked = []
        return opened

    return views


def make_trainer(
    views: Any,
    objective: TwoViewObjective,
    *,
    network: nn.Module | None = None,
    settings: Training = TRAINING,
    distiller: nn.Module | None = None,
    distillation: Distillation = DISTILLATION,
    old: OldFeatures | None = None,
) -> Trainer:
    part = Distiller(distiller, old, distillation) if distiller is not None and old is not None else None
    return Trainer(
        tip=tip(1) if network is None else network,
        step=TwoViewStep(objective.double(), part),
        data=TrainingData(views, LABELS, OWN),
        settings=settings,
        device=CPU,
        seeds=(0, 1),
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def parameters_of(trainer: Trainer) -> Parameters:
    return {
        f"{part}.{name}": value.detach().clone().requires_grad_()
        for part, module in {"tip": trainer.tip, **trainer.step.modules()}.items()
        for name, value in module.named_parameters()
        if value.requires_grad
    }
