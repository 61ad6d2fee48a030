"""Groups of runs that differ only in their seed, labelled by the settings in which groups differ."""

import json
from dataclasses import dataclass
from typing import Any

from camp.bench.results import StoredRun
from camp.bench.settings import from_dict, options_without_effect, to_dict
from camp.core.errors import CampError

FACTS = ("dataset", "backbone", "method", "exemplars", "k", "resolution", "views", "epochs", "tasks_planned")
"""Fields of results.json in which runs may differ; defaults are filled in."""

COLUMNS = {"dataset", "exemplars", "tasks_planned"}
"""Facts that have a column of their own in a table."""


def _ignored_settings() -> frozenset[str]:
    """Names of settings that do not distinguish groups: they do not change the result, or are among the facts."""
    return frozenset({*options_without_effect(), *FACTS, "tasks", "augmentations", "name", "seed"})


@dataclass(frozen=True)
class RunGroup:
    """The seeds of one setting, in the order of their seeds."""

    label: str
    """The method, and in brackets the settings in which the group differs from others of that method."""
    runs: tuple[StoredRun, ...]

    @property
    def first(self) -> StoredRun:
        """The run that stands for the group where only one can be shown."""
        return self.runs[0]


def group_runs(runs: list[StoredRun]) -> list[RunGroup]:
    """Groups in the order in which their first run was given."""
    members: dict[str, list[StoredRun]] = {}
    for run in runs:
        classes = [[len(task.known), len(task.novel)] for task in run.results.tasks]
        key = json.dumps([_settings(run), classes], sort_keys=True)
        # The same seed again differs in something that no file records: it is not a second seed.
        while any(other.results.seed == run.results.seed for other in members.get(key, [])):
            key += "+"
        members.setdefault(key, []).append(run)
    groups = [sorted(group, key=lambda run: run.results.seed) for group in members.values()]
    settings = [_settings(group[0]) for group in groups]
    labels = [_label(group[0], settings) for group in groups]
    rows = [(label, *(s[column] for column in sorted(COLUMNS))) for label, s in zip(labels, settings)]
    return [
        RunGroup(row[0] if rows.count(row) == 1 else f"{row[0]} [{group[0].folder.name}]", tuple(group))
        for row, group in zip(rows, groups)
    ]


def _settings(run: StoredRun) -> dict[str, Any]:
    facts = {key: getattr(run.results, key) for key in FACTS}
    return _flat({"settings": _with_defaults(run.config.get("settings", {}))}, _ignored_settings()) | facts


def _with_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the defaults of options that did not exist when the run was started."""
    try:
        return to_dict(from_dict(settings))
    except CampError:  # of a version whose options have other names
        return settings


def _flat(value: dict[str, Any], ignored: frozenset[str], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted names: {"adapter": {"kind": "sdc"}} -> {"adapter.kind": "sdc"}."""
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        if isinstance(entry, dict):
            flat |= _flat(entry, ignored, f"{prefix}{key}.")
        elif key not in ignored:
            flat[f"{prefix}{key}"] = entry
    return flat


def _label(run: StoredRun, groups: list[dict[str, Any]]) -> str:
    own = _settings(run)
    rivals = [g for g in groups if (g["method"], g["dataset"]) == (own["method"], own["dataset"])]
    notes = [
        f"{_short(key, list(own))} {_plain(value)}"
        for key, value in own.items()
        if key not in COLUMNS and any(rival.get(key) != value for rival in rivals)
    ]
    if run.results.unfinished:
        notes.append(f"{len(run.results.tasks)} of {run.results.tasks_planned} tasks")
    return f"{run.results.method} ({', '.join(notes)})" if notes else run.results.method


def _short(key: str, keys: list[str]) -> str:
    """The last word of a dotted name where no other name ends in it."""
    last = key.rsplit(".", 1)[-1]
    return last if sum(other.rsplit(".", 1)[-1] == last for other in keys) == 1 else key


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
