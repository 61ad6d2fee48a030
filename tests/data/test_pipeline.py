"""Unreadable files."""

from pathlib import Path

import torch
from PIL import Image

from camp.core.progress import Progress
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.fill import fill
from camp.data.datasets.base import FileReader
from camp.data.view_settings import Augmentation, ViewSettings
from camp.nn.backbones import make_backbone
from camp.nn.backbones.settings import BackboneSettings


def test_a_missing_file_is_reported_and_the_others_are_stored(tmp_path: Path) -> None:
    backbone = make_backbone(BackboneSettings(backbone="conv-tiny"), torch.Generator().manual_seed(0))
    bank = Bank(tmp_path / "bank", BankSpec.for_encoder(backbone, ViewSettings(), Augmentation()))
    Image.new("RGB", (20, 20), "red").save(tmp_path / "a.png")
    keys = ["a.png", "gone.png"]
    filled = fill(bank, backbone, FileReader(tmp_path), keys, set(keys), Progress(quiet=True))
    assert list(filled.digests) == ["a.png"]
    assert "No such file" in filled.bad["gone.png"]
