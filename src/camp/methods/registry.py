"""The registry of methods: one line each."""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from camp.core.errors import CampError
from camp.methods.settings import MethodSettings

if TYPE_CHECKING:
    import torch

    from camp.methods.base import Method
    from camp.nn.backbones.base import Backbone


@dataclass(frozen=True)
class MethodInfo:
    """A method in the registry; its module, which needs torch, is imported when it is built."""

    title: str
    module: str
    settings: str
    """Module and name of its settings, a subclass of `MethodSettings`, with a colon between."""
    make: str
    """Name of its factory, (BuildContext, settings) -> Method."""
    supervised: bool = False
    """Whether it is for class-incremental learning only: every image needs a label."""
    incremental: bool = False
    """Whether it is compared in class-incremental learning too, with those that are for it only."""
    pixels: bool = False
    """Whether it needs images and a network that is trained as a whole, neither vectors nor a bank."""

    def settings_class(self) -> type[MethodSettings]:
        """Return the dataclass of the method's settings, without torch."""
        module, _, name = self.settings.partition(":")
        return cast(type[MethodSettings], getattr(importlib.import_module(module), name))

    def build(
        self, backbone: "Backbone", settings: MethodSettings, seed: int, device: "torch.device"
    ) -> "Method":
        """Make the method."""
        from camp.methods.base import BuildContext

        make = getattr(importlib.import_module(self.module), self.make)
        return cast("Method", make(BuildContext(backbone, seed, device), settings))


def _gccd(title: str, module: str, settings: str, make: str, incremental: bool = False) -> MethodInfo:
    package = "camp.methods.gccd"
    settings = f"{package}.settings:{settings}"
    return MethodInfo(title, f"{package}.{module}", settings, make, incremental=incremental)


def _cil(title: str, module: str, settings: str, make: str, pixels: bool = False) -> MethodInfo:
    package = "camp.methods.cil"
    title, settings = f"class-incremental: {title}", f"{package}.settings:{settings}"
    return MethodInfo(title, f"{package}.{module}", settings, make, supervised=True, pixels=pixels)


# fmt: off
METHODS = {
    "frozen": _gccd("frozen features, no training", "frozen", "FrozenSettings", "make_frozen"),
    "gcd": _gccd("generalized category discovery, fine-tuned", "gcd", "GcdSettings", "make_gcd", incremental=True),
    "gcd-ewc": _gccd("GCD with elastic weight consolidation", "gcd_ewc", "GcdEwcSettings", "make_gcd_ewc"),
    "gcd-fd": _gccd("GCD with feature distillation", "gcd_fd", "GcdFdSettings", "make_gcd_fd"),
    "gcd-er": _gccd("GCD with experience replay", "gcd_er", "GcdErSettings", "make_gcd_er"),
    "metagcd": _gccd("meta-learning over simulated sessions", "metagcd", "MetaGcdSettings", "make_metagcd"),
    "simgcd": _gccd("parametric classification with pseudo-labels", "simgcd", "SimgcdSettings", "Simgcd"),
    "pa": _gccd("proxy anchors", "pa", "PaSettings", "make_pa"),
    "igcd": _gccd("density-based support set, soft nearest neighbours", "igcd", "IgcdSettings", "Igcd"),
    "gm": _gccd("grow and merge", "gm", "GmSettings", "make_gm"),
    "fine-tune": _cil("no measure against forgetting", "fine_tune", "IncrementalSettings", "make_fine_tune"),
    "ewc": _cil("elastic weight consolidation", "ewc", "EwcSettings", "make_ewc"),
    "lwf": _cil("learning without forgetting, distilled predictions", "lwf", "LwfSettings", "make_lwf"),
    "joint": _cil("all images of all tasks, the upper bound", "joint", "IncrementalSettings", "make_joint"),
    "pass": _cil("noisy prototypes, rotation prediction", "pass_", "PassSettings", "make_pass", pixels=True),
    "il2a": _cil("mixed classes, prototypes with covariances", "il2a", "Il2aSettings", "make_il2a", pixels=True),
    "ssre": _cil("folded side branches, selected prototypes", "ssre", "SsreSettings", "make_ssre", pixels=True),
    "fetril": _cil("frozen network, translated features, SVMs", "fetril", "FetrilSettings", "make_fetril"),
    "camp": _gccd("projected distillation, centroid adaptation", "camp", "CampSettings", "make_camp", incremental=True),
    "camp-plus": _gccd("Gaussian categories, simulated novelty", "camp_plus", "CampPlusSettings", "make_camp_plus"),
}
# fmt: on


def methods_for(labelled: bool) -> list[str]:
    """Return the methods to compare where every image is `labelled`, or else where some are not.

    >>> "fine-tune" in methods_for(labelled=True), "gcd-fd" in methods_for(labelled=True)
    (True, False)
    """
    return [
        name
        for name, info in METHODS.items()
        if (info.supervised or info.incremental if labelled else not info.supervised)
    ]


def method_info(name: str) -> MethodInfo:
    """Return the method called `name`.

    >>> method_info("camp").module
    'camp.methods.gccd.camp'
    """
    if name not in METHODS:
        raise CampError(f'There is no method "{name}"; the methods are {", ".join(METHODS)}.')
    return METHODS[name]
