"""What a study is drawn from and what a drawing returns: rows with their runs, figures, tables and names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from camp.bench.evaluation.class_groups import Group
from camp.bench.evaluation.summary import mean
from camp.bench.report.charts import Chart
from camp.bench.report.numbers import Spread, spread
from camp.bench.report.run_tables import METRICS, metric_of_run
from camp.bench.report.tables import Table
from camp.bench.results import Results, StoredRun
from camp.bench.studies.study import Options, Study
from camp.core.errors import CampError

End = Literal["stored", "adapted"]


@dataclass(frozen=True)
class Drawn:
    """A figure and the table of its numbers."""

    table: Table
    figure: Chart | None = None
    notes: list[str] = field(default_factory=list)
    """Sentences above the table."""


NAMES = {
    "all": "all classes",
    "known": "known classes",
    "novel": "novel classes",
    "fd": "FD",
    "mlp": "MLP",
    "trex": "T-ReX",
    "sdc": "SDC",
    "camp": "CAMP",
    "camp-plus": "CAMP+",
    "gcd": "GCD",
    "gcd-fd": "GCD+FD",
    "gcd-ewc": "GCD+EWC",
    "gcd-er": "GCD+ER",
    "metagcd": "MetaGCD",
    "simgcd": "SimGCD",
    "igcd": "IGCD",
    "gm": "GM",
    "pa": "PA",
    "frozen": "Frozen",
}


def name_of(value: object) -> str:
    """A value as figures and tables print it.

    >>> name_of("gcd-fd"), name_of(0.5), name_of("labelled_fraction")
    ('GCD+FD', '0.5', 'labelled fraction')
    """
    if isinstance(value, str):
        return NAMES.get(value, value.replace("_", " "))
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Row:
    """A row of a study and its finished runs, in the order of their seeds."""

    options: Options
    runs: tuple[StoredRun, ...]

    def __getitem__(self, option: str) -> Any:
        """The value of an option that the study varies, or what a run without it used."""
        if option in self.options:
            return self.options[option]
        if option in Results.model_fields:
            return getattr(self.first.results, option)
        return find(self.first.config.get("settings", {}), option)

    @property
    def first(self) -> StoredRun:
        """The run that stands for the row where only one can be shown."""
        return self.runs[0]

    @property
    def label(self) -> str:
        """The row in words."""
        own = [
            f"{name.replace('_', ' ')} {value}" for name, value in self.options.items() if name != "method"
        ]
        return ", ".join([self.options["method"], *own])

    def metric(self, name: str) -> Spread | None:
        """One of METRICS over the seeds."""
        if name not in METRICS:
            raise CampError(f'There is no metric "{name}"; there are {", ".join(METRICS)}.')
        return self.over_seeds(lambda run: metric_of_run(run, name))

    def over_seeds(self, of: Callable[[StoredRun], float | None]) -> Spread | None:
        """Mean and deviation of a number of each run."""
        return spread([of(run) for run in self.runs])

    def distance(self, end: End, kind: Group = "all", task: int | None = None) -> Spread | None:
        """Mean distance of centroids to the true means, `stored` or `adapted`; over all tasks, or in one."""

        def of(run: StoredRun) -> float | None:
            tasks = run.results.tasks if task is None else run.results.tasks[task : task + 1]
            found = [d for t in tasks if t.drift and (d := t.drift[kind])]
            return mean(getattr(distance, end) for distance in found)

        return self.over_seeds(of)


def find(settings: Any, name: str) -> Any:
    """The value of `name` anywhere in nested settings; None if it is nowhere.

    >>> find({"training": {"epochs": 3}}, "epochs")
    3
    """
    if isinstance(settings, dict):
        if name in settings:
            return settings[name]
        for value in settings.values():
            if (found := find(value, name)) is not None:
                return found
    return None


def values_of(rows: Sequence[Row], option: str) -> list[Any]:
    """Values of an option in the order in which rows have them."""
    return list(dict.fromkeys(row[option] for row in rows))


def wanted(study: Study, name: str, default: Any = None) -> Any:
    """What the study says about its figure."""
    value = study.look.get(name, default)
    if value is None:
        raise CampError(f'The drawing "{study.draw}" needs look.{name} in the study {study.name}.')
    return value
