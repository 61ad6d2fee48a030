"""A study: which runs it is made of, and what is drawn from them."""

import difflib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from camp.bench.settings import RunSettings, from_flat, option_names
from camp.bench.studies.addresses import address
from camp.core.errors import CampError

TAKEN = ("runs", "logs", "tips")
"""Folders beside those of studies."""

Options = Mapping[str, Any]
"""Options of `camp run` by their plain names: `epochs`, `alpha`, `dataset`, ..."""


def grid(**axes: Sequence[Any]) -> tuple[Options, ...]:
    """Every combination of the values, the last axis fastest.

    >>> grid(method=["camp"], alpha=[0.1, 0.5])
    ({'method': 'camp', 'alpha': 0.1}, {'method': 'camp', 'alpha': 0.5})
    """
    return tuple(dict(zip(axes, values)) for values in itertools.product(*axes.values()))


@dataclass(frozen=True)
class Study:
    """A grid of runs and what to make of it."""

    name: str
    title: str
    rows: tuple[Options, ...]
    """The runs by what they differ in; each has a method. Every one is run with every seed."""
    draw: str
    """Name of the drawing, see `camp.bench.studies.figures`."""
    claim: str = ""
    """What the paper says of it."""
    base: Options = field(default_factory=dict)
    """What the runs share; a method that has no such option goes without."""
    seeds: tuple[int, ...] = (0, 1, 2)
    look: Options = field(default_factory=dict)
    """What the drawing wants to know: `x`, `series`, ..."""
    small: Options = field(default_factory=dict)
    """Options beyond those of SMOKE under which the study is tiny."""

    def __post_init__(self) -> None:
        if self.name in TAKEN:
            raise CampError(f"A study can not be called {self.name}: this folder is for all studies.")
        if not self.rows:
            raise CampError(f"The study {self.name} has no runs.")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise CampError(f"The study {self.name} needs seeds, each once.")

    def under(self, options: Options) -> Self:
        """The same under other `options`.

        One that the study varies keeps the rows that have this value, or one of several in a tuple; if none has, all of them get it.
        Every other one is shared by all runs.
        """
        taken = {name for row in self.rows for name in option_names(row["method"])} | {"method"}
        rows, base = self.rows, dict(self.base)
        for name, value in options.items():
            if name not in taken:
                near = difflib.get_close_matches(name, sorted(taken), n=1)
                hint = f"; did you mean {near[0]}?" if near else "."
                raise CampError(f'No method of the study {self.name} has an option "{name}"{hint}')
            if not any(name in row for row in rows):
                base[name] = value
                continue
            values = value if isinstance(value, tuple) else (value,)
            having = tuple(row for row in rows if name in row and row[name] in values)
            if len(values) > 1 and {row[name] for row in having} != set(values):
                there = ", ".join(
                    str(each) for each in dict.fromkeys(row[name] for row in rows if name in row)
                )
                raise CampError(f"Of {name} the study {self.name} has {there}; choose among them.")
            rows = having or tuple({**row, name: value} for row in rows)
        return replace(self, rows=_each_once(rows), base=base)

    def points(self) -> tuple["Point", ...]:
        """All runs: rows, and of each row its seeds."""
        return tuple(self.point(row, seed) for row in self.rows for seed in self.seeds)

    def point(self, row: Options, seed: int) -> "Point":
        """The run of `row` with `seed`."""
        method = row["method"]
        known = set(option_names(method))
        own = {name: value for name, value in row.items() if name != "method"}
        shared = {name: value for name, value in self.base.items() if name in known}
        settings = from_flat(method, {**shared, **own, "seed": seed})
        settings.check_labels()
        return Point(row, settings)


@dataclass(frozen=True)
class Point:
    """One run of a study."""

    row: Options
    settings: RunSettings

    @property
    def address(self) -> str:
        """The name of its run folder."""
        return address(self.settings)

    @property
    def label(self) -> str:
        """The row in words, and the seed."""
        own = [f"{name} {value}" for name, value in self.row.items() if name != "method"]
        return ", ".join([self.settings.method, *own, f"seed {self.settings.seed}"])


SMOKE: Options = {
    "dataset": "digits",
    "data": None,
    "backbone": "conv-tiny",
    "weights": None,
    "resolution": None,
    "tasks": 2,
    "labelled_fraction": 0.5,
    "epochs": 2,
    "images_per_class": 30,
    "test_per_class": 10,
    "batch_size": 32,
    "n_init": 5,
    "projector_width": 32,
}
"""What makes any study tiny: a small network from scratch on some of scikit-learn's digits."""


def smoke(study: Study) -> Study:
    """The study made tiny: one seed, and of many numbers the first, the last and one between.

    It has a name of its own, so that its figure does not take the place of a real one.
    """
    varied = {name for row in study.rows for name in row} - {"dataset", "backbone", "tasks"}
    wanted = {name: value for name, value in SMOKE.items() if name not in varied} | dict(study.small)
    rows: tuple[Options, ...] = tuple(
        {name: value for name, value in row.items() if name not in wanted or name == "method"}
        for row in study.rows
    )
    rows = _thinned(_each_once(rows))
    name, base = f"{study.name}-smoke", {**study.base, **wanted}
    return replace(study, name=name, rows=rows, base=base, seeds=study.seeds[:1])


def _each_once(rows: tuple[Options, ...]) -> tuple[Options, ...]:
    return tuple({repr(sorted(row.items(), key=repr)): row for row in rows}.values())


def _thinned(rows: tuple[Options, ...]) -> tuple[Options, ...]:
    """The rows with the first, the last and the middle value of each option of more than three numbers."""
    names = {name for row in rows for name in row}
    for name in sorted(names):
        values = list(dict.fromkeys(row[name] for row in rows if name in row))
        if len(values) > 3 and all(isinstance(value, int | float) for value in values):
            kept = {values[0], values[len(values) // 2], values[-1]}
            rows = tuple(row for row in rows if row.get(name, values[0]) in kept)
    return rows
