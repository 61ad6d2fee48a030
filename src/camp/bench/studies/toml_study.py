"""Studies written by a user, as TOML files.

title = "Does a wider projector help?"
draw = "lines"                  # or another of camp.bench.studies.figures
seeds = [0, 1, 2]

[base]                          # options of camp run that all runs share; method is camp by default
dataset = "cub200"
epochs = 10

[axes]                          # every combination is run
method = ["camp", "gcd-fd"]
alpha = [0.1, 0.5, 0.9]

[[runs]]                        # single runs in addition to those of the axes
method = "gcd"

[look]                          # options of the drawing
x = "alpha"
series = "method"
"""

import math
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from camp.bench.studies.figures import DRAWINGS
from camp.bench.studies.study import Study, grid
from camp.core.errors import CampError
from camp.core.settings import describe_error

Value = bool | int | float | str
MAX_RUNS = 100_000
"""A grid of more runs is a mistake."""


class _StudyFile(BaseModel):
    """The entries of a file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str | None = None
    claim: str = ""
    draw: str = "table"
    seeds: list[int] = [0, 1, 2]
    base: dict[str, Value] = Field(default_factory=dict)
    axes: dict[str, list[Value]] = Field(default_factory=dict)
    runs: list[dict[str, Value]] = Field(default_factory=list)
    look: dict[str, Value | list[Value]] = Field(default_factory=dict)


def read_toml_study(path: Path) -> Study:
    """Read the study in a file; its name is that of the file."""
    try:
        content = _StudyFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CampError(f"The study {path} cannot be read ({error.strerror or error}).") from error
    except ValidationError as error:
        entries = ", ".join(_StudyFile.model_fields)
        raise CampError(f"{path}: {describe_error(error)}; a study has the entries {entries}.") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested too deeply
        raise CampError(f"{path} is not TOML: {error}.") from error
    if content.draw not in DRAWINGS:
        raise CampError(f'{path}: there is no drawing "{content.draw}"; there are {", ".join(DRAWINGS)}.')
    for name, values in content.axes.items():
        if not values:
            raise CampError(f"{path}: the axis {name} has no values.")
    number = math.prod(len(values) for values in content.axes.values()) * len(content.seeds)
    if number > MAX_RUNS:
        raise CampError(f"{path}: the axes make {number:,} runs; a study has at most {MAX_RUNS:,}.")
    base: dict[str, Any] = {"method": "camp", **content.base}
    default = {"method": base.pop("method")}
    rows = (*(grid(**content.axes) if content.axes else ()), *content.runs) or ({},)
    study = Study(
        name=path.stem,
        title=content.title or path.stem,
        rows=tuple({**default, **row} for row in rows),
        draw=content.draw,
        claim=content.claim,
        base=base,
        seeds=tuple(content.seeds),
        look=content.look,
    )
    study.check_options(base)
    return study
