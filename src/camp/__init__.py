"""Continual category discovery with CAMP: categories that keep changing, from a few labels and many images."""

import sys
from typing import TYPE_CHECKING, Any

from camp.core.version import __version__

if sys.platform == "win32":
    raise ImportError(
        "CAMP runs on Linux and macOS, and not on Windows: there, install it in the Windows Subsystem for Linux (WSL)."
    )

if TYPE_CHECKING:
    from camp.app.estimator import CAMP
    from camp.bench.api import RunResult, load, run

__all__ = ["CAMP", "RunResult", "__version__", "load", "run"]


def __getattr__(name: str) -> Any:
    # Imported when first used, so that `camp --help` does not wait for torch.
    if name == "CAMP":
        from camp.app import estimator

        return estimator.CAMP
    if name in __all__:
        from camp.bench import api

        return getattr(api, name)
    raise AttributeError(f"module 'camp' has no attribute {name!r}")
