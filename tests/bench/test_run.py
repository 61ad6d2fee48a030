"""Whole runs, small: from Python as the README has it, over every setting, backbone and kind of data."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import DIGITS, TINY, numbers, results_of, stop_after, taken

import camp
from camp.core.errors import CampError
from camp.data.scenario import PRESETS
from camp.methods.registry import METHODS


def test_from_python(tmp_path: Path) -> None:
    finished = camp.run("digits", out=tmp_path / "run", method="camp", **DIGITS)
    assert set(finished.accuracy) == {"all", "known", "novel"}
    assert finished.accuracy["all"] > 0.4  # ten digits, hardly trained; chance is 0.1
    assert "camp" in finished.table()
    assert finished.table("md").startswith("|")
    assert finished.table("csv").count("\n") >= 1
    assert "\\begin{tabular}" in finished.table("latex")
    page = finished.page()
    assert page == tmp_path / "run" / "report.html"
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")
    assert finished.page(tmp_path / "there.html").exists()
    assert camp.load(tmp_path / "run").accuracy == finished.accuracy

    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["task"], line["epoch"]) for line in lines] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {"simclr", "pseudo", "entropy", "supcon", "ce", "loss", "seconds"} <= lines[0].keys()
    assert "kd" in lines[2]
    with (tmp_path / "run" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    right = np.mean([row["right"] == "1" for row in rows])
    assert right == pytest.approx(finished.accuracy["all"])  # tasks of the same size
    assert all((row["right"] == "1") == (row["class"] == row["predicted"]) for row in rows)


def test_called_again_it_goes_on_or_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = camp.run("digits", out=tmp_path / "whole", **DIGITS)
    let_go_on = stop_after(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        camp.run("digits", out=tmp_path / "run", **DIGITS)
    assert len(results_of(tmp_path / "run")["tasks"]) == 1
    let_go_on()
    resumed = camp.run("digits", out=tmp_path / "run", **DIGITS)
    assert numbers(resumed.folder) == numbers(undisturbed.folder)

    before = (tmp_path / "run" / "results.json").stat().st_mtime_ns
    assert camp.run("digits", out=str(tmp_path / "run"), **DIGITS).accuracy == resumed.accuracy
    assert (tmp_path / "run" / "results.json").stat().st_mtime_ns == before
    with pytest.raises(CampError, match="holds a run with other settings"):
        camp.run("digits", out=tmp_path / "run", **{**DIGITS, "seed": 1})
    with pytest.raises(CampError, match="holds a run with other settings"):
        camp.run("digits", out=tmp_path / "run", method="gcd", **DIGITS)


def test_numbers_of_numpy_and_paths_are_options_too(vectors: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {**TINY, "epochs": np.int64(1), "learning_rate": np.float32(0.001)}
    camp.run("embeddings", out=tmp_path / "run", data=vectors, seed=np.arange(3)[2], **options)
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["seed"], settings["settings"]["training"]["epochs"]) == (2, 1)
    assert settings["data"]["data"] == str(vectors)


def test_a_split_given_back_gives_the_same_tasks(tmp_path: Path) -> None:
    first = camp.run("digits", out=tmp_path / "first", **DIGITS)
    rest = {key: DIGITS[key] for key in DIGITS.keys() - {"tasks", "images_per_class", "test_per_class"}}
    split = tmp_path / "first" / "split.json"
    again = camp.run("digits", out=tmp_path / "again", split=split, **rest)
    assert (tmp_path / "again" / "split.json").read_bytes() == split.read_bytes()
    assert numbers(again.folder) == numbers(first.folder)
    with pytest.raises(CampError, match="A given split already decides tasks"):
        camp.run("digits", out=tmp_path / "both", split=split, tasks=2, **rest)
    (tmp_path / "torn.json").write_text("{")
    with pytest.raises(CampError, match="not valid JSON"):
        camp.run("digits", out=tmp_path / "torn", split=tmp_path / "torn.json", **rest)
    with pytest.raises(CampError, match="which the given split does not have"):
        camp.run("digits", out=tmp_path / "both", method="lwf", split=split, **taken("lwf", rest))
    assert not (tmp_path / "both").exists()
    assert not (tmp_path / "torn").exists()


SETTINGS = [(setting, method) for setting in PRESETS for method in METHODS if not METHODS[method].supervised]
SETTINGS += [("cil", method) for method in METHODS if METHODS[method].supervised]


@pytest.mark.parametrize(("setting", "method"), SETTINGS)
def test_every_setting_of_the_supplement(tmp_path: Path, setting: str, method: str) -> None:
    options = taken(method, {key: DIGITS[key] for key in DIGITS if key != "tasks"})
    finished = camp.run("digits", out=tmp_path / "run", method=method, setting=setting, **options)
    results = results_of(tmp_path / "run")
    assert len(results["tasks"]) == results["tasks_planned"] == (1 if setting == "gcd" else 2)
    assert finished.page().exists()
    for task in results["tasks"]:
        # What a setting says about labels is what its tasks have.
        assert (task["labelled"] == 0) == (setting == "ssl-cl" or (setting == "cgcd" and task["task"] == 1))
        assert (task["unlabelled"] == 0) == (setting == "cil" or (setting == "cgcd" and task["task"] == 0))
        assert len(task["novel"]) == task["novel_true"] == task["novel_used"]
    final = finished.accuracy
    assert (final["novel"] is None) == (setting in ("cil", "semi-cl"))
    assert (final["known"] is None) == (setting == "ssl-cl")
    assert final["all"] is not None
    if method not in ("simgcd", "igcd", "pass", "il2a"):  # their classifiers have only begun to learn by then
        assert results["tasks"][0]["agnostic"]["all"][0] > 0.3  # after the first task; chance is 0.1 to 0.2


def test_camp_takes_the_papers_numbers_where_every_picture_has_a_label(tmp_path: Path) -> None:
    for setting, alpha, terms in (
        ("cil", 0.9, {"supcon", "ce"}),
        ("semi-cl", None, {"simclr", "supcon", "ce"}),
    ):
        camp.run("digits", out=tmp_path / setting, setting=setting, **DIGITS)
        assert results_of(tmp_path / setting)["settings"]["settings"]["alpha"] == alpha
        line = json.loads((tmp_path / setting / "metrics.jsonl").read_text().splitlines()[0])
        assert terms <= line.keys()
        assert ("simclr" in line) == (setting != "cil")
        # What was asked for is kept as it was, so that the same call finds its run again.
        assert (
            camp.run("digits", out=tmp_path / setting, setting=setting, **DIGITS).folder == tmp_path / setting
        )


def test_the_number_of_categories_estimated(tmp_path: Path) -> None:
    finished = camp.run("digits", out=tmp_path / "run", k="estimated", max_novel=4, **DIGITS)
    results = results_of(tmp_path / "run")
    assert results["k"] == "estimated"
    for task in results["tasks"]:
        assert 0 <= task["novel_used"] <= 4
        assert [k for k, _ in task["curve"]] == sorted(k for k, _ in task["curve"])
        assert len([c for c in results["categories"] if c["task"] == task["task"]]) == 4 + task["novel_used"]
    assert finished.page().exists()


def test_exemplars(tmp_path: Path) -> None:
    camp.run("digits", out=tmp_path / "run", exemplars=5, **DIGITS)
    assert results_of(tmp_path / "run")["exemplars"] == 5
    camp.run("digits", out=tmp_path / "none", **DIGITS)
    with_memory, without = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("run", "none")
    )
    assert with_memory[1]["loss"] == without[1]["loss"]
    assert with_memory[2]["loss"] != without[2]["loss"]


def test_a_trunk_from_the_bank_and_fresh(pictures: Path, tmp_path: Path) -> None:
    options = {**TINY, "tasks": 2, "novel_fraction": 0.34, "order": "given", "data": pictures,
               "backbone": "vit-s16", "weights": "random", "resolution": 32, "depth": 2}  # fmt: skip
    banked = camp.run("folder", out=tmp_path / "bank", augmentations=3, **options)
    fresh = camp.run("folder", out=tmp_path / "fresh", views="fresh", **options)
    coded = camp.run("folder", out=tmp_path / "int8", augmentations=3, precision="int8", **options)
    assert results_of(banked.folder)["views"] == 3
    assert results_of(fresh.folder)["views"] is None
    banks = [json.loads(path.read_text())["precision"] for path in (tmp_path / "banks").glob("*/bank.json")]
    assert sorted(banks) == ["half", "int8", "plain"]
    # The same pictures, split and network before training; views differ, so losses do, but not by much.
    losses = [
        json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[0])["loss"]
        for run in (banked, fresh, coded)
    ]
    assert len(set(losses)) == 3
    assert max(losses) - min(losses) < 1
    assert any("random weights" in note for note in results_of(banked.folder)["notes"])


def test_vectors(vectors: Path, tmp_path: Path) -> None:
    finished = camp.run("embeddings", out=tmp_path / "run", data=vectors, tasks=2, **TINY)
    results = results_of(tmp_path / "run")
    assert results["backbone"] == "embeddings"
    assert results["resolution"] == 0
    assert finished.accuracy["all"] > 0.5
    assert all(category["images"] == [] for category in results["categories"])
    assert finished.page().exists()
    vectors.unlink()  # a finished run can do without
    assert camp.run("embeddings", out=tmp_path / "run", data=vectors, tasks=2, **TINY).accuracy
