"""Time of a CAMP step with 512 views: the full network relative to the view bank, and the bank relative to arithmetic.

Full network: all 12 blocks of the student and of the old model (ViT-S/16 at 224 pixels) run on 512 images, followed by the
backward pass of the last block. View bank: the step of `camp.methods.trainer`, which reads tokens of the trunk and stored
features of the old model. Both use the same objective, distiller and optimizer, in task 2 or later. The arithmetic limit of
a step is the time of its matrix products at the rate of one large product, measured between the steps.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from camp.core.progress import Progress
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.views import BankViews
from camp.data.view_settings import Augmentation, ViewSettings
from camp.methods.distillation import Distillation, Distiller, OldFeatures
from camp.methods.gccd.settings import CampSettings
from camp.methods.gccd.simgcd import SimgcdObjective
from camp.methods.settings import Training
from camp.methods.trainer import StepBatch, Trainer, TrainingData, frozen_copy
from camp.methods.two_views import TwoViewStep
from camp.nn.backbones import make_backbone
from camp.nn.backbones.base import Backbone
from camp.nn.backbones.settings import BackboneSettings
from camp.nn.distillers import make_distiller

PICTURES, OWN, LABELLED, AUGMENTATIONS = 256, 128, 128, 2


def random_bank(folder: Path, backbone: Backbone, pictures: int, augmentations: int) -> BankViews:
    """Write a bank of random tokens; the time of a step does not depend on their values."""
    spec = BankSpec.for_encoder(backbone, ViewSettings(augmentations=augmentations), Augmentation())
    bank = Bank(folder, spec)
    assert bank.augmented is not None
    rng = np.random.default_rng(0)
    digests = [rng.bytes(16) for _ in range(pictures)]
    for store in (bank.clean, bank.augmented):
        store.repair()
        for start in range(0, pictures, 64):
            part = digests[start : start + 64]
            block = {
                c.name: rng.standard_normal((len(part), *c.shape), dtype=np.float32).astype(c.dtype)
                for c in store.columns
            }
            store.append(part, block)
    return BankViews(bank, digests, torch.device("cpu"))


def make_trainer(backbone: Backbone, views: BankViews, own: int, old: OldFeatures) -> Trainer:
    """Return CAMP's phase 1 with half of the images labelled."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(len(views)) % 32
    labels[:own] = -1
    objective = SimgcdObjective(CampSettings(), backbone.dim, 200, draw)
    network = make_distiller("mlp", backbone.dim, draw)
    assert network is not None
    return Trainer(
        tip=backbone.tip,
        step=TwoViewStep(objective, Distiller(network, old, Distillation(0.5, "mse", "all", "mean"))),
        data=TrainingData(views, labels, own),
        settings=Training(),
        device=torch.device("cpu"),
        seeds=(0, 1),
    )


class Whole(nn.Module):
    """The full network: every block on every token, as in the reference code."""

    def __init__(self, backbone: Backbone, tip: nn.Module) -> None:
        super().__init__()
        trunk: nn.Module = backbone.trunk.trunk  # type: ignore[union-attr]
        self.embed = trunk
        self.tip = tip

    def forward(self, pixels: Tensor) -> Tensor:
        with torch.no_grad():
            trunk = self.embed
            patches = trunk.patch_embed.proj(pixels).flatten(2).transpose(1, 2)
            x = torch.cat([trunk.cls_token.expand(len(pixels), -1, -1), patches], dim=1) + trunk.pos_embed
            for block in trunk.blocks:
                x = block(x)
        for block in self.tip.blocks:
            x = block(x)
        return self.tip.norm(x[:, 0])


def plain_step(backbone: Backbone, training: Trainer) -> float:
    """Return the seconds of one step with the full network, on 512 images of random pixels."""
    student, old = Whole(backbone, backbone.tip), Whole(backbone, frozen_copy(backbone.tip))
    labels = torch.arange(LABELLED) % 32
    pixels = torch.randn(2 * PICTURES, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    begun = time.perf_counter()
    z = student(pixels).view(2, PICTURES, -1)
    with torch.no_grad():
        z_old = old(pixels).view(2, PICTURES, -1)
    terms = training.step.objective(z, OWN, labels, 0)
    distiller = training.step.modules()["distiller"]
    loss = 0.5 * terms["loss"] + 0.5 * (distiller(z.flatten(0, 1)) - z_old.flatten(0, 1)).square().mean()
    training.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(training.parameters, 1.0)
    training.optimizer.step()
    return time.perf_counter() - begun


@contextlib.contextmanager
def bank_trainer(name: str, images: int) -> Iterator[tuple[Backbone, Trainer]]:
    """Make a backbone and a trainer of a second task with a bank of `images` random images, half of them of the task."""
    settings = BackboneSettings(
        backbone=name, weights="random" if name.startswith("vit") else None, engine="torch"
    )
    backbone = make_backbone(settings, torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder:
        views = random_bank(Path(folder), backbone, images, AUGMENTATIONS)
        old = OldFeatures(frozen_copy(backbone.tip), views, backbone.dim, Progress(quiet=True))
        yield backbone, make_trainer(backbone, views, images // 2, old)


@dataclass(frozen=True)
class StepTimes:
    """Median seconds of the parts of a training step."""

    step: float
    """A whole step, whose views are in memory as the trainer prefetches them."""
    read: float
    """Reading the views from the bank."""
    pass_over_tokens: float
    """One pass over the tokens in memory."""
    limit: float
    """The matrix products of a step at the rate of one large product."""
    gflops: float
    """That rate, in 10^9 floating-point operations per second."""


def banked_step(training: Trainer, repeats: int = 25) -> StepTimes:
    """Time steps with the view bank."""
    views = training.data.views
    draw = torch.Generator().manual_seed(2)
    rows = torch.arange(PICTURES)
    times = []
    for _ in range(repeats):
        ids = views.draw(rows, 2, draw)
        begun = time.perf_counter()
        batch = views.augmented(rows, ids)
        read = time.perf_counter() - begun
        step = StepBatch(rows, OWN, ids, batch)
        begun = time.perf_counter()
        training.train_step(step, 0)
        whole = time.perf_counter() - begun
        begun = time.perf_counter()
        next(iter(batch.values())).view(torch.int32).amax()
        times.append((whole, read, time.perf_counter() - begun, _product_seconds_per_flop()))
    with FlopCounterMode(display=False) as counter:
        training.train_step(step, 0)
    whole, read, once, per_flop = np.median(np.array(times), axis=0).tolist()
    return StepTimes(whole, read, once, counter.get_total_flops() * per_flop, 1e-9 / per_flop)


def _product_seconds_per_flop() -> float:
    """Seconds per floating-point operation of a product of the size of a projector's."""
    n, m, k = 2 * PICTURES, 2048, 2048
    a, b = torch.ones(n, k), torch.ones(k, m)
    begun = time.perf_counter()
    torch.mm(a, b)
    return (time.perf_counter() - begun) / (2 * n * m * k)


def tip_alone(training: Trainer, repeats: int = 12) -> float:
    """Return the median seconds of the forward and backward pass of the tip on 512 views of the bank."""
    views, rows = training.data.views, torch.arange(PICTURES)
    batch = views.augmented(rows, views.draw(rows, 2, torch.Generator().manual_seed(3)))
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        training.tip(batch).square().sum().backward()
        times.append(time.perf_counter() - begun)
    return float(np.median(times))


def measure() -> dict[str, float]:
    """Compare a step with the full network, with the view bank, and with its arithmetic."""
    with bank_trainer("efficientnet-lite0", PICTURES) as (_, training):
        lite = banked_step(training)
    with bank_trainer("vit-s16", PICTURES) as (backbone, training):
        vit = banked_step(training)
        tip = tip_alone(training)
        plain = plain_step(backbone, training)
    return {
        "step_ratio": round(plain / (vit.step + vit.read), 1),
        "step_plain_seconds": round(plain, 2),
        "step_banked_seconds": round(vit.step + vit.read, 4),
        "step_read_seconds": round(vit.read, 4),
        "step_over_limit": round(lite.step / lite.limit, 2),
        "step_over_limit_vit_s16": round(vit.step / vit.limit, 2),
        "step_limit_seconds": round(lite.limit, 4),
        "step_limit_seconds_vit_s16": round(vit.limit, 4),
        "product_gflops": round(vit.gflops),
        "tip_over_bandwidth": round(tip / vit.pass_over_tokens, 2),
        "tip_views_per_second": round(2 * PICTURES / tip),
    }


if __name__ == "__main__":
    print(measure())
