"""Studies: grids of runs, and what is drawn from them."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from camp.bench.settings import RunSettings, from_flat, option_names, run_options
from camp.bench.studies.addresses import address
from camp.core.errors import CampError
from camp.core.settings import Option, did_you_mean

RESERVED_NAMES = ("runs", "logs", "tips")
"""Folders beside those of the studies."""

Options = Mapping[str, Any]
"""Options of `camp run` by name: `epochs`, `alpha`, `dataset`, ..."""


def grid(**axes: Sequence[Any]) -> tuple[Options, ...]:
    """Return every combination of the values; the last axis varies fastest.

    >>> grid(method=["camp"], alpha=[0.1, 0.5])
    ({'method': 'camp', 'alpha': 0.1}, {'method': 'camp', 'alpha': 0.5})
    """
    return tuple(dict(zip(axes, values)) for values in itertools.product(*axes.values()))


@dataclass(frozen=True)
class Study:
    """A grid of runs and what is drawn from it."""

    name: str
    title: str
    rows: tuple[Options, ...]
    """The options in which the runs differ; each row has a method and is run with every seed."""
    draw: str
    """Name of the drawing, see `camp.bench.studies.figures`."""
    claim: str = ""
    """What the paper says about it."""
    base: Options = field(default_factory=dict)
    """Options that the runs share; methods without such an option are run without it."""
    seeds: tuple[int, ...] = (0, 1, 2)
    look: Options = field(default_factory=dict)
    """Options of the drawing: `x`, `series`, ..."""
    small: Options = field(default_factory=dict)
    """Options in addition to SMOKE that make the study tiny."""

    def __post_init__(self) -> None:
        if self.name in RESERVED_NAMES:
            raise CampError(f"A study cannot be called {self.name}: this folder is for all studies.")
        if not self.rows:
            raise CampError(f"The study {self.name} has no runs.")
        if not all(isinstance(row.get("method"), str) for row in self.rows):
            raise CampError(f"Each run of the study {self.name} needs the name of a method.")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise CampError(f"The study {self.name} needs seeds, each once.")
        if any("seed" in options for options in (self.base, *self.rows)):
            raise CampError(
                f"The study {self.name} has seed among its options; every run is made with each of its seeds: "
                "write seeds = [0, 1, 2] in the file, or --seeds 0,1,2 on the command line."
            )

    @property
    def methods(self) -> list[str]:
        """The methods of the rows, each once."""
        return list(dict.fromkeys(row["method"] for row in self.rows))

    def options(self) -> dict[str, Option]:
        """Return the options of all methods of the study by name."""
        found = {"method": Option("method", str, None)}
        for method in self.methods:
            found = run_options(method) | found
        return found

    def varies(self, name: str) -> bool:
        """Whether runs differ in the option `name`."""
        return any(name in row for row in self.rows)

    def check_options(self, names: Iterable[str]) -> None:
        """Refuse an option that no method of the study has."""
        known = self.options()
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                raise CampError(f'No method of the study {self.name} has an option "{name}"{hint}')

    def with_options(self, options: Options) -> Self:
        """Return the study with other options.

        An option that the study varies selects the rows that have this value, or one of several in a tuple;
        if no row has it, all rows get it. Any other option is shared by all runs.
        """
        self.check_options(options)
        rows, base = self.rows, dict(self.base)
        for name, value in options.items():
            if not any(name in row for row in rows):
                base[name] = value
                continue
            values = value if isinstance(value, tuple) else (value,)
            selected = tuple(row for row in rows if name in row and row[name] in values)
            if len(values) > 1 and {row[name] for row in selected} != set(values):
                present = dict.fromkeys(str(row[name]) for row in rows if name in row)
                raise CampError(
                    f"The study {self.name} has the values {', '.join(present)} of {name}; choose among them."
                )
            rows = selected or tuple({**row, name: value} for row in rows)
        return replace(self, rows=_each_once(rows), base=base)

    def points(self) -> tuple["Point", ...]:
        """Return all runs: every row with every seed."""
        return tuple(self.point(row, seed) for row in self.rows for seed in self.seeds)

    def point(self, row: Options, seed: int) -> "Point":
        """Return the run of `row` with `seed`."""
        method = row["method"]
        known = option_names(method)
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
        """The options of the row and the seed."""
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
"""Options that make any study tiny: a small network trained from scratch on some of scikit-learn's digits."""


def smoke(study: Study) -> Study:
    """Return a tiny version of a study: one seed, and of many numbers the first, the middle and the last.

    It has its own name, so that its figure does not replace a real one.
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
    """Keep the first, the middle and the last value of each option with more than three numbers."""
    names = {name for row in rows for name in row}
    for name in sorted(names):
        values = list(dict.fromkeys(row[name] for row in rows if name in row))
        if len(values) > 3 and all(isinstance(value, int | float) for value in values):
            kept = {values[0], values[len(values) // 2], values[-1]}
            rows = tuple(row for row in rows if row.get(name, values[0]) in kept)
    return rows
