"""Whole runs, small: from Python as the README shows it, with every setting, method, backbone and type of data."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import DIGITS, SMALL, numbers, results_of, stop_after, taken

import camp
from camp.core.errors import CampError
from camp.data.scenario import SCENARIO_PRESETS
from camp.methods.registry import METHODS


def epochs_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_results_from_python(digits_run: camp.RunResult, tmp_path: Path) -> None:
    assert set(digits_run.accuracy) == {"all", "known", "novel"}
    assert digits_run.accuracy["all"] > 0.4  # ten digits, hardly trained; chance is 0.1
    assert "camp" in digits_run.table()
    assert digits_run.table("md").startswith("|")
    assert digits_run.table("csv").count("\n") >= 1
    assert "\\begin{tabular}" in digits_run.table("latex")
    page = digits_run.page(tmp_path / "there.html")
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")
    assert digits_run.page() == digits_run.folder / "report.html"
    assert camp.load(digits_run.folder).accuracy == digits_run.accuracy


def test_files_of_a_run(digits_run: camp.RunResult) -> None:
    lines = epochs_of(digits_run.folder)
    assert [(line["task"], line["epoch"]) for line in lines] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {"simclr", "pseudo", "entropy", "supcon", "ce", "loss", "seconds"} <= lines[0].keys()
    assert "kd" in lines[2]
    with (digits_run.folder / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    right = np.mean([row["right"] == "1" for row in rows])
    assert right == pytest.approx(digits_run.accuracy["all"])  # tasks of the same size
    assert all((row["right"] == "1") == (row["class"] == row["predicted"]) for row in rows)


def test_config_records_the_software_and_hardware(digits_run: camp.RunResult) -> None:
    config = json.loads((digits_run.folder / "config.json").read_text())
    made = config["provenance"]
    assert made.keys() == {"version", "commit", "torch", "device", "threads"}
    assert (made["version"], made["torch"]) == (camp.__version__, torch.__version__)
    assert (made["device"], made["threads"]) == ("cpu", torch.get_num_threads())
    assert config["command"] == "camp.run"


def test_a_stopped_run_continues_when_called_again(
    digits_run: camp.RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_continue = stop_after(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        camp.run("digits", out=tmp_path / "run", **DIGITS)
    assert len(results_of(tmp_path / "run")["tasks"]) == 1
    let_continue()
    resumed = camp.run("digits", out=tmp_path / "run", **DIGITS)
    assert numbers(resumed.folder) == numbers(digits_run.folder)


def test_a_finished_run_is_not_run_again(digits_run: camp.RunResult) -> None:
    before = (digits_run.folder / "results.json").stat().st_mtime_ns
    again = camp.run("digits", out=str(digits_run.folder), **DIGITS)
    elsewhere = camp.run("digits", out=digits_run.folder, bank="/elsewhere", **DIGITS)
    assert again.accuracy == elsewhere.accuracy == digits_run.accuracy
    assert (digits_run.folder / "results.json").stat().st_mtime_ns == before
    for method, other in (("camp", {"seed": 1}), ("gcd", {})):
        with pytest.raises(CampError, match="holds a run with other settings"):
            camp.run("digits", out=digits_run.folder, method=method, **{**DIGITS, **other})


def test_numpy_numbers_and_paths_are_valid_options(vectors: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {**SMALL, "epochs": np.int64(1), "learning_rate": np.float32(0.001)}
    camp.run("embeddings", out=tmp_path / "run", data=vectors, seed=np.arange(3)[2], **options)
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["seed"], settings["settings"]["training"]["epochs"]) == (2, 1)
    assert settings["data"]["data"] == str(vectors)


def test_a_given_split_has_the_same_tasks(digits_run: camp.RunResult, tmp_path: Path) -> None:
    rest = {key: DIGITS[key] for key in DIGITS.keys() - {"tasks", "images_per_class", "test_per_class"}}
    split = digits_run.folder / "split.json"
    again = camp.run("digits", out=tmp_path / "again", split=split, **rest)
    assert (tmp_path / "again" / "split.json").read_bytes() == split.read_bytes()
    assert numbers(again.folder) == numbers(digits_run.folder)
    with pytest.raises(CampError, match="A given split already decides tasks"):
        camp.run("digits", out=tmp_path / "both", split=split, tasks=2, **rest)
    (tmp_path / "torn.json").write_text("{")
    with pytest.raises(CampError, match="not valid JSON"):
        camp.run("digits", out=tmp_path / "torn", split=tmp_path / "torn.json", **rest)
    with pytest.raises(CampError, match="which the given split does not have"):
        camp.run("digits", out=tmp_path / "both", method="lwf", split=split, **taken("lwf", rest))
    assert not (tmp_path / "both").exists()
    assert not (tmp_path / "torn").exists()


UNSUPERVISED = [name for name, info in METHODS.items() if not info.supervised]
SETTINGS = {(setting, "camp") for setting in SCENARIO_PRESETS}  # every setting, every method in two of them
SETTINGS |= {(list(SCENARIO_PRESETS)[i % 7], method) for i, method in enumerate(UNSUPERVISED)}
SETTINGS |= {(list(SCENARIO_PRESETS)[(i + 3) % 7], method) for i, method in enumerate(UNSUPERVISED)}
SETTINGS |= {("cil", name) for name, info in METHODS.items() if info.supervised}


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "method"), sorted(SETTINGS))
def test_every_setting_of_the_supplement(tmp_path: Path, setting: str, method: str) -> None:
    options = taken(method, {key: DIGITS[key] for key in DIGITS if key != "tasks"})
    finished = camp.run("digits", out=tmp_path / "run", method=method, setting=setting, **options)
    results = results_of(tmp_path / "run")
    assert len(results["tasks"]) == results["tasks_planned"] == (1 if setting == "gcd" else 2)
    if method == "camp":
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
    hardly_trained = ("simgcd", "igcd", "pass", "il2a", "ssre")  # after so few steps
    if method not in hardly_trained:
        assert results["tasks"][0]["agnostic"]["all"][0] > 0.3  # after the first task; chance is 0.1 to 0.2


def test_camp_takes_the_papers_values_where_every_image_is_labelled(tmp_path: Path) -> None:
    for setting, alpha, terms in (
        ("cil", 0.9, {"supcon", "ce"}),
        ("semi-cl", None, {"simclr", "supcon", "ce"}),
    ):
        camp.run("digits", out=tmp_path / setting, setting=setting, **DIGITS)
        assert results_of(tmp_path / setting)["settings"]["settings"]["alpha"] == alpha
        line = epochs_of(tmp_path / setting)[0]
        assert terms <= line.keys()
        assert ("simclr" in line) == (setting != "cil")
        # config.json keeps the settings as they were given, so that the same call finds its run again.
        again = camp.run("digits", out=tmp_path / setting, setting=setting, **DIGITS)
        assert again.folder == tmp_path / setting


def test_the_number_of_categories_is_estimated(tmp_path: Path) -> None:
    finished = camp.run("digits", out=tmp_path / "run", k="estimated", max_novel=4, **DIGITS)
    results = results_of(tmp_path / "run")
    assert results["k"] == "estimated"
    for task in results["tasks"]:
        assert 0 <= task["novel_used"] <= 4
        assert [k for k, _ in task["curve"]] == sorted(k for k, _ in task["curve"])
        assert len([c for c in results["categories"] if c["task"] == task["task"]]) == 4 + task["novel_used"]
    assert finished.page().exists()


def test_exemplars_change_the_second_task(digits_run: camp.RunResult, tmp_path: Path) -> None:
    camp.run("digits", out=tmp_path / "run", exemplars=5, **DIGITS)
    assert results_of(tmp_path / "run")["exemplars"] == 5
    with_exemplars, without = epochs_of(tmp_path / "run"), epochs_of(digits_run.folder)
    assert with_exemplars[1]["loss"] == without[1]["loss"]
    assert with_exemplars[2]["loss"] != without[2]["loss"]


@pytest.mark.slow
def test_views_from_the_bank_and_fresh_views(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAMP_BANKS", str(tmp_path / "banks"))
    options = {**SMALL, "tasks": 2, "novel_fraction": 0.34, "order": "given", "data": images,
               "backbone": "vit-s16", "weights": "random", "resolution": 32, "depth": 2}  # fmt: skip
    banked = camp.run("folder", out=tmp_path / "bank", augmentations=3, **options)
    fresh = camp.run("folder", out=tmp_path / "fresh", views="fresh", **options)
    coded = camp.run("folder", out=tmp_path / "int8", augmentations=3, precision="int8", **options)
    assert results_of(banked.folder)["views"] == 3
    assert results_of(fresh.folder)["views"] is None
    banks = [json.loads(path.read_text())["precision"] for path in (tmp_path / "banks").glob("*/bank.json")]
    assert sorted(banks) == ["half", "int8", "plain"]
    # The same images, split and network before training; views differ, so losses do, but not by much.
    losses = [epochs_of(run.folder)[0]["loss"] for run in (banked, fresh, coded)]
    assert len(set(losses)) == 3
    assert max(losses) - min(losses) < 1
    assert any("random weights" in note for note in results_of(banked.folder)["notes"])


def test_a_method_that_trains_nothing_needs_no_augmented_views(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another method adds them to the same bank, with the results of a bank of its own."""
    options = {**SMALL, "tasks": 2, "novel_fraction": 0.34, "order": "given", "data": images,
               "backbone": "vit-s16", "weights": "random", "resolution": 32, "depth": 2,
               "augmentations": 2}  # fmt: skip

    def run(method: str, bank: str, name: str) -> dict[str, Any]:
        monkeypatch.setenv("CAMP_BANKS", str(tmp_path / bank))
        camp.run("folder", method=method, out=tmp_path / name, **taken(method, options))
        return numbers(tmp_path / name)

    def sizes(bank: str) -> list[int]:
        return sorted(path.stat().st_size for path in (tmp_path / bank).glob("*/augmented/*.bin"))

    run("frozen", "shared", "frozen")
    assert not any(sizes("shared"))
    assert run("camp", "shared", "after") == run("camp", "own", "alone")
    assert sizes("shared") == sizes("own")
    assert any(sizes("own"))

    options["augmentations"] = 0
    assert run("frozen", "none", "without")["predictions"] == numbers(tmp_path / "frozen")["predictions"]
    with pytest.raises(CampError, match="camp needs at least 2 augmentations, not 0"):
        run("camp", "none", "refused")
    assert not (tmp_path / "refused").exists()


def test_vectors(vectors: Path, tmp_path: Path) -> None:
    finished = camp.run("embeddings", out=tmp_path / "run", data=vectors, tasks=2, **SMALL)
    results = results_of(tmp_path / "run")
    assert results["backbone"] == "embeddings"
    assert results["resolution"] == 0
    assert finished.accuracy["all"] > 0.5
    assert all(category["images"] == [] for category in results["categories"])
    assert finished.page().exists()
    vectors.unlink()  # a finished run does not need its data
    assert camp.run("embeddings", out=tmp_path / "run", data=vectors, tasks=2, **SMALL).accuracy
