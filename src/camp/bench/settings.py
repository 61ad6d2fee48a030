"""All of a run's settings: what `camp run` takes, what `config.json` keeps, what `camp.run` is called with."""

import dataclasses
import difflib
import os
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np

from camp.core.errors import CampError
from camp.data.datasets import dataset_info
from camp.data.datasets.domainnet import incremental_classes
from camp.data.scenario import PRESETS, Scenario, scenario_for
from camp.data.split import Split
from camp.data.view_settings import Augmentation, ViewSettings
from camp.methods.registry import method_info
from camp.nn.backbones.settings import BackboneSettings

_SHAPE = (
    "tasks",
    "novel_fraction",
    "labelled_fraction",
    "labelling",
    "order",
    "classes",
    "images_per_class",
    "test_per_class",
)
"""Settings that shape a scenario."""


@dataclass(frozen=True)
class DataSettings:
    """Which pictures, and how they are cut into tasks. What is left out is the data set's own default."""

    dataset: str = "digits"
    """A name from `camp datasets`, or `folder` for any folder of class folders."""
    data: str | None = None
    """Where the pictures are; by default where `camp datasets get` puts them."""
    setting: str = "gccd"
    """gccd, or one of the other settings of the paper's supplement: cil, ssl-cl, semi-cl, gcd, igcd, cgcd."""
    tasks: int | None = None
    """Number of tasks N."""
    novel_fraction: float | None = None
    """Share of the classes that come without any label."""
    labelled_fraction: float | None = None
    """Share of the pictures of known classes that carry their label."""
    labelling: Literal["bernoulli", "exact"] | None = None
    """Label each picture with that probability, or exactly that share of each class."""
    order: Literal["paper", "seed", "given"] | None = None
    """Class order: the paper's, one drawn from the seed, or the data set's."""
    k: Literal["known", "estimated"] = "known"
    """Is the number of categories told, or is it to be estimated."""
    classes: int | None = None
    """Use only so many classes, the first of the order."""
    images_per_class: int | None = None
    """Use at most this many training pictures of a class."""
    test_per_class: int | None = None
    """Use at most this many test pictures of a class."""
    split: str | None = None
    """A split.json of an earlier run, to be used as it is."""
    official_split: bool = True
    """CUB-200: the official train/test split, or else the reference's 90/10."""
    classes_per_domain: int | None = None
    """DomainNet: the first classes of each domain; by default 10, with --setting cil 50 (40 in 24 tasks)."""

    def __post_init__(self) -> None:
        dataset_info(self.dataset)
        if self.setting not in PRESETS:
            raise CampError(f'There is no setting "{self.setting}"; the settings are {", ".join(PRESETS)}.')
        given = [name for name in _SHAPE if getattr(self, name) is not None]
        if self.split is not None and given:
            raise CampError(
                f"A given split already decides {', '.join(given)}: leave that out, or the split."
            )
        if not self.official_split and self.dataset != "cub200":
            raise CampError(f"The reference's own 90/10 split is for cub200, not {self.dataset}.")
        if self.classes_per_domain is not None and self.dataset != "domainnet":
            raise CampError(f"classes_per_domain is for domainnet, not {self.dataset}.")

    def loader_options(self) -> dict[str, Any]:
        """What the data set's loader is asked for beside its folder."""
        if self.dataset == "cub200" and not self.official_split:
            return {"split": "reference"}
        if self.dataset == "domainnet" and self.classes_per_domain is not None:
            return {"classes_per_domain": self.classes_per_domain}
        if self.dataset == "domainnet" and self.split is None and self.scenario().all_labelled:
            return {"classes_per_domain": incremental_classes(self.scenario().tasks)}
        return {}

    def scenario(self) -> Scenario:
        """The scenario with every default filled in."""
        changes = {name: value for name in _SHAPE if (value := getattr(self, name)) is not None}
        return scenario_for(self.dataset, self.setting, tell_k=self.k == "known", **changes)


@dataclass(frozen=True)
class RunSettings:
    """One experiment."""

    method: str
    """A name from `camp methods`."""
    settings: Any
    """The method's own settings."""
    data: DataSettings = field(default_factory=DataSettings)
    backbone: BackboneSettings = field(default_factory=BackboneSettings)
    views: ViewSettings = field(default_factory=ViewSettings)
    seed: int = 0
    """Of everything random."""

    def check_labels(self) -> None:
        """Refuse a method that needs the label of every picture where some have none."""
        if not method_info(self.method).supervised or self.data.split is not None:
            return  # what a given split holds is known once it is read
        if not self.data.scenario().all_labelled:
            raise CampError(
                f"{self.method} is for class-incremental learning and needs the label of every picture, which "
                f"--setting {self.data.setting} does not give: use --setting cil."
            )

    def for_split(self, split: Split) -> Self:
        """The same with what the method left open for a stream in which every picture has its label."""
        if any(task.unlabelled for task in split.tasks):
            if method_info(self.method).supervised:
                raise CampError(
                    f"{self.method} is for class-incremental learning and needs the label of every picture, which the "
                    "given split does not have: use --setting cil."
                )
            return self
        return dataclasses.replace(self, settings=self.settings.for_labelled_tasks())

    def augmentation(self) -> Augmentation:
        """How views are made: the data set's way, but for what the settings change."""
        info = dataset_info(self.data.dataset)
        usual = Augmentation(
            crop_scale=info.crop_scale,
            flip=0.5 if info.flip else 0.0,
            saturation=info.saturation,
            jitter=0.8 if info.colour else 0.0,
            grey=0.2 if info.colour else 0.0,
        )
        changes = {
            name: value
            for name in ("crop_scale", "flip", "jitter", "grey")
            if (value := getattr(self.views, name)) is not None
        }
        return dataclasses.replace(usual, **changes)


def to_dict(settings: RunSettings) -> dict[str, Any]:
    """For config.json."""
    return dataclasses.asdict(settings)


def from_dict(values: dict[str, Any]) -> RunSettings:
    """Back from config.json."""
    usual = _usual(values["method"])
    return dataclasses.replace(usual, **_fields(usual, values))


def from_flat(method: str, options: dict[str, Any]) -> RunSettings:
    """Settings from options by their plain names, wherever they belong: `epochs`, `tasks`, `weights`, ...

    >>> from_flat("camp", {"epochs": 3, "tasks": 2}).settings.training.epochs
    3
    """
    left, usual = dict(options), _usual(method)
    values = _take(usual, left, skip=("method",))
    if left:
        name = next(iter(left))
        near = difflib.get_close_matches(name, option_names(method), n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise CampError(f'There is no option "{name}" for {method}{hint}')
    return dataclasses.replace(usual, **values)


def option_names(method: str, own: bool = False) -> list[str]:
    """Names of all options of a run with `method`, or of the method's own alone.

    >>> "seed" in option_names("camp"), "seed" in option_names("camp", own=True)
    (True, False)
    """
    usual = _usual(method)
    return [name for name in _names(usual.settings if own else usual) if name != "method"]


def _usual(method: str) -> RunSettings:
    """All settings as they are when nothing is asked for; nested ones may differ between methods."""
    return RunSettings(method=method, settings=method_info(method).settings_class()())


def _names(settings: Any) -> list[str]:
    """Names of the plain fields of a dataclass, nested ones too."""
    names: list[str] = []
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        names += _names(value) if dataclasses.is_dataclass(value) else [f.name]
    return names


def _take(usual: Any, options: dict[str, Any], skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """Move the options that belong to the dataclass `usual` out of `options`; what they change, by field."""
    hints = typing.get_type_hints(type(usual))
    values: dict[str, Any] = {}
    for f in dataclasses.fields(usual):
        inner = getattr(usual, f.name)
        if dataclasses.is_dataclass(inner):
            changes = _take(inner, options)
            if changes:
                values[f.name] = dataclasses.replace(inner, **changes)  # type: ignore[type-var]
        elif f.name in options and f.name not in skip:
            values[f.name] = _checked(f.name, hints[f.name], options.pop(f.name))
    return values


def _checked(name: str, kind: Any, value: Any) -> Any:
    """`value` as JSON can keep it, if it is what the option `name` takes; a command line checks its own words."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    value = value.item() if isinstance(value, np.generic) else value
    if not _fits(kind, value):
        raise CampError(f"{name} takes {_spelled(kind)}, not {value!r}.")
    return value


def _fits(kind: Any, value: Any) -> bool:
    """Whether `value` is of the type `kind`, a union, a literal or plain.

    >>> _fits(int | None, True), _fits(float, 1), _fits(Literal["a", "b"], "c")
    (False, True, False)
    """
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return any(_fits(each, value) for each in typing.get_args(kind))
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if isinstance(value, bool) and kind is not bool:
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _spelled(kind: Any) -> str:
    """A type in words: `a number or None`."""
    if typing.get_origin(kind) is Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    inner = typing.get_args(kind)
    if inner:
        return " or ".join(map(_spelled, inner))
    words = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}
    return words.get(kind, "None")


def _fields(usual: Any, values: dict[str, Any]) -> dict[str, Any]:
    """JSON values as the dataclass `usual` takes them: nested ones built, lists as tuples where one is meant."""
    hints = typing.get_type_hints(type(usual))
    unknown = [name for name in values if name not in hints]
    if unknown:
        raise CampError(
            f"The run was made by another version: it has the setting {unknown[0]}, which is not known."
        )
    built = {}
    for name, value in values.items():
        inner, kind = getattr(usual, name), hints[name]
        if dataclasses.is_dataclass(inner):
            built[name] = dataclasses.replace(inner, **_fields(inner, value))  # type: ignore[type-var]
            continue
        if isinstance(value, list) and not isinstance(kind, types.UnionType):
            value = tuple(value)
        built[name] = _checked(name, kind, value)
    return built
