"""The command line. Thin: each command imports what it needs when it is called, so `camp --help` is instant."""

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from camp.errors import CampError

HELP = """camp: continual category discovery

  camp run        one experiment: a data set, a backbone, a method    (camp run --help, camp run --resume FOLDER)
  camp report     page and tables from run folders, side by side      (camp report --help)
  camp datasets   what is known and present; camp datasets get NAME
  camp methods    the methods
  camp demo       CAMP and GCD on scikit-learn's digits, to a page, in a few minutes

Every command explains itself with --help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it went well, 2 for a mistake that a sentence explains, 130 after Ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP)
        return 0
    if words[0] == "--version":
        from camp import __version__

        print(f"camp {__version__}")
        return 0
    command, *rest = words
    try:
        if command not in COMMANDS:
            raise CampError(f'There is no command "{command}"; the commands are {", ".join(COMMANDS)}.')
        return COMMANDS[command](rest)
    except SystemExit as stop:  # tyro has shown the help, or what is wrong with an option
        return stop.code if isinstance(stop.code, int) else 0
    except CampError as error:
        print(f"camp: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "camp: interrupted; what was done is kept, and `camp run --resume FOLDER` goes on.",
            file=sys.stderr,
        )
        return 130


def run(words: list[str]) -> int:
    """`camp run`: begin or resume an experiment."""
    import dataclasses

    import tyro

    from camp.backbones.settings import BackboneSettings
    from camp.experiments.settings import DataSettings, RunSettings
    from camp.methods import METHODS, method_info
    from camp.views.settings import ViewSettings

    if any(word.split("=")[0] == "--resume" for word in words):
        return _resume(words)
    method = _value_of(words, "--method") or "camp"
    settings = method_info(method).settings_class()
    arg = tyro.conf.arg
    fields: list[tuple[str, Any, Any]] = [
        (
            "out",
            Annotated[str, arg(help="Folder of the run; it must not hold one yet.")],
            dataclasses.field(),
        ),
        (
            "method",
            Annotated[str, arg(help=f"One of {', '.join(METHODS)}.")],
            dataclasses.field(default="camp"),
        ),
        ("seed", Annotated[int, arg(help="Of everything random.")], dataclasses.field(default=0)),
        ("quiet", Annotated[bool, arg(help="No progress.")], dataclasses.field(default=False)),
        ("data", DataSettings, dataclasses.field(default_factory=DataSettings)),
        ("backbone", BackboneSettings, dataclasses.field(default_factory=BackboneSettings)),
        ("views", ViewSettings, dataclasses.field(default_factory=ViewSettings)),
        ("settings", settings, dataclasses.field(default_factory=settings)),
    ]
    options: Any = tyro.cli(
        dataclasses.make_dataclass("Run", fields),
        args=words,
        prog="camp run",
        description=f"One experiment with {method}: {METHODS[method].title}. `camp run --resume FOLDER` goes on with one.",
        config=(tyro.conf.OmitArgPrefixes,),
    )
    from camp.experiments.run import start
    from camp.progress import Progress

    parts = {f.name: getattr(options, f.name) for f in dataclasses.fields(RunSettings)}
    start(RunSettings(**parts), Path(options.out), Progress(options.quiet), _command("run", words))
    _show([Path(options.out)], Path(options.out) / "report.html")
    return 0


def _resume(words: list[str]) -> int:
    """`camp run --resume FOLDER`: everything else is in the folder."""
    folder = _value_of(words, "--resume")
    if not folder or folder.startswith("--"):
        raise CampError("--resume needs the folder of a run.")
    others = [w for w in words if w not in ("--resume", folder, f"--resume={folder}", "--quiet")]
    if others:
        raise CampError(f"A resumed run keeps its settings: leave out {' '.join(others)}.")
    from camp.experiments.run import resume
    from camp.progress import Progress

    resume(Path(folder), Progress("--quiet" in words))
    _show([Path(folder)], Path(folder) / "report.html")
    return 0


def report(words: list[str]) -> int:
    """`camp report RUN...`: the page, or a table."""
    from typing import Literal

    import tyro

    def options(
        runs: Annotated[tuple[str, ...], tyro.conf.Positional],
        out: str | None = None,
        format: Literal["page", "text", "md", "csv", "latex"] = "page",
    ) -> tuple[tuple[str, ...], str | None, Literal["page", "text", "md", "csv", "latex"]]:
        """Page and tables from run folders, several runs side by side.

        Args:
            runs: Folders of runs.
            out: File to write; by default report.html in the first folder, and tables to the screen.
            format: The HTML page, or a table as text, Markdown, CSV or LaTeX.
        """
        return runs, out, format

    runs, out, format = tyro.cli(options, args=words, prog="camp report")
    folders = [Path(run) for run in runs]
    if not folders:
        raise CampError("camp report needs at least one run folder.")
    if format == "page":
        _show(folders, Path(out) if out else folders[0] / "report.html")
        return 0
    from camp.files import write_text
    from camp.report.schema import load_run
    from camp.report.tables import as_table

    table = as_table([load_run(folder) for folder in folders], format)
    if out:
        write_text(Path(out), table + "\n")
    else:
        print(table)
    return 0


def datasets(words: list[str]) -> int:
    """`camp datasets` lists them, `camp datasets get NAME` downloads one."""
    from camp.streams.datasets import DATASETS, data_folder, present

    if words and words[0] == "get":
        from camp.streams.datasets.download import get

        if len(words) != 2:
            raise CampError("camp datasets get needs one name; `camp datasets` lists them.")
        print(get(words[1], data_folder(words[1])))
        return 0
    if words and words[0] not in ("-h", "--help"):
        raise CampError(
            f'camp datasets does not know "{words[0]}"; use `camp datasets` or `camp datasets get NAME`.'
        )
    if words:
        print(
            "camp datasets            list what is known and present\ncamp datasets get NAME   download one"
        )
        return 0
    for name, info in DATASETS.items():
        here = (
            "yours"
            if info.n_classes is None
            else "present"
            if present(name, data_folder(name))
            else "not here"
        )
        classes = f"{info.n_classes} classes, " if info.n_classes else ""
        print(
            f"{name:16} {info.title} [{here}]\n{'':16} {classes}{info.images}, {info.size}; licence: {info.licence}"
        )
        print(f"{'':16} {info.how_to_get}")
    return 0


def methods(words: list[str]) -> int:
    """`camp methods`: their names and what they are."""
    from camp.methods import METHODS

    if words and words[0] not in ("-h", "--help"):
        raise CampError(f'camp methods does not know "{words[0]}"; it lists the methods.')
    for name, info in METHODS.items():
        print(f"{name:16} {info.title}")
    return 0


def demo(words: list[str]) -> int:
    """`camp demo`: CAMP and GCD on the embedded digits, then one page."""
    import tyro

    def options(out: str = "runs/demo", quiet: bool = False) -> tuple[Path, bool]:
        """CAMP beside fine-tuned GCD on scikit-learn's digits, to a page, in a few minutes.

        Args:
            out: Folder for the two runs and the page.
            quiet: No progress.
        """
        return Path(out), quiet

    folder, quiet = tyro.cli(options, args=words, prog="camp demo")
    from camp.experiments.demo import run_demo
    from camp.progress import Progress

    _show(run_demo(folder, Progress(quiet)), folder / "report.html")
    return 0


def _show(folders: list[Path], page: Path) -> None:
    """Write the page of some runs, print their table and where the page is."""
    from camp.report.page import write_page
    from camp.report.schema import load_run
    from camp.report.tables import as_table, as_task_table

    runs = [load_run(folder) for folder in folders]
    write_page(runs, page)
    print(as_task_table(runs))
    print(as_table(runs))
    print(f"\nThe page: {page.resolve()}")


def _value_of(words: Sequence[str], option: str) -> str | None:
    """The value given to `option`, as `--option value` or `--option=value`.

    >>> _value_of(["--method", "gcd"], "--method"), _value_of(["--method=gcd"], "--method")
    ('gcd', 'gcd')
    """
    for word, following in zip(words, [*words[1:], None]):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.split("=", 1)[1]
    return None


def _command(name: str, words: list[str]) -> str:
    return shlex.join(["camp", name, *words])


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "run": run,
    "report": report,
    "datasets": datasets,
    "methods": methods,
    "demo": demo,
}

if __name__ == "__main__":
    sys.exit(main())
