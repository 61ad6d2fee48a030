"""Peak memory of training from a view bank of 5 GB: an epoch of CAMP with distillation, ViT-S/16, in a separate process."""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from camp.core.progress import Progress
from camp.methods.distillation import OldFeatures
from camp.methods.trainer import frozen_copy
from camp.nn.backbones import make_backbone
from camp.nn.backbones.settings import BackboneSettings

GIGABYTES = 5.0
AUGMENTATIONS = 8


def train(folder: Path) -> dict[str, float]:
    """Train an epoch from the bank in `folder`; return peak memory and size of the bank."""
    from step import make_trainer

    from camp.data.bank.bank import Bank, BankSpec
    from camp.data.bank.views import BankViews
    from camp.data.view_settings import Augmentation, ViewSettings

    backbone = make_backbone(
        BackboneSettings(backbone="vit-s16", weights="random"), torch.Generator().manual_seed(0)
    )
    bank = Bank(
        folder, BankSpec.for_encoder(backbone, ViewSettings(augmentations=AUGMENTATIONS), Augmentation())
    )
    views = BankViews(bank, bank.clean.digests(), torch.device("cpu"))
    old = OldFeatures(frozen_copy(backbone.tip), views, backbone.dim, Progress(quiet=True))
    training = make_trainer(backbone, views, len(views), old)
    training.data.labels[: len(views) // 2] = torch.arange(len(views) // 2) % 32
    training.epoch(0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"train_peak_gb": round(peak / 2**20, 2), "train_bank_gb": round(bank.nbytes() / 1e9, 2)}


def measure() -> dict[str, float]:
    """Write a random bank and train from it in a separate process."""
    from step import random_bank

    backbone = make_backbone(
        BackboneSettings(backbone="vit-s16", weights="random"), torch.Generator().manual_seed(0)
    )
    bytes_per_view = 2 * 197 * 384 + 4 * 384
    images = int(GIGABYTES * 1e9 / bytes_per_view / (1 + AUGMENTATIONS)) + 1
    with tempfile.TemporaryDirectory() as folder:
        random_bank(Path(folder), backbone, images, AUGMENTATIONS)
        done = subprocess.run([sys.executable, __file__, folder], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    print(json.dumps(train(Path(sys.argv[1])) if len(sys.argv) > 1 else measure()))
