"""Methods: one file each, and one line in the registry."""

import importlib
from dataclasses import dataclass
from typing import Any

from camp.core.errors import CampError


@dataclass(frozen=True)
class MethodInfo:
    """A method's line in the registry; its module is imported when it is used."""

    title: str
    module: str
    settings: str
    """Name of its settings, a frozen dataclass."""
    make: str
    """Name of the function (backbone, settings, seed, device) -> Method."""
    supervised: bool = False
    """Whether it is for class-incremental learning alone: every picture needs its label."""
    incremental: bool = False
    """Whether it is compared in class-incremental learning too, with those that are for it alone."""
    pixels: bool = False
    """Whether it works on the pixels of a network that is trained as a whole, and not on vectors or on a bank."""

    def settings_class(self) -> type[Any]:
        """The dataclass of the method's settings."""
        return getattr(importlib.import_module(self.module), self.settings)

    def build(self, *arguments: Any) -> Any:
        """The method itself."""
        return getattr(importlib.import_module(self.module), self.make)(*arguments)


METHODS = {
    "frozen": MethodInfo(
        "no training: the yardstick", "camp.methods.gccd.frozen", "FrozenSettings", "make_frozen"
    ),
    "gcd": MethodInfo(
        "generalized category discovery, fine-tuned",
        "camp.methods.gccd.gcd",
        "GcdSettings",
        "make_gcd",
        incremental=True,
    ),
    "gcd-ewc": MethodInfo(
        "GCD with elastic weight consolidation", "camp.methods.gccd.gcd_ewc", "GcdEwcSettings", "make_gcd_ewc"
    ),
    "gcd-fd": MethodInfo(
        "GCD with feature distillation", "camp.methods.gccd.gcd_fd", "GcdFdSettings", "make_gcd_fd"
    ),
    "gcd-er": MethodInfo(
        "GCD with experience replay", "camp.methods.gccd.gcd_er", "GcdErSettings", "make_gcd_er"
    ),
    "metagcd": MethodInfo(
        "meta-learning over simulated sessions",
        "camp.methods.gccd.metagcd",
        "MetaGcdSettings",
        "make_metagcd",
    ),
    "simgcd": MethodInfo(
        "parametric classification with pseudo-labels",
        "camp.methods.gccd.simgcd",
        "SimgcdSettings",
        "make_simgcd",
    ),
    "pa": MethodInfo("proxy anchors", "camp.methods.gccd.pa", "PaSettings", "make_pa"),
    "igcd": MethodInfo(
        "density-based support set and soft nearest neighbours",
        "camp.methods.gccd.igcd",
        "IgcdSettings",
        "make_igcd",
    ),
    "gm": MethodInfo("grow and merge", "camp.methods.gccd.gm", "GmSettings", "make_gm"),
    "fine-tune": MethodInfo(
        "class-incremental: nothing against forgetting",
        "camp.methods.cil.fine_tune",
        "FineTuneSettings",
        "make_fine_tune",
        supervised=True,
    ),
    "ewc": MethodInfo(
        "class-incremental: elastic weight consolidation",
        "camp.methods.cil.ewc",
        "EwcSettings",
        "make_ewc",
        supervised=True,
    ),
    "lwf": MethodInfo(
        "class-incremental: learning without forgetting, by distilled answers",
        "camp.methods.cil.lwf",
        "LwfSettings",
        "make_lwf",
        supervised=True,
    ),
    "joint": MethodInfo(
        "class-incremental: all pictures of all tasks, the upper end",
        "camp.methods.cil.joint",
        "JointSettings",
        "make_joint",
        supervised=True,
    ),
    "pass": MethodInfo(
        "class-incremental: noisy prototypes, and pictures told apart by their turn",
        "camp.methods.cil.pass_",
        "PassSettings",
        "make_pass",
        supervised=True,
        pixels=True,
    ),
    "il2a": MethodInfo(
        "class-incremental: mixed classes, and prototypes with covariances",
        "camp.methods.cil.il2a",
        "Il2aSettings",
        "make_il2a",
        supervised=True,
        pixels=True,
    ),
    "ssre": MethodInfo(
        "class-incremental: side branches that are folded in, and selected prototypes",
        "camp.methods.cil.ssre",
        "SsreSettings",
        "make_ssre",
        supervised=True,
        pixels=True,
    ),
    "fetril": MethodInfo(
        "class-incremental: a frozen network, translated features and support vectors",
        "camp.methods.cil.fetril",
        "FetrilSettings",
        "make_fetril",
        supervised=True,
    ),
    "camp": MethodInfo(
        "projected distillation and centroid adaptation",
        "camp.methods.gccd.camp",
        "CampSettings",
        "make_camp",
        incremental=True,
    ),
    "camp-plus": MethodInfo(
        "our own: categories as Gaussians of one shape, found by simulated novelty",
        "camp.methods.gccd.camp_plus",
        "CampPlusSettings",
        "make_camp_plus",
    ),
}


def methods_for(labelled: bool) -> list[str]:
    """The methods to compare where every picture is `labelled`, or else where some are not.

    >>> "fine-tune" in methods_for(labelled=True), "gcd-fd" in methods_for(labelled=True)
    (True, False)
    """
    return [
        name
        for name, info in METHODS.items()
        if (info.supervised or info.incremental if labelled else not info.supervised)
    ]


def method_info(name: str) -> MethodInfo:
    """The method called `name`.

    >>> method_info("camp").module
    'camp.methods.gccd.camp'
    """
    if name not in METHODS:
        raise CampError(f'There is no method "{name}"; the methods are {", ".join(METHODS)}.')
    return METHODS[name]
