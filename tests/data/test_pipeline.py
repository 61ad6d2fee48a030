"""Parallel mapping over images, and unreadable files."""

import threading
from pathlib import Path

import pytest
import torch
from PIL import Image

from camp.core.progress import Progress
from camp.data.bank.bank import Bank, BankSpec
from camp.data.bank.fill import fill
from camp.data.bank.pipeline import prefetch_map
from camp.data.datasets.base import FileReader
from camp.data.view_settings import Augmentation, ViewSettings
from camp.nn.backbones import make_backbone
from camp.nn.backbones.settings import BackboneSettings


def test_results_are_in_order_and_at_most_lookahead_in_advance() -> None:
    taken: list[int] = []
    results = prefetch_map(lambda n: n * n, (taken.append(n) or n for n in range(100)), lookahead=5)  # type: ignore[func-returns-value]
    assert next(results) == 0
    assert len(taken) == 6
    assert list(results) == [n * n for n in range(1, 100)]


def test_the_number_of_threads_is_as_before() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        inside = list(prefetch_map(lambda _: (torch.get_num_threads(), threading.get_ident()), range(3)))
        assert {threads for threads, _ in inside} == {1}
        assert threading.get_ident() not in {thread for _, thread in inside}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_error_is_raised_where_its_result_would_be() -> None:
    results = prefetch_map(lambda n: 1 // n, [1, 0])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_missing_file_is_reported_and_the_others_are_stored(tmp_path: Path) -> None:
    backbone = make_backbone(BackboneSettings(backbone="conv-tiny"), torch.Generator().manual_seed(0))
    bank = Bank(tmp_path / "bank", BankSpec.for_encoder(backbone, ViewSettings(), Augmentation()))
    Image.new("RGB", (20, 20), "red").save(tmp_path / "a.png")
    keys = ["a.png", "gone.png"]
    filled = fill(bank, backbone, FileReader(tmp_path), keys, set(keys), Progress(quiet=True))
    assert list(filled.digests) == ["a.png"]
    assert "No such file" in filled.bad["gone.png"]
