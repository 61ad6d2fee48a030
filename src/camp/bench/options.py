"""The options of `camp run`: from the words of a command line to the settings of one run, or of several.

For one method the words are parsed by the dataclasses of its settings. For several they are parsed once for each: an
option goes to every method that has it, and what is not given stays each method's own default.
"""

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from camp.bench.settings import DataSettings, RunSettings, option_names
from camp.core.errors import CampError
from camp.data.view_settings import ViewSettings
from camp.methods.registry import METHODS, method_info, methods_for
from camp.nn.backbones.settings import BackboneSettings

_CONFIG = (tyro.conf.OmitArgPrefixes,)


@dataclass(frozen=True)
class Asked:
    """What a command line asks for."""

    each: list[RunSettings]
    """One run, or several that differ in their method."""
    out: Path
    quiet: bool
    remarks: list[str]
    """Options that some of the methods do not take, a line each."""


def methods_named(given: str, setting: str = "gccd") -> list[str]:
    """The methods that `--method` names: one, some with commas between, or all of those that `setting` is for.

    >>> methods_named("camp,gcd")
    ['camp', 'gcd']
    """
    everything = methods_for(labelled=setting == "cil")
    names = everything if given == "all" else [name.strip() for name in given.split(",")]
    for name in names:
        method_info(name)
        if names.count(name) > 1:
            raise CampError(f"--method names {name} twice; once is enough.")
    return names


def parse(methods: list[str], words: Sequence[str]) -> Asked:
    """The settings of a run with each of `methods`; shows the help and leaves if the words ask for it."""
    if len(methods) > 1:
        return _parse_several(methods, words)
    [method] = methods
    title = f"{method}: {METHODS[method].title}"
    about = f"One experiment with {title}. `camp run --resume FOLDER` goes on with one."
    options: Any = tyro.cli(
        _options_of(method), args=words, prog="camp run", description=about, config=_CONFIG
    )
    return Asked([_settings(method, options)], Path(options.out), options.quiet, [])


def _parse_several(methods: list[str], words: Sequence[str]) -> Asked:
    if {"-h", "--help"} & set(words):
        about = _about(methods)
        tyro.cli(_options_of(None), args=["--help"], prog="camp run", description=about, config=_CONFIG)
    _parse_some(None, words)  # what is wrong for every method is no method's fault
    each: list[RunSettings] = []
    left: dict[str, list[str]] = {}
    for method in methods:
        try:
            options, left[method] = _parse_some(method, words)
        except CampError as error:
            raise CampError(f"With {method}: {error}") from error
        each.append(_settings(method, options))
    return Asked(each, Path(options.out), options.quiet, _not_taken(left))


def _parse_some(method: str | None, words: Sequence[str]) -> tuple[Any, list[str]]:
    """The options of every run, and of `method`, out of `words`; and the words that are left over."""
    parsed: tuple[Any, list[str]] = tyro.cli(
        _options_of(method), args=words, prog="camp run", return_unknown_args=True, config=_CONFIG
    )
    return parsed


def _not_taken(left: dict[str, list[str]]) -> list[str]:
    """A line for each option that some methods do not have, from the words that each of them left over.

    An option that none of them has is a mistake.

    >>> _not_taken({"camp": [], "gcd": ["--adapter", "sdc"]})
    ['gcd: no --adapter, run without']
    """
    without: dict[str, dict[str, None]] = {}
    for method, words in left.items():
        for before, word in zip(["", *words], words):
            if word.startswith("--"):
                without.setdefault(word.split("=")[0], {})[method] = None
            elif not before.startswith("--") or "=" in before:
                raise CampError(f'"{word}" belongs to no option; leave it out.')
    for option, methods in without.items():
        if len(methods) == len(left):
            known = dict.fromkeys(_spelled(name) for method in methods for name in option_names(method))
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise CampError(f"None of {', '.join(methods)} has an option {option}{hint}")
    return [f"{', '.join(methods)}: no {option}, run without" for option, methods in without.items()]


def _about(methods: list[str]) -> str:
    """What the help of several methods says above the options that all runs have."""
    own = {method: option_names(method, own=True) for method in methods}
    lines = [
        f"Several experiments, one after another, on one view bank: {', '.join(methods)}. Each has its run folder, "
        "FOLDER/<method>, below the --out FOLDER; they end in one table and one page, FOLDER/report.html. "
        "`camp run --resume FOLDER` goes on with them.\n",
        "The options at the end are those of every run. A method's own option goes to every method that has it, a "
        "line names the others, and what is left out is each method's own default. `camp run --method NAME --help` "
        "explains them:\n",
    ]
    for name in dict.fromkeys(name for names in own.values() for name in names):
        takers = [method for method in methods if name in own[method]]
        lines.append(f"  {_spelled(name):24} {'all' if takers == methods else ', '.join(takers)}")
    return "\n".join(lines)


def _options_of(method: str | None) -> Any:
    """The options of `camp run` as a dataclass: those of every run, and those of `method`."""
    arg, field = tyro.conf.arg, dataclasses.field
    named = f"One of {', '.join(METHODS)}; or some, with commas between; or all that --setting is for."
    fields: list[tuple[str, Any, Any]] = [
        ("out", Annotated[str, arg(help="Folder of the run; it must not hold one yet.")], field()),
        ("method", Annotated[str, arg(help=named)], field(default="camp")),
        ("seed", Annotated[int, arg(help="Of everything random.")], field(default=0)),
        ("quiet", Annotated[bool, arg(help="No progress.")], field(default=False)),
        ("data", DataSettings, field(default_factory=DataSettings)),
        ("backbone", BackboneSettings, field(default_factory=BackboneSettings)),
        ("views", ViewSettings, field(default_factory=ViewSettings)),
    ]
    if method is not None:
        settings = method_info(method).settings_class()
        fields.append(("settings", settings, field(default_factory=settings)))
    return dataclasses.make_dataclass("Run", fields)


def _settings(method: str, options: Any) -> RunSettings:
    settings = RunSettings(
        method, options.settings, options.data, options.backbone, options.views, options.seed
    )
    settings.check_labels()
    return settings


def _spelled(name: str) -> str:
    """A field's name as the command line has it."""
    return f"--{name.replace('_', '-')}"
