"""Mistakes of whole runs: each is a sentence, and leaves no folder behind."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from small_runs import DIGITS, SMALL

import camp
from camp.core.errors import CampError


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
        ({"simclr_temperature": 0}, "simclr_temperature must be above 0, and 0.0 is not."),
        ({"max_novel": 0}, "max_novel counts categories and must be at least 1, not 0."),
        ({"clip": 0.0}, "clip, the bound of the gradient, must be above 0, and 0.0 is not."),
        ({"setting": "gcdd"}, 'There is no setting "gcdd"; the settings are '),
        ({"tasks": 11}, "10 classes cannot be divided into 11 tasks; use fewer tasks."),
        ({"setting": "ssl-cl", "k": "estimated"}, "The number of categories is estimated from labelled images"),
        ({"backbone": "vit-s16", "weights": "random", "resolution": 33}, "vit-s16 takes a resolution that"),
        ({"backbone": "embeddings"}, "The backbone embeddings takes vectors, and digits has images."),
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


def test_without_test_images_no_run_is_started(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (9, 9), "red").save(tmp_path / "images" / name / "only.png")
    with pytest.raises(CampError, match="no test images"):
        camp.run(
            "folder",
            out=tmp_path / "run",
            data=tmp_path / "images",
            setting="semi-cl",
            order="given",
            **SMALL,
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
