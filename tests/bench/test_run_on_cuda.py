"""Whole runs on the fake CUDA device, from the command to results.json, with the results of the CPU."""

from pathlib import Path
from typing import Any

import pytest
from small_runs import DIGITS, SMALL, results_of, stop_after, taken

import camp
from camp.methods.registry import METHODS
from fake_cuda import fake_cuda


def check_alike(folder: Path, other: Path) -> None:
    """Check that two runs predict the same, but for images between two categories: rounding differs."""
    tasks, others = (results_of(run)["tasks"] for run in (folder, other))
    assert [task["novel_used"] for task in tasks] == [task["novel_used"] for task in others]
    predictions, expected = ((run / "predictions.csv").read_text().splitlines() for run in (folder, other))
    assert len(predictions) == len(expected)
    different = sum(row != expected_row for row, expected_row in zip(predictions, expected))
    assert different < len(expected) / 10


def check_run(dataset: str, options: dict[str, Any], folder: Path) -> None:
    camp.run(dataset, out=folder / "cpu", **options)
    with fake_cuda() as cuda:
        camp.run(dataset, out=folder / "cuda", device="cuda", **options)
        assert cuda.operations > 10
    check_alike(folder / "cuda", folder / "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_run_on_a_gpu_has_the_results_of_the_cpu(method: str, tmp_path: Path) -> None:
    options = taken(method, DIGITS) | {"method": method}
    if METHODS[method].supervised:
        options["setting"] = "cil"
    check_run("digits", options, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    [
        {"backbone": "vit-s16", "weights": "random", "depth": 2, "resolution": 32},
        {"backbone": "vit-s16", "weights": "random", "depth": 2, "resolution": 32, "precision": "int8"},
        {"backbone": "efficientnet-lite0", "resolution": 64},
        {"backbone": "efficientnet-lite0", "tip": "mbconv", "resolution": 64},
        {"backbone": "efficientnet-lite0", "tip": "mbconv", "resolution": 64, "views": "fresh"},
    ],
)
def test_a_run_on_a_gpu_with_a_bank_or_fresh_views(
    network: dict[str, Any], images: Path, tmp_path: Path
) -> None:
    options = {**SMALL, "tasks": 2, "novel_fraction": 0.34, "augmentations": 3, "engine": "torch"}
    del options["images_per_class"], options["test_per_class"]
    check_run("folder", options | network | {"method": "camp", "data": str(images)}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_an_interrupted_run_on_a_gpu_continues_there_and_on_the_cpu(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camp.bench.run_loop.CHECKPOINT_SECONDS", 0.0)
    with fake_cuda():
        whole = camp.run("digits", out=tmp_path / "whole", device="cuda", **DIGITS)
        carry_on = stop_after(monkeypatch, 3)
        with pytest.raises(KeyboardInterrupt):
            camp.run("digits", out=tmp_path / "part", device="cuda", **DIGITS)
        carry_on()
        camp.run("digits", out=tmp_path / "part", device=device, **DIGITS)
    assert whole.table()
    check_alike(tmp_path / "part", tmp_path / "whole")
