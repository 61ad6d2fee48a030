"""Methods: one file each, and one line in the registry."""

import importlib
from dataclasses import dataclass
from typing import Any

from camp.errors import CampError


@dataclass(frozen=True)
class MethodInfo:
    """A method's line in the registry; its module is imported when it is used."""

    title: str
    module: str
    settings: str
    """Name of its settings, a frozen dataclass."""
    make: str
    """Name of the function (backbone, settings, seed, device) -> Method."""

    def settings_class(self) -> type[Any]:
        """The dataclass of the method's settings."""
        return getattr(importlib.import_module(self.module), self.settings)

    def build(self, *arguments: Any) -> Any:
        """The method itself."""
        return getattr(importlib.import_module(self.module), self.make)(*arguments)


METHODS = {
    "frozen": MethodInfo(
        "no training: the yardstick", "camp.methods.frozen", "FrozenSettings", "make_frozen"
    ),
    "gcd": MethodInfo(
        "generalized category discovery, fine-tuned", "camp.methods.gcd", "GcdSettings", "make_gcd"
    ),
    "gcd-ewc": MethodInfo(
        "GCD with elastic weight consolidation", "camp.methods.gcd_ewc", "GcdEwcSettings", "make_gcd_ewc"
    ),
    "gcd-fd": MethodInfo(
        "GCD with feature distillation", "camp.methods.gcd_fd", "GcdFdSettings", "make_gcd_fd"
    ),
    "gcd-er": MethodInfo("GCD with experience replay", "camp.methods.gcd_er", "GcdErSettings", "make_gcd_er"),
    "metagcd": MethodInfo(
        "meta-learning over simulated sessions", "camp.methods.metagcd", "MetaGcdSettings", "make_metagcd"
    ),
    "simgcd": MethodInfo(
        "parametric classification with pseudo-labels", "camp.methods.simgcd", "SimgcdSettings", "make_simgcd"
    ),
    "pa": MethodInfo("proxy anchors", "camp.methods.pa", "PaSettings", "make_pa"),
    "igcd": MethodInfo(
        "density-based support set and soft nearest neighbours",
        "camp.methods.igcd",
        "IgcdSettings",
        "make_igcd",
    ),
    "gm": MethodInfo("grow and merge", "camp.methods.gm", "GmSettings", "make_gm"),
    "camp": MethodInfo(
        "projected distillation and centroid adaptation", "camp.methods.camp", "CampSettings", "make_camp"
    ),
}


def method_info(name: str) -> MethodInfo:
    """The method called `name`.

    >>> method_info("camp").module
    'camp.methods.camp'
    """
    if name not in METHODS:
        raise CampError(f'There is no method "{name}"; the methods are {", ".join(METHODS)}.')
    return METHODS[name]
