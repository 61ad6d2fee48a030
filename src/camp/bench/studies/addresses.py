"""Content addresses of runs: runs with the same address are one run, whichever study asks for it."""

import hashlib
import json
from typing import Any

from camp.bench.settings import RunSettings

FORMAT = 2
"""Part of every address; raise it when runs of the same settings come to mean something else."""


def address(settings: RunSettings) -> str:
    """Return the address of a run, such as `camp-1f0c33a2b94e`."""
    return _digest(settings.method, settings.result_values())


def training_address(settings: RunSettings) -> str | None:
    """Return the address of a run's training; None if runs cannot share it, see `camp.bench.trained_tips`."""
    after_training = settings.settings.after_training()
    if after_training is None or settings.data.k != "known":
        return None
    values = settings.result_values()
    for name in after_training:
        values["settings"].pop(name, None)
    return _digest(settings.method, values)


def _digest(method: str, values: dict[str, Any]) -> str:
    text = json.dumps([FORMAT, values], sort_keys=True)
    return f"{method}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
