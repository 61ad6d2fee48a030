"""Settings of a run: unchanged options keep the method's defaults, and all survive config.json."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import tyro
from small_runs import taken

from camp.bench.settings import from_dict, from_flat, option_names, options_without_effect, to_dict
from camp.core.errors import CampError
from camp.methods.registry import METHODS, MethodInfo
from camp.methods.settings import MethodSettings


@dataclass(frozen=True)
class Warmup:
    steps: int = 100
    shape: str = "linear"


@dataclass(frozen=True)
class Course:
    laps: int = 100
    rate: float = 1e-3
    size: int = 128
    warmup: Warmup = field(default_factory=Warmup)


@dataclass(frozen=True)
class OwnSettings(MethodSettings):
    """A course of its own, with a warm-up of its own."""

    margin: float = 0.1
    course: Course = field(default_factory=lambda: Course(rate=1e-4, size=256, warmup=Warmup(shape="cosine")))


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "own", MethodInfo("its own", __name__, f"{__name__}:OwnSettings", "none"))


WANTED = OwnSettings(course=Course(laps=3, rate=1e-4, size=256, warmup=Warmup(steps=7, shape="cosine")))


def test_one_option_leaves_its_neighbours_alone() -> None:
    assert from_flat("own", {"laps": 3, "steps": 7}).settings == WANTED
    assert from_flat("own", {}).settings == OwnSettings()


def test_the_command_line_agrees() -> None:
    words = ["--laps", "3", "--steps", "7"]
    assert tyro.cli(OwnSettings, args=words, config=(tyro.conf.OmitArgPrefixes,)) == WANTED


def test_a_file_with_gaps_is_filled_with_the_methods_defaults() -> None:
    values = json.loads(json.dumps(to_dict(from_flat("own", {"laps": 3, "steps": 7}))))
    assert from_dict(values).settings == WANTED
    del values["settings"]["course"]["rate"]
    del values["settings"]["course"]["warmup"]["shape"]
    del values["data"]
    assert from_dict(values) == from_flat("own", {"laps": 3, "steps": 7})


def test_names_of_options() -> None:
    assert option_names("own", own=True) == ["margin", "laps", "rate", "size", "steps", "shape"]
    assert {"margin", "seed", "tasks", "weights", "bank"} < set(option_names("own"))
    assert "method" not in option_names("own")
    with pytest.raises(CampError, match='There is no option "lap" for own; did you mean laps'):
        from_flat("own", {"lap": 3})
    with pytest.raises(CampError, match='There is no option "method" for own'):
        from_flat("own", {"method": "camp"})


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


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"views": {"colour_of_the_sky": "blue"}}, 'There is no option "colour_of_the_sky".'),
        ({"views": {"augmentation": 3}}, 'There is no option "augmentation"; did you mean augmentations?'),
        ({"settings": {"training": {"epochs": "3"}}}, "epochs takes a whole number, not '3'."),
        ({"data": {"k": "guessed"}}, "k takes 'known' or 'estimated', not 'guessed'."),
    ],
)
def test_mistakes_in_a_file(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CampError) as error:
        from_dict({"method": "camp", **values})
    assert str(error.value) == sentence


def test_options_that_do_not_change_the_result() -> None:
    assert options_without_effect() == {"data", "bank", "device", "engine"}
    plain = from_flat("camp", {"dataset": "cub200"})
    moved = from_flat(
        "camp", {"dataset": "cub200", "data": "/x", "bank": "/y", "device": "cuda", "engine": "torch"}
    )
    assert moved != plain
    assert moved.result_values() == plain.result_values()
    assert from_flat("camp", {"dataset": "cub200", "seed": 1}).result_values() != plain.result_values()


def test_a_users_own_data_is_known_by_its_path() -> None:
    one, other = (from_flat("camp", {"dataset": "folder", "data": path}) for path in ("a", "b"))
    assert one.result_values() != other.result_values()


def test_class_incremental_learning_has_the_augmentation_of_facil() -> None:
    usual = from_flat("camp", {"dataset": "cifar100"}).augmentation()
    assert (usual.padding, usual.crop_scale, usual.jitter, usual.grey) == (None, 0.08, 0.8, 0.2)
    cil = from_flat("camp", {"dataset": "cifar100", "setting": "cil"}).augmentation()
    assert (cil.padding, cil.flip, cil.jitter, cil.grey) == (4 / 32, 0.5, 0.0, 0.0)
    resized = from_flat("camp", {"dataset": "cifar100", "setting": "cil", "crop_scale": 0.5, "jitter": 0.8})
    assert (resized.augmentation().padding, resized.augmentation().jitter) == (None, 0.8)
    assert from_flat("camp", {"dataset": "cub200", "setting": "cil"}).augmentation().padding is None


def test_the_augmentation_of_class_incremental_learning_decides_the_result() -> None:
    def values(**options: object) -> dict[str, Any]:
        return from_flat("camp", {"dataset": "cifar100", "setting": "cil", **options}).result_values()

    assert values()["views"]["padding"] == 4 / 32
    assert values() == values(jitter=0.0, grey=0.0, padding=4 / 32)
    assert values() != values(crop_scale=0.5)
    assert "jitter" not in from_flat("camp", {"dataset": "cifar100"}).result_values()["views"]


def test_crops_are_resized_or_padded() -> None:
    with pytest.raises(CampError, match="one of the two"):
        from_flat("camp", {"crop_scale": 0.5, "padding": 0.125})
    with pytest.raises(CampError, match="fraction of the side"):
        from_flat("camp", {"padding": 1.5}).augmentation()
