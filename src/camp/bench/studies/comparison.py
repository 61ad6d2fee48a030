"""Comparisons of methods: a study whose only axis is the method, with one run folder per method.

    FOLDER/study.json      the methods in order and their options, written first
    FOLDER/<method>/       the run of each
    FOLDER/report.html     one page of all

The runs agree in data, backbone and views, so the first one fills the view bank and the others find it full.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from camp.bench.run_folder import FORMER_STUDY_FILE, STUDY_FILE
from camp.bench.settings import DataSettings, from_dict, option_names
from camp.bench.studies.study import Options, Study, grid
from camp.core.errors import CampError
from camp.core.files import read_json
from camp.core.settings import Settings, as_flag, options_of, with_options
from camp.data.view_settings import ViewSettings
from camp.nn.backbones.settings import BackboneSettings


class _ComparisonRun(BaseModel):
    """A run in study.json."""

    row: dict[str, Any]
    seed: int


class _ComparisonFile(BaseModel):
    """What is read of study.json."""

    runs: list[_ComparisonRun]
    base: dict[str, Any]


@dataclass(frozen=True)
class StoredComparison:
    """What study.json says about a comparison."""

    rows: list[dict[str, Any]]
    base: dict[str, Any]
    """Options that all methods share."""
    seeds: list[int]
    command: str

    def study(self) -> Study:
        """Return the study."""
        return _study(self.rows, self.base, self.seeds)


def comparison(methods: Sequence[str], options: Options) -> Study:
    """Return the study that compares `methods` under `options`; a method without an option is run without it."""
    base = dict(options)
    seed = base.pop("seed", 0)
    shared: tuple[Settings, ...] = (DataSettings(), BackboneSettings(), ViewSettings())
    for part in shared:  # a mistake here concerns no method in particular
        with_options(part, {name: base[name] for name in options_of(part) if name in base})
    study = _study(grid(method=methods), base, [seed])
    for row in study.rows:
        try:
            study.point(row, seed)
        except CampError as error:
            raise CampError(f"With {row['method']}: {error}") from error
    return study


def methods_without(study: Study) -> list[str]:
    """Return a line for each option that some methods of a comparison do not have."""
    lines = []
    for name in study.base:
        without = [method for method in study.methods if name not in option_names(method)]
        if without:
            lines.append(f"{', '.join(without)}: no {as_flag(name)}, run without")
    return lines


def _study(rows: Sequence[Options], base: Options, seeds: Sequence[int]) -> Study:
    return Study("comparison", "Comparison of methods", tuple(rows), "table", base=base, seeds=tuple(seeds))


def read_comparison(folder: Path) -> StoredComparison:
    """Read the comparison in `folder`, of earlier versions too."""
    former = not (folder / STUDY_FILE).exists()
    path = folder / (FORMER_STUDY_FILE if former else STUDY_FILE)
    values = read_json(path)
    try:
        if not former:
            file = _ComparisonFile.model_validate(values)
            rows, seeds, base = [run.row for run in file.runs], [run.seed for run in file.runs], file.base
        else:
            runs = [from_dict(settings) for settings in values["methods"].values()]
            rows = [{name: option.default for name, option in options_of(run).items()} for run in runs]
            seeds, base = [row.pop("seed") for row in rows], {}
        return StoredComparison(rows, base, list(dict.fromkeys(seeds)), str(values["command"]))
    except CampError as error:
        raise CampError(
            f"{path} was written by another version of camp: {str(error).rstrip('.')}; compare the methods "
            "again in another folder."
        ) from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CampError(
            f"{path} does not describe a comparison of methods; choose another folder."
        ) from error
