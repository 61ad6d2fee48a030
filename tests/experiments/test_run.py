"""Whole runs, small: from Python as the README has it, over every setting, backbone and kind of data."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import camp
from camp.errors import CampError
from camp.experiments.settings import from_dict, from_flat, option_names, to_dict
from camp.methods import METHODS
from camp.methods.centroid_method import CentroidMethod
from camp.streams.scenarios import PRESETS

TINY: dict[str, Any] = {
    "images_per_class": 12,
    "test_per_class": 4,
    "epochs": 2,
    "batch_size": 32,
    "n_init": 3,
    "projector_width": 32,
    "quiet": True,
}
DIGITS = {**TINY, "resolution": 8, "tasks": 2}


@pytest.fixture(autouse=True)
def _own_banks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMP_BANKS", str(tmp_path / "banks"))


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A file of vectors: the pixels of the digits."""
    digits = load_digits()
    path = tmp_path / "digits.npz"
    np.savez(path, vectors=digits.data[:500].astype(np.float32) / 16, labels=digits.target[:500])
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of six classes, each of its own colour, with eight pictures to learn from and three for tests."""
    rng = np.random.default_rng(0)
    root = tmp_path / "pictures"
    for number in range(6):
        colour = rng.integers(40, 216, 3)
        for part, count in (("train", 8), ("test", 3)):
            for i in range(count):
                pixels = colour + rng.integers(-30, 31, (20, 24, 3))
                path = root / part / f"class {number}" / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return root


def taken(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options that a run with `method` has."""
    return {key: options[key] for key in options if key in (*option_names(method), "quiet")}


def results_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


def numbers(folder: Path) -> dict[str, Any]:
    """Results but for times, and what depends on the folder's name."""
    results = results_of(folder)
    for varying in ("seconds", "name", "command", "settings"):
        del results[varying]
    return {"results": results, "predictions": (folder / "predictions.csv").read_text()}


def stop_after(monkeypatch: pytest.MonkeyPatch, epochs: int) -> Callable[[], None]:
    """Have the user press Ctrl-C after so many epochs; the result lets it go on."""
    train, done = CentroidMethod.train_epoch, 0

    def interrupted(self: CentroidMethod, epoch: int) -> dict[str, float]:
        nonlocal done
        if done == epochs:
            raise KeyboardInterrupt
        done += 1
        return train(self, epoch)

    monkeypatch.setattr(CentroidMethod, "train_epoch", interrupted)
    return lambda: monkeypatch.setattr(CentroidMethod, "train_epoch", train)


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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epoch": 3}, 'There is no option "epoch" for camp; did you mean epochs?'),
        ({"wibble": 3}, 'There is no option "wibble" for camp.'),
        ({"epochs": "three"}, "epochs takes a whole number, not 'three'."),
        ({"epochs": True}, "epochs takes a whole number, not True."),
        ({"tasks": 2.5}, "tasks takes a whole number or None, not 2.5."),
        ({"k": "guessed"}, "k takes 'known' or 'estimated', not 'guessed'."),
        ({"views": "banked"}, "views takes 'bank' or 'fresh', not 'banked'."),
        ({"supervised": 0}, "supervised takes True or False, not 0."),
        ({"adapter": "affine"}, "adapter takes 'none' or 'linear' or 'mlp' or 'trex' or 'sdc', not 'affine'."),
        ({"weights": 3}, "weights takes a text or None, not 3."),
        ({"simclr_temperature": 0}, "simclr_temperature must be above 0, and 0 is not."),
        ({"max_novel": 0}, "max_novel counts categories and must be at least 1, not 0."),
        ({"clip": 0.0}, "clip, the bound of the gradient, must be above 0, and 0.0 is not."),
        ({"setting": "gcdd"}, 'There is no setting "gcdd"; the settings are '),
        ({"tasks": 11}, "10 classes cannot be cut into 11 tasks; use fewer tasks."),
        ({"setting": "ssl-cl", "k": "estimated"}, "The number of categories is estimated from labelled pictures"),
        ({"backbone": "vit-s16", "weights": "random", "resolution": 33}, "vit-s16 takes a resolution that"),
        ({"backbone": "embeddings"}, "The backbone embeddings takes vectors, and digits has pictures."),
        ({"device": "abacus"}, 'There is no device "abacus" here'),
    ],
)  # fmt: skip
def test_mistakes_are_sentences_and_leave_nothing(
    tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CampError) as error:
        camp.run("digits", out=tmp_path / "run", **options)
    assert str(error.value).startswith(sentence)
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_numpy_and_paths_are_options_too(vectors: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {**TINY, "epochs": np.int64(1), "learning_rate": np.float32(0.001)}
    camp.run("embeddings", out=tmp_path / "run", data=vectors, seed=np.arange(3)[2], **options)
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["seed"], settings["settings"]["training"]["epochs"]) == (2, 1)
    assert settings["data"]["data"] == str(vectors)


@pytest.mark.parametrize("method", METHODS)
def test_settings_survive_their_file(method: str) -> None:
    plain = from_flat(method, {})
    options = {
        "seed": 3, "epochs": 7, "tasks": 4, "k": "estimated", "bad_share": 0.5, "n_init": 9, "metric": "cosine",
        "beta": 0.1, "backbone": "vit-s14", "depth": 11, "flip": 0.0, "precision": "int8", "max_novel": 4,
    }  # fmt: skip
    changed = from_flat(method, taken(method, options))
    assert changed != plain
    for settings in (plain, changed):
        assert from_dict(json.loads(json.dumps(to_dict(settings)))) == settings


def test_settings_of_another_version_are_a_sentence() -> None:
    values = to_dict(from_flat("camp", {}))
    values["views"]["colour_of_the_sky"] = "blue"
    with pytest.raises(CampError, match="made by another version"):
        from_dict(values)


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
    assert all(category["pictures"] == [] for category in results["categories"])
    assert finished.page().exists()
    vectors.unlink()  # a finished run can do without
    assert camp.run("embeddings", out=tmp_path / "run", data=vectors, tasks=2, **TINY).accuracy


BROKEN = ("train/class 1/0.png", "train/class 3/2.png", "test/class 4/1.png")
PICTURES = {
    **TINY,
    "tasks": 2,
    "novel_fraction": 0.34,
    "order": "given",
    "backbone": "conv-tiny",
    "resolution": 8,
}


def spoil(root: Path) -> None:
    for key in BROKEN:
        (root / key).write_text(f"{key} is not a picture")


def skipped(folder: Path) -> list[str]:
    with (folder / "skipped.csv").open() as file:
        return [row["picture"] for row in csv.DictReader(file)]


def split_keys(folder: Path) -> set[str]:
    tasks = json.loads((folder / "split.json").read_text())["tasks"]
    parts = [task[part] for task in tasks for part in ("labelled", "unlabelled", "test")]
    return {key for part in parts for keys in part.values() for key in keys}


def test_broken_pictures_are_left_out_and_listed(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(pictures)
    options = {**PICTURES, "data": pictures, "bad_share": 0.1}
    whole = camp.run("folder", out=tmp_path / "whole", **options)
    assert skipped(whole.folder) == sorted(BROKEN)
    assert split_keys(whole.folder).isdisjoint(BROKEN)
    assert results_of(whole.folder)["notes"] == ["3 pictures could not be read and were left out."]
    assert sum(task["test"] for task in results_of(whole.folder)["tasks"]) == 17

    # What the run went without does not matter any more: removed or mended, it ends in the same numbers.
    for name, change in (
        ("removed", lambda path: path.unlink()),
        ("mended", lambda path: Image.new("RGB", (20, 24), "red").save(path)),
    ):
        spoil(pictures)
        let_go_on = stop_after(monkeypatch, 3)
        with pytest.raises(KeyboardInterrupt):
            camp.run("folder", out=tmp_path / name, **options)
        let_go_on()
        for key in BROKEN:
            change(pictures / key)
        resumed = camp.run("folder", out=tmp_path / name, **options)
        assert numbers(resumed.folder) == numbers(whole.folder)
        assert skipped(resumed.folder) == sorted(BROKEN)


def test_too_many_broken_pictures_stop_a_run_until_they_are_gone(pictures: Path, tmp_path: Path) -> None:
    whole = {key: (pictures / key).read_bytes() for key in BROKEN}
    spoil(pictures)
    options = {**PICTURES, "data": pictures, "bad_share": 0.02}
    for name in ("removed", "mended"):
        out = tmp_path / name
        with pytest.raises(CampError) as error:
            camp.run("folder", out=out, **options)
        assert str(error.value).startswith(
            "3 of 66 pictures could not be read, more than the 2% that --bad-share"
        )
        assert f"use --resume {out}" in str(error.value)
        assert skipped(out) == sorted(BROKEN)
        assert not (out / "split.json").exists()
    for key in BROKEN:
        (pictures / key).unlink()
    removed = camp.run("folder", out=tmp_path / "removed", **options)
    assert sum(task["test"] for task in results_of(removed.folder)["tasks"]) == 17
    for key, data in whole.items():
        (pictures / key).write_bytes(data)
    mended = camp.run("folder", out=tmp_path / "mended", **options)
    assert split_keys(mended.folder) == split_keys(removed.folder) | set(BROKEN)
    for finished in (removed, mended):
        assert not (finished.folder / "skipped.csv").exists()
        assert results_of(finished.folder)["notes"] == []


@pytest.mark.parametrize(
    ("lose", "sentence"),
    [
        (lambda path: path.unlink(), "was a file removed?"),
        (lambda path: path.write_bytes(b"torn"), "1 of the run's 66 pictures can no longer be read"),
    ],
)
def test_a_picture_lost_in_the_middle_of_a_run(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Any, sentence: str
) -> None:
    options = {**PICTURES, "data": pictures}
    let_go_on = stop_after(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        camp.run("folder", out=tmp_path / "run", **options)
    let_go_on()
    path = pictures / "train/class 0/5.png"
    kept = path.read_bytes()
    lose(path)
    with pytest.raises(CampError) as error:
        camp.run("folder", out=tmp_path / "run", **options)
    assert sentence in str(error.value)
    path.write_bytes(kept)
    assert camp.run("folder", out=tmp_path / "run", **options).accuracy["all"] is not None


def test_without_test_pictures_nothing_is_begun(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "pictures" / name).mkdir(parents=True)
        Image.new("RGB", (9, 9), "red").save(tmp_path / "pictures" / name / "only.png")
    with pytest.raises(CampError, match="no test pictures"):
        camp.run(
            "folder",
            out=tmp_path / "run",
            data=tmp_path / "pictures",
            setting="semi-cl",
            order="given",
            **TINY,
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_loss_that_is_no_number_is_a_sentence(tmp_path: Path) -> None:
    options = {**DIGITS, "learning_rate": 1e30, "epochs": 5}
    with pytest.raises(CampError, match="try a smaller --learning-rate"):
        camp.run("digits", out=tmp_path / "run", **options)


def test_a_folder_that_can_not_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(CampError, match="could not be made"):
            camp.run("digits", out=out, **DIGITS)


def test_a_config_that_is_no_run_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("[]")
    with pytest.raises(CampError, match="is not that of a run"):
        camp.run("digits", out=tmp_path / "run", **DIGITS)
