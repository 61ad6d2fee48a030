"""Studies that a person wrote, as TOML.

title = "Does a wider projector help?"
draw = "lines"                  # or another of camp.bench.studies.figures
seeds = [0, 1, 2]

[base]                          # options of camp run that all runs share
dataset = "cub200"
epochs = 10

[axes]                          # every combination is run; method is camp if it is not here
method = ["camp", "gcd-fd"]
alpha = [0.1, 0.5, 0.9]

[[runs]]                        # runs beside those of the axes, one by one
method = "gcd"

[look]                          # for the drawing
x = "alpha"
series = "method"
"""

import tomllib
from pathlib import Path
from typing import Any

from camp.bench.studies.figures import DRAWINGS
from camp.bench.studies.study import Study, grid
from camp.core.errors import CampError

_ENTRIES = {
    "title": str,
    "claim": str,
    "draw": str,
    "seeds": list,
    "base": dict,
    "axes": dict,
    "runs": list,
    "look": dict,
}


def written(path: Path) -> Study:
    """The study in a file; its name is that of the file."""
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CampError(f"The study {path} can not be read ({error.strerror or error}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CampError(f"{path} is not TOML: {error}.") from error
    for name, value in values.items():
        if name not in _ENTRIES:
            raise CampError(f'{path} has an entry "{name}"; a study has {", ".join(_ENTRIES)}.')
        if not isinstance(value, _ENTRIES[name]):
            raise CampError(f"{path}: {name} must be a {_ENTRIES[name].__name__}.")
    axes, runs = values.get("axes", {}), values.get("runs", [])
    for name, value in axes.items():
        if not isinstance(value, list) or not value:
            raise CampError(f"{path}: the axis {name} needs a list of values.")
    if not all(isinstance(run, dict) for run in runs):
        raise CampError(f"{path}: runs are written as [[runs]], one below the other.")
    if not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in values.get("seeds", [])):
        raise CampError(f"{path}: seeds are whole numbers.")
    draw = values.get("draw", "table")
    if draw not in DRAWINGS:
        raise CampError(f'{path}: there is no drawing "{draw}"; there are {", ".join(DRAWINGS)}.')
    usual = {"method": "camp"}
    rows = (*(grid(**axes) if axes else ()), *runs) or ({},)
    return Study(
        name=path.stem,
        title=values.get("title", path.stem),
        rows=tuple({**usual, **row} for row in rows),
        draw=draw,
        claim=values.get("claim", ""),
        base=values.get("base", {}),
        seeds=tuple(values.get("seeds", (0, 1, 2))),
        look=values.get("look", {}),
    )
