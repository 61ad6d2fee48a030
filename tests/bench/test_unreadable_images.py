"""Images that cannot be read, or are lost in the middle of a run."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from small_runs import SMALL, numbers, results_of, stop_after

import camp
from camp.core.errors import CampError

BROKEN = ("train/class 1/0.png", "train/class 3/2.png", "test/class 4/1.png")
IMAGES = {
    **SMALL,
    "tasks": 2,
    "novel_fraction": 0.34,
    "order": "given",
    "backbone": "conv-tiny",
    "resolution": 8,
}


def spoil(root: Path) -> None:
    for key in BROKEN:
        (root / key).write_text(f"{key} is not an image")


def skipped(folder: Path) -> list[str]:
    with (folder / "skipped.csv").open() as file:
        return [row["image"] for row in csv.DictReader(file)]


def split_keys(folder: Path) -> set[str]:
    tasks = json.loads((folder / "split.json").read_text())["tasks"]
    parts = [task[part] for task in tasks for part in ("labelled", "unlabelled", "test")]
    return {key for part in parts for keys in part.values() for key in keys}


def test_unreadable_images_are_left_out_and_listed(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(images)
    options = {**IMAGES, "data": images, "bad_share": 0.1}
    whole = camp.run("folder", out=tmp_path / "whole", **options)
    assert skipped(whole.folder) == sorted(BROKEN)
    assert split_keys(whole.folder).isdisjoint(BROKEN)
    assert results_of(whole.folder)["notes"] == ["3 images could not be read and were left out."]
    assert sum(task["test"] for task in results_of(whole.folder)["tasks"]) == 17

    # What the run went without does not matter any more: removed or mended, it ends in the same numbers.
    for name, change in (
        ("removed", lambda path: path.unlink()),
        ("mended", lambda path: Image.new("RGB", (20, 24), "red").save(path)),
    ):
        spoil(images)
        let_continue = stop_after(monkeypatch, 3)
        with pytest.raises(KeyboardInterrupt):
            camp.run("folder", out=tmp_path / name, **options)
        let_continue()
        for key in BROKEN:
            change(images / key)
        resumed = camp.run("folder", out=tmp_path / name, **options)
        assert numbers(resumed.folder) == numbers(whole.folder)
        assert skipped(resumed.folder) == sorted(BROKEN)


def test_too_many_unreadable_images_stop_a_run_until_they_are_gone(images: Path, tmp_path: Path) -> None:
    whole = {key: (images / key).read_bytes() for key in BROKEN}
    spoil(images)
    options = {**IMAGES, "data": images, "bad_share": 0.02}
    for name in ("removed", "mended"):
        out = tmp_path / name
        with pytest.raises(CampError) as error:
            camp.run("folder", out=out, **options)
        assert str(error.value).startswith(
            "3 of 66 images could not be read, more than the 2% that --bad-share"
        )
        assert f"use --resume {out}" in str(error.value)
        assert skipped(out) == sorted(BROKEN)
        assert not (out / "split.json").exists()
    for key in BROKEN:
        (images / key).unlink()
    removed = camp.run("folder", out=tmp_path / "removed", **options)
    assert sum(task["test"] for task in results_of(removed.folder)["tasks"]) == 17
    for key, data in whole.items():
        (images / key).write_bytes(data)
    mended = camp.run("folder", out=tmp_path / "mended", **options)
    assert split_keys(mended.folder) == split_keys(removed.folder) | set(BROKEN)
    for finished in (removed, mended):
        assert not (finished.folder / "skipped.csv").exists()
        assert results_of(finished.folder)["notes"] == []


@pytest.mark.parametrize(
    ("lose", "sentence"),
    [
        (lambda path: path.unlink(), "was a file removed?"),
        (lambda path: path.write_bytes(b"torn"), "1 of the run's 66 images can no longer be read"),
    ],
)
def test_an_image_lost_in_the_middle_of_a_run(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Any, sentence: str
) -> None:
    options = {**IMAGES, "data": images}
    let_continue = stop_after(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        camp.run("folder", out=tmp_path / "run", **options)
    let_continue()
    path = images / "train/class 0/5.png"
    kept = path.read_bytes()
    lose(path)
    with pytest.raises(CampError) as error:
        camp.run("folder", out=tmp_path / "run", **options)
    assert sentence in str(error.value)
    path.write_bytes(kept)
    assert camp.run("folder", out=tmp_path / "run", **options).accuracy["all"] is not None
