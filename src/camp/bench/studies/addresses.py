"""The address of a run: its settings, hashed. Runs of one address are one run, whatever study asks for them."""

import hashlib
import json
from typing import Any

from camp.bench.settings import RunSettings, to_dict
from camp.bench.trained_tips import phase1_of
from camp.data.datasets import dataset_info

FORMAT = 1
"""Part of every address: to be raised when runs of the same settings come to mean something else."""

_WHERE = {"data": ("data",), "views": ("bank",), "backbone": ("device", "engine")}
"""Settings that say where something is or is done, and do not change what a run is."""


def address(settings: RunSettings) -> str:
    """Method and twelve digits, like `camp-1f0c33a2b94e`."""
    return _digest(settings, to_dict(settings))


def phase1_address(settings: RunSettings) -> str | None:
    """The same for what comes before discovery, where runs can share it."""
    values = phase1_of(settings)
    return None if values is None else _digest(settings, values)


def _digest(settings: RunSettings, values: dict[str, Any]) -> str:
    for part, names in _WHERE.items():
        for name in names:
            values[part].pop(name)
    if (
        dataset_info(settings.data.dataset).n_classes is None
    ):  # one's own pictures are known by where they are
        values["data"]["data"] = settings.data.data
    told = json.dumps([FORMAT, _said(values)], sort_keys=True)
    return f"{settings.method}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def _said(values: Any) -> Any:
    """Without what is left open, so that a new option that usually is changes no address.

    >>> _said({"a": None, "b": {"c": 1, "d": None}})
    {'b': {'c': 1}}
    """
    if isinstance(values, dict):
        return {name: _said(value) for name, value in values.items() if value is not None}
    return values
