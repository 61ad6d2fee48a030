"""Options and results of small runs, and a user who presses Ctrl-C."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camp.bench.settings import option_names
from camp.methods.gccd.centroid_method import CentroidMethod

SMALL: dict[str, Any] = {
    "images_per_class": 12,
    "test_per_class": 4,
    "epochs": 2,
    "batch_size": 32,
    "n_init": 3,
    "projector_width": 32,
    "quiet": True,
}
DIGITS = {**SMALL, "resolution": 8, "tasks": 2}


def taken(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that a run with `method` has."""
    return {key: options[key] for key in options if key in (*option_names(method), "quiet")}


def results_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


def numbers(folder: Path) -> dict[str, Any]:
    """Return the results without times and without what depends on the name of the folder."""
    results = results_of(folder)
    for varying in ("seconds", "name", "command", "settings"):
        del results[varying]
    return {"results": results, "predictions": (folder / "predictions.csv").read_text()}


def stop_after(monkeypatch: pytest.MonkeyPatch, epochs: int) -> Callable[[], None]:
    """Press Ctrl-C after this many epochs; returns a function that lets training continue."""
    train, done = CentroidMethod.train_epoch, 0

    def interrupted(self: CentroidMethod, epoch: int) -> dict[str, float]:
        nonlocal done
        if done == epochs:
            raise KeyboardInterrupt
        done += 1
        return train(self, epoch)

    monkeypatch.setattr(CentroidMethod, "train_epoch", interrupted)
    return lambda: monkeypatch.setattr(CentroidMethod, "train_epoch", train)
