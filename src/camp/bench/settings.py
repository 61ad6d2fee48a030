"""The settings of a run: the options of `camp run` and `camp.run`, and what `config.json` keeps."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from camp.core.errors import CampError
from camp.core.settings import (
    DOES_NOT_CHANGE_RESULT,
    Option,
    check_names,
    options_of,
    result_values,
    with_json,
    with_options,
)
from camp.data.datasets import dataset_info
from camp.data.datasets.domainnet import incremental_classes
from camp.data.scenario import SCENARIO_PRESETS, Scenario, make_scenario
from camp.data.split import Split
from camp.data.view_settings import Augmentation, ViewSettings
from camp.methods.registry import method_info
from camp.methods.settings import MethodSettings
from camp.nn.backbones.settings import BackboneSettings

_SHAPE = (
    "tasks",
    "novel_fraction",
    "labelled_fraction",
    "labelling",
    "order",
    "classes",
    "images_per_class",
    "imbalance",
    "test_per_class",
)
"""Options that define the scenario; a given split replaces them."""


def _given(settings: object, names: Iterable[str]) -> dict[str, Any]:
    """Return those of the options `names` that are not None."""
    return {name: value for name in names if (value := getattr(settings, name)) is not None}


@dataclass(frozen=True)
class DataSettings:
    """The data set and how it is divided into tasks. What is not given has the data set's default."""

    dataset: str = "digits"
    """Name of the data set, see `camp datasets`; `folder` takes any folder with one folder per class."""
    data: str | None = field(default=None, metadata=DOES_NOT_CHANGE_RESULT)
    """Folder or file of the data set; if not given, the folder that `camp datasets get` fills."""
    setting: str = "gccd"
    """Learning setting: gccd, or one of the supplement's: cil, ssl-cl, semi-cl, gcd, igcd, cgcd."""
    tasks: int | None = None
    """Number of tasks."""
    novel_fraction: float | None = None
    """Fraction of the classes that have no labels (novel classes)."""
    labelled_fraction: float | None = None
    """Fraction of the images of known classes that are labelled."""
    labelling: Literal["bernoulli", "exact"] | None = None
    """Choose labelled images independently with that probability, or exactly that fraction of each class."""
    order: Literal["paper", "seed", "given"] | None = None
    """Order of the classes: the paper's, a random one that depends on the seed, or the data set's."""
    k: Literal["known", "estimated"] = "known"
    """Whether the number of novel categories is given to the method or estimated by it."""
    classes: int | None = None
    """Use only this many classes, the first in the class order."""
    images_per_class: int | None = None
    """Maximum number of training images per class."""
    imbalance: float | Literal["random"] | None = None
    """Long-tailed training images: ratio of the largest class to the smallest, with sizes that fall exponentially over a
    random order of the classes, or `random`: each class has a random number of images, from 4 to all."""
    test_per_class: int | None = None
    """Maximum number of test images per class."""
    split: str | None = None
    """Path of a split.json of an earlier run, to use exactly its tasks."""
    official_split: bool = True
    """CUB-200: use the official train/test split, or the 90/10 split of the reference code."""
    classes_per_domain: int | None = None
    """DomainNet: number of classes per domain; if not given, 10, or with --setting cil 50 (40 for 24 tasks)."""

    def __post_init__(self) -> None:
        dataset_info(self.dataset)
        if self.setting not in SCENARIO_PRESETS:
            raise CampError(
                f'There is no setting "{self.setting}"; the settings are {", ".join(SCENARIO_PRESETS)}.'
            )
        for name in ("data", "split"):
            path = getattr(self, name)
            if path is not None and not path.strip():
                raise CampError(f"{name} is empty; give the name of a file or folder, or leave it out.")
        given = _given(self, _SHAPE)
        if self.split is not None and given:
            raise CampError(
                f"A given split already decides {', '.join(given)}: leave that out, or the split."
            )
        if not self.official_split and self.dataset != "cub200":
            raise CampError(f"The reference's own 90/10 split is for cub200, not {self.dataset}.")
        if self.classes_per_domain is not None and self.dataset != "domainnet":
            raise CampError(f"classes_per_domain is for domainnet, not {self.dataset}.")

    def loader_options(self) -> dict[str, Any]:
        """Return the arguments of the data set's loader besides the folder."""
        if self.dataset == "cub200" and not self.official_split:
            return {"split": "reference"}
        if self.dataset == "domainnet" and self.classes_per_domain is not None:
            return {"classes_per_domain": self.classes_per_domain}
        if self.dataset == "domainnet" and self.split is None and self.scenario().all_labelled:
            return {"classes_per_domain": incremental_classes(self.scenario().tasks)}
        return {}

    def scenario(self) -> Scenario:
        """Return the scenario with all defaults filled in."""
        return make_scenario(self.dataset, self.setting, tell_k=self.k == "known", **_given(self, _SHAPE))


@dataclass(frozen=True)
class RunSettings:
    """The settings of one experiment."""

    method: str
    """Name of the method, see `camp methods`."""
    settings: MethodSettings
    """The method's own settings."""
    data: DataSettings = field(default_factory=DataSettings)
    backbone: BackboneSettings = field(default_factory=BackboneSettings)
    views: ViewSettings = field(default_factory=ViewSettings)
    seed: int = 0
    """Random seed."""

    def check_labels(self) -> None:
        """Refuse a method that needs the label of every image where some have none."""
        if not method_info(self.method).supervised or self.data.split is not None:
            return  # a given split is checked once it is read
        if not self.data.scenario().all_labelled:
            raise self._labels_missing(f"--setting {self.data.setting} does not give")

    def for_split(self, split: Split) -> Self:
        """Return the settings with the method's defaults for `split`, which may label every image."""
        if any(task.unlabelled for task in split.tasks):
            if method_info(self.method).supervised:
                raise self._labels_missing("the given split does not have")
            return self
        return dataclasses.replace(self, settings=self.settings.for_labelled_tasks())

    def _labels_missing(self, reason: str) -> CampError:
        return CampError(
            f"{self.method} is for class-incremental learning and needs the label of every image, which {reason}: "
            "use --setting cil."
        )

    def augmentation(self) -> Augmentation:
        """Return the data set's augmentation with the changes that the settings ask for.

        Class-incremental learning has the augmentation of FACIL: no colour jitter, and padded crops of small images.
        """
        info = dataset_info(self.data.dataset)
        usual = Augmentation(
            crop_scale=info.crop_scale,
            flip=0.5 if info.flip else 0.0,
            saturation=info.saturation,
            jitter=0.8 if info.colour else 0.0,
            grey=0.2 if info.colour else 0.0,
        )
        if self.data.setting == "cil":
            padding = info.cil_padding if self.views.crop_scale is None else None
            usual = dataclasses.replace(usual, padding=padding, jitter=0.0, grey=0.0)
        given = _given(self.views, ("crop_scale", "padding", "flip", "jitter", "grey"))
        return dataclasses.replace(usual, **given)

    def result_values(self) -> dict[str, Any]:
        """Return the nested settings that decide the results: runs in which they are equal are one run."""
        values = result_values(self)
        if dataset_info(self.data.dataset).n_classes is None and self.data.data is not None:
            values["data"]["data"] = self.data.data  # a user's own images are known by their path alone
        if self.data.setting == "cil":  # its augmentation differs from the data set's, which is not stored
            values["views"] |= result_values(self.augmentation())
        return values


def default_settings(method: str) -> RunSettings:
    """Return the default settings of a run with `method`."""
    return RunSettings(method=method, settings=method_info(method).settings_class()())


def to_dict(settings: RunSettings) -> dict[str, Any]:
    """Return the nested values for config.json."""
    return dataclasses.asdict(settings)


def from_dict(values: Mapping[str, Any]) -> RunSettings:
    """Read the nested values of config.json."""
    if not isinstance(values.get("method"), str):
        raise CampError("The settings of a run name its method, and these do not.")
    return with_json(default_settings(values["method"]), values)


def from_flat(method: str, options: Mapping[str, object]) -> RunSettings:
    """Return the settings of a run with `method` and options named without regard to nesting.

    >>> from_flat("camp", {"epochs": 3, "tasks": 2}).data.tasks
    2
    """
    check_names(options, option_names(method), owner=method)
    return with_options(default_settings(method), options)


def run_options(method: str) -> dict[str, Option]:
    """Return all options of a run with `method` by name."""
    options = options_of(default_settings(method))
    del options["method"]
    return options


def option_names(method: str, own: bool = False) -> list[str]:
    """Return the names of all options of a run with `method`, or of the method's own options only.

    >>> "seed" in option_names("camp"), "seed" in option_names("camp", own=True)
    (True, False)
    """
    return list(options_of(default_settings(method).settings) if own else run_options(method))


def options_without_effect() -> frozenset[str]:
    """Return the names of options that do not change the results of a run: paths, device, engine.

    >>> sorted(options_without_effect())
    ['bank', 'data', 'device', 'engine']
    """
    shared = {**options_of(DataSettings()), **options_of(BackboneSettings()), **options_of(ViewSettings())}
    return frozenset(name for name, option in shared.items() if not option.changes_result)
