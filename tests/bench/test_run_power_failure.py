"""A power failure at any time in a run: the last checkpoint is there, and the resumed run ends in the same numbers."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from test_resume import OPTIONS, numbers

from camp.bench import run_loop
from camp.bench.checkpoint import load_checkpoint, save_checkpoint
from camp.bench.run_folder import RunFolder
from camp.cli import main
from crashes import Recorder, restore, states

RESUMED = 3
"""How many of the states the run is resumed from; a run takes seconds."""


@pytest.mark.slow
def test_a_run_after_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_loop, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setenv("CAMP_BANKS", str(tmp_path / "banks"))
    root = tmp_path / "root"
    root.mkdir()
    with Recorder(root) as recorder:

        def save(folder: Path, checkpoint: Any) -> None:
            save_checkpoint(folder, checkpoint)
            recorder.done((checkpoint.task, checkpoint.epoch or 0))

        with monkeypatch.context() as patch:
            patch.setattr(run_loop, "save_checkpoint", save)
            assert main(["run", *OPTIONS, "--out", str(root / "run")]) == 0
    every = list(states(recorder, variants=1))
    started = [number for number, (promised, _) in enumerate(every) if promised]
    chosen = set(started[:: len(started) // RESUMED])
    for number, (promised, left) in enumerate(every):
        folder = RunFolder(restore(left, tmp_path / "state") / "run")
        if promised:
            saved = load_checkpoint(folder.checkpoint)
            assert saved is not None
            assert (saved.task, saved.epoch or 0) >= promised[-1]
            assert folder.read_config().settings.seed == 0
            assert folder.read_split() is not None
            done = [
                (line["task"], line["epoch"])
                for line in folder.metrics_of_task(0) + folder.metrics_of_task(1)
            ]
            expected = [
                (task, epoch) for task in (0, 1) for epoch in range(3) if (task, epoch) < promised[-1]
            ]
            assert done[: len(expected)] == expected
        if number in chosen:
            assert main(["run", "--resume", str(folder.path), "--quiet"]) == 0
            assert numbers(folder.path) == numbers(root / "run")
        shutil.rmtree(tmp_path / "state")
    assert len(every) > 100
