"""What a drawing of a study returns, and the names that it prints."""

from dataclasses import dataclass, field

from camp.bench.report.charts import Chart
from camp.bench.report.tables import Table


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
