"""`camp run`: start or continue an experiment, or compare several methods."""

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from camp.bench.settings import DataSettings, RunSettings, option_names, run_options
from camp.bench.studies.study import Study
from camp.cli.options import Parser, given_options, unknown_option
from camp.cli.output import show_runs
from camp.cli.shared import given_path
from camp.cli.streams import complain
from camp.core.errors import CampError
from camp.core.settings import Option, as_flag, did_you_mean
from camp.data.view_settings import ViewSettings
from camp.methods.registry import METHODS, method_info, methods_for
from camp.nn.backbones.settings import BackboneSettings

if TYPE_CHECKING:
    from camp.bench.studies.runner import StudyOutcome

_CONFIG = (tyro.conf.OmitArgPrefixes,)


@dataclass(frozen=True)
class RunRequest:
    """What a command line asks for; without settings and study, to continue what the folder holds."""

    out: Path
    quiet: bool
    settings: RunSettings | None = None
    """The settings of a single run."""
    study: Study | None = None
    """A comparison of several methods."""


def run(words: list[str]) -> int:
    """Carry out the command."""
    request = _resume_request(words) or parse(_selected_methods(words), words)
    from camp.bench.run_folder import RunFolder, holds_comparison
    from camp.bench.run_loop import run_or_resume
    from camp.bench.studies.comparison import methods_without
    from camp.bench.studies.comparison_runs import resume_comparison, start_comparison
    from camp.core import distributed
    from camp.core.progress import Progress

    command, folder = shlex.join(["camp", "run", *words]), request.out
    progress = Progress(request.quiet or not distributed.is_main_process())
    with distributed.process_group():
        if request.study is not None:
            for line in methods_without(request.study):
                progress.note(line)
            return _show_comparison(start_comparison(request.study, folder, progress, command), folder)
        if request.settings is not None:
            distributed.on_main_process(RunFolder(folder).check_free)
        elif distributed.broadcast(holds_comparison(folder)):
            return _show_comparison(resume_comparison(folder, progress), folder)
        run_or_resume(request.settings, folder, progress, command)
        show_runs([folder], RunFolder(folder).page)
        return 0


def _resume_request(words: list[str]) -> RunRequest | None:
    """Return the request of `--resume FOLDER [--quiet]`; None without --resume."""
    parser = Parser()
    parser.add_argument("--resume", nargs="?", const="", default=None)
    parser.add_argument("--quiet", action="store_true", default=False)
    given, others = parser.parse_known_args(words)
    if given.resume is None:
        return None
    if not given.resume:
        raise CampError("--resume needs the folder of a run.")
    if others:
        raise CampError(f"A resumed run keeps its settings: leave out {' '.join(others)}.")
    return RunRequest(given_path(given.resume, "--resume"), given.quiet)


def _selected_methods(words: list[str]) -> list[str]:
    parser = Parser()
    parser.add_argument("--method", default="camp")
    parser.add_argument("--setting", default="gccd")
    given, _ = parser.parse_known_args(words)
    return methods_named(given.method, given.setting)


def _show_comparison(outcome: "StudyOutcome", folder: Path) -> int:
    """Print one table and write one page of the finished runs; 2 if some failed, and why."""
    from camp.core import distributed

    if distributed.is_main_process():
        finished = [run.folder for row in outcome.rows for run in row.runs]
        if finished:
            show_runs(finished, folder / "report.html", by_task=False)
        for method, (error, _) in outcome.failed.items():
            complain(f"{method} did not finish: {error}")
    distributed.broadcast(None)  # torchrun ends all processes as soon as one ends with an error
    return 2 if outcome.failed else 0


def methods_named(given: str, setting: str = "gccd") -> list[str]:
    """Return the methods that `--method` names: one, several with commas between, or all for `setting`.

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


def parse(methods: list[str], words: Sequence[str]) -> RunRequest:
    """Parse the words of a command line for `methods`; prints the help and exits if it is asked for."""
    if len(methods) > 1:
        return _parse_comparison(methods, words)
    [method] = methods
    about = f"Run one experiment with {method}: {METHODS[method].title}. Continue it with `camp run --resume FOLDER`."
    options = _parse_with_tyro(method, words, about)
    settings = RunSettings(
        method, options.settings, options.data, options.backbone, options.views, options.seed
    )
    settings.check_labels()
    return RunRequest(given_path(options.out, "--out"), options.quiet, settings)


def _parse_comparison(methods: list[str], words: Sequence[str]) -> RunRequest:
    if {"-h", "--help"} & set(words):
        _parse_with_tyro(None, ["--help"], _about_comparison(methods))
    from camp.bench.studies.comparison import comparison

    own = {
        "method": Option("method", str, None),
        "out": Option("out", str, None),
        "quiet": Option("quiet", bool, False),
    }
    options = {name: option for method in methods for name, option in run_options(method).items()} | own
    values, rest = given_options(words, options)
    unknown = unknown_option(rest)
    if unknown is not None:
        hint = did_you_mean(unknown, [option.flag for option in options.values()])
        raise CampError(f"None of {', '.join(methods)} has an option {unknown}{hint}")
    given = {name: values.pop(name, option.default) for name, option in own.items()}
    if given["out"] is None:
        raise CampError("Several methods need a folder for their runs: add --out FOLDER.")
    return RunRequest(given_path(given["out"], "--out"), given["quiet"], study=comparison(methods, values))


def _about_comparison(methods: list[str]) -> str:
    """Return the help of several methods, above the options that all runs have."""
    own = {method: option_names(method, own=True) for method in methods}
    lines = [
        f"Compare several methods on one view bank, one after another: {', '.join(methods)}. Each has its run "
        "folder FOLDER/<method> below --out FOLDER; the results are one table and one page, FOLDER/report.html. "
        "Continue with `camp run --resume FOLDER`.\n",
        "The options at the end belong to every run. An option of a method is given to every method that has it; "
        "options that are not given have each method's own default. `camp run --method NAME --help` explains "
        "them:\n",
    ]
    for name in dict.fromkeys(name for names in own.values() for name in names):
        having = [method for method in methods if name in own[method]]
        lines.append(f"  {as_flag(name):24} {'all' if having == methods else ', '.join(having)}")
    return "\n".join(lines)


def _parse_with_tyro(method: str | None, words: Sequence[str], about: str) -> Any:
    """Parse the options of every run, and those of `method`."""
    arg, field = tyro.conf.arg, dataclasses.field
    named = (
        f"Name of the method: {', '.join(METHODS)}; several names separated by commas; or all, for every "
        "method that suits --setting."
    )
    fields: list[tuple[str, Any, Any]] = [
        ("out", Annotated[str, arg(help="Folder for the run; it must not hold a run yet.")], field()),
        ("method", Annotated[str, arg(help=named)], field(default="camp")),
        ("seed", Annotated[int, arg(help="Random seed.")], field(default=0)),
        ("quiet", Annotated[bool, arg(help="Do not show progress.")], field(default=False)),
        ("data", DataSettings, field(default_factory=DataSettings)),
        ("backbone", BackboneSettings, field(default_factory=BackboneSettings)),
        ("views", ViewSettings, field(default_factory=ViewSettings)),
    ]
    if method is not None:
        settings = method_info(method).settings_class()
        fields.append(("settings", settings, field(default_factory=settings)))
    options = dataclasses.make_dataclass("Run", fields)
    return tyro.cli(options, args=words, prog="camp run", description=about, config=_CONFIG)
