"""Continual category discovery with CAMP: categories that keep changing, from a few labels and many pictures."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from camp.estimator import CAMP
    from camp.experiments.api import Finished, load, run

__all__ = ["CAMP", "Finished", "load", "run"]


def __getattr__(name: str) -> Any:
    # Imported when first used, so that `camp --help` does not wait for torch.
    if name == "CAMP":
        from camp import estimator

        return estimator.CAMP
    if name in __all__:
        from camp.experiments import api

        return getattr(api, name)
    raise AttributeError(f"module 'camp' has no attribute {name!r}")
