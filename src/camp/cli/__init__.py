"""The command line. Thin: each command imports what it needs when it is called, so `camp --help` is instant."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from camp.core.errors import CampError, ReportedError

if TYPE_CHECKING:
    from camp.bench.evaluation.after_task import Protocol
    from camp.bench.several import Outcome

HELP = """camp: categories that keep changing, from a few labels and many pictures

Your own pictures:
  camp learn      a folder of pictures, some in folders named after their kind:  camp learn BIRDS january/
  camp review     a local page to name, merge and split what was found:          camp review BIRDS
  camp status     categories, what each batch taught, how sure it is:            camp status BIRDS
  camp predict    recognise pictures, to CSV or JSON lines:                      camp predict BIRDS new/ --out new.csv
  camp export     one ONNX file for any runtime:                                 camp export BIRDS birds.onnx
  camp serve      the same over HTTP on this machine:                            camp serve BIRDS

The paper's experiments:
  camp run        one experiment: a data set, a backbone, a method    (camp run --help, camp run --resume FOLDER)
                  or several on one bank: camp run --method camp,gcd --out FOLDER, camp run --method all ...
  camp report     page and tables from run folders, side by side      (camp report --help)
  camp study      a grid of runs and its figure or table: camp study lists those of the paper
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
        from camp.core.version import __version__

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
        number = os.environ.get("RANK", "0")  # of several processes, see camp.core.distributed
        if number == "0" or not isinstance(error, ReportedError):
            print(f"camp{'' if number == '0' else f' (process {number})'}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `camp predict ... | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(
            "camp: interrupted; nothing was changed."
            if command in OVER_WORKSPACE
            else "camp: interrupted; what was done is kept, and `camp run --resume FOLDER` goes on.",
            file=sys.stderr,
        )
        return 130


def run(words: list[str]) -> int:
    """`camp run`: begin or resume an experiment, or several that differ in their method."""
    if any(word.split("=")[0] == "--resume" for word in words):
        return _resume(words)
    from camp.bench.options import methods_named, parse

    named = _value_of(words, "--method") or "camp", _value_of(words, "--setting") or "gccd"
    asked = parse(methods_named(*named), words)
    from camp.bench.experiment import start
    from camp.bench.several import start_several
    from camp.core import distributed
    from camp.core.progress import Progress

    progress, command = Progress(asked.quiet or not distributed.is_main_process()), _command("run", words)
    with distributed.process_group():
        if len(asked.each) == 1:
            start(asked.each[0], asked.out, progress, command)
            _show([asked.out], asked.out / "report.html")
            return 0
        for remark in asked.remarks:
            progress.note(remark)
        return _show_several(start_several(asked.each, asked.out, progress, command), asked.out)


def _resume(words: list[str]) -> int:
    """`camp run --resume FOLDER`: everything else is in the folder."""
    folder = _value_of(words, "--resume")
    if not folder or folder.startswith("--"):
        raise CampError("--resume needs the folder of a run.")
    others = [w for w in words if w not in ("--resume", folder, f"--resume={folder}", "--quiet")]
    if others:
        raise CampError(f"A resumed run keeps its settings: leave out {' '.join(others)}.")
    from camp.bench.experiment import resume
    from camp.bench.several import holds_several, resume_several
    from camp.core import distributed
    from camp.core.progress import Progress

    out, progress = Path(folder), Progress("--quiet" in words or not distributed.is_main_process())
    with distributed.process_group():
        if distributed.broadcast(holds_several(out)):
            return _show_several(resume_several(out, progress), out)
        resume(out, progress)
        _show([out], out / "report.html")
        return 0


def report(words: list[str]) -> int:
    """`camp report RUN...`: the page, or a table."""
    import tyro

    from camp.bench.evaluation.after_task import Protocol
    from camp.bench.results import load_runs

    def options(
        runs: Annotated[tuple[str, ...], tyro.conf.Positional],
        out: str | None = None,
        format: Literal["page", "text", "md", "csv", "latex"] | None = None,
        protocol: Protocol = "agnostic",
        published: bool = False,
        table: Literal["comparison", "tasks", "numbers"] = "comparison",
    ) -> int:
        """Page and tables from run folders, several runs side by side.

        Args:
            runs: Folders of runs, or of several runs made by one command.
            out: File to write; by default report.html in the first folder, and tables to the screen.
            format: The HTML page (usually), or a table as text (usually with --published), Markdown, CSV or LaTeX.
            protocol: Evaluation protocol of the table: task-agnostic, task-aware, categories matched on all test images or on those of each task, or the upper bound.
            published: Tables with the numbers of the paper's Table 1, and of Table 2 for --setting cil, beside ours.
            table: One row a setting, one a task, or the numbers of novel categories beside the true ones.
        """
        if not runs:
            raise CampError("camp report needs at least one run folder.")
        folders = [Path(run) for run in runs]
        if format is None:
            format = "text" if published or table != "comparison" else "page"
        if format == "page":
            if published or table != "comparison":
                what = (
                    "The paper's numbers stand beside ours in a table"
                    if published
                    else "A page has no --table"
                )
                raise CampError(f"{what}: add --format md or another.")
            _show(folders, Path(out) if out else folders[0] / "report.html", protocol)
            return 0
        from camp.bench.report.published import published_table
        from camp.bench.report.run_tables import run_table
        from camp.core.files import write_text

        if published and table != "comparison":
            raise CampError(f"The paper has no --table {table}: leave it or --published.")
        found = load_runs(folders)
        drawn = (
            published_table(found, format, protocol)
            if published
            else run_table(found, table, format, protocol)
        )
        if out:
            write_text(Path(out), drawn + "\n")
        else:
            print(drawn)
        return 0

    return tyro.cli(options, args=words, prog="camp report")


def datasets(words: list[str]) -> int:
    """`camp datasets` lists them, `camp datasets get NAME` downloads one."""
    from camp.data.datasets import DATASETS, data_folder, present

    if words and words[0] == "get":
        from camp.data.datasets.download import get

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
    from camp.methods.registry import METHODS, methods_for

    if words and words[0] not in ("-h", "--help"):
        raise CampError(f'camp methods does not know "{words[0]}"; it lists the methods.')
    print("For every setting (camp run --method all):")
    for name in methods_for(labelled=False):
        print(f"  {name:14} {METHODS[name].title}")
    print("\nClass-incremental learning, every picture with its label (camp run --method all --setting cil):")
    for name in methods_for(labelled=True):
        print(f"  {name:14} {METHODS[name].title}")
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
    from camp.bench.demo import run_demo
    from camp.core.progress import Progress

    _show(run_demo(folder, Progress(quiet)), folder / "report.html")
    return 0


def _show(folders: list[Path], page: Path, protocol: "Protocol" = "agnostic", by_task: bool = True) -> None:
    """Write the page of some runs, print their tables and where the page is; of several processes the first does."""
    if os.environ.get("RANK", "0") != "0":
        return
    from camp.bench.report.page import write_page
    from camp.bench.report.run_tables import run_table
    from camp.bench.results import load_runs

    runs = load_runs(folders)
    write_page(runs, page, protocol)
    if by_task:
        print(run_table(runs, "tasks", protocol=protocol))
    print(run_table(runs, protocol=protocol))
    print(f"\nThe page: {page.resolve()}")


def _show_several(outcome: "Outcome", out: Path) -> int:
    """One table and one page of the runs that finished; 2 if some did not, and why."""
    if outcome.finished:
        _show(outcome.finished, out / "report.html", by_task=False)
    for method, error in outcome.failed.items():
        print(f"camp: {method} did not finish: {error}", file=sys.stderr)
    return 2 if outcome.failed else 0


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


def over_workspace(name: str) -> Callable[[list[str]], int]:
    """The command `name` of camp.cli.workspace."""

    def command(words: list[str]) -> int:
        from camp.cli import workspace as commands

        return getattr(commands, name)(words)

    return command


def study(words: list[str]) -> int:
    """`camp study`: a grid of runs, and the table or figure made from them."""
    from camp.cli.study import study

    return study(words)


OVER_WORKSPACE = ("learn", "review", "status", "predict", "export", "serve")
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    **{name: over_workspace(name) for name in OVER_WORKSPACE},
    "run": run,
    "report": report,
    "study": study,
    "datasets": datasets,
    "methods": methods,
    "demo": demo,
}

if __name__ == "__main__":
    sys.exit(main())
