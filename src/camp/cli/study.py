"""`camp study`: list studies, run what is missing of one, draw it."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import tyro

from camp.bench.engines import Engine
from camp.bench.report.tables import render
from camp.bench.settings import option_names
from camp.bench.studies.output import draw
from camp.bench.studies.paper_studies import STUDIES, named
from camp.bench.studies.runner import Conducted, conduct, missing
from camp.bench.studies.study import Study, smoke
from camp.bench.studies.toml_study import written
from camp.core.errors import CampError
from camp.core.progress import Progress

ABOUT = """camp study                list the studies of the paper
camp study NAME           run what is missing of one, and draw it
camp study FILE.toml      the same for one of your own

Runs of all studies lie in --out (studies/ if it is left out); one that is finished is never run again. Options of camp run hold for
all runs of the study: --dataset cub200 --data CUB --epochs 10; one that the study varies keeps the runs with this value, or with several:
--alpha 0.1,0.4.
"""


def study(words: list[str]) -> int:
    """The command."""
    if not words:
        _list()
        return 0
    if words[0] in ("-h", "--help"):
        print(ABOUT)
        words = ["--help"]
    if words[0].startswith("-") and words != ["--help"]:
        raise CampError("camp study needs the name of a study first; `camp study` lists them.")
    asked = None if words == ["--help"] else _found(words[0])
    options, rest = tyro.cli(
        _options, args=words if asked is None else words[1:], prog="camp study NAME", return_unknown_args=True
    )
    assert asked is not None  # --help has left
    asked = smoke(asked) if options["smoke"] else asked
    asked = asked.under(_parsed(asked, rest))
    if options["seeds"] is not None:
        asked = _with_seeds(asked, options["seeds"])
    store = Path(options["out"])
    if options["dry"]:
        return _plan(asked, store)
    progress = Progress(options["quiet"])
    conducted = conduct(asked, store, _engine(options), progress)
    return _show(asked, conducted, store / asked.name)


def _options(
    out: str = "studies",
    seeds: str | None = None,
    smoke: bool = False,
    dry: bool = False,
    engine: Literal["local", "ray"] = "local",
    jobs: int | None = None,
    address: str | None = None,
    cpus: float | None = None,
    gpus: float = 0.0,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run what is missing of a study, and draw it. All options of camp run are taken as well, for all of its runs.

    Args:
        out: Folder of all studies and their runs.
        seeds: With commas between: 0,1,2.
        smoke: A tiny version on scikit-learn's digits, to see that everything works.
        dry: Only say what would be run.
        engine: This machine, or a Ray cluster.
        jobs: Runs at a time; by default 1 here, and as many as there is room for on Ray.
        address: Of an existing Ray cluster; by default one is started on this machine.
        cpus: Cores of each run; by default 1 on Ray, and here all of them divided by jobs. The same number gives the same digits.
        gpus: That a run needs on Ray; a part of one is shared.
        quiet: No progress.
    """
    return dict(locals())


def _found(name: str) -> Study:
    return written(Path(name)) if name.endswith(".toml") else named(name)


def _list() -> None:
    print("The studies of the paper (camp study NAME --dataset ... runs one, camp study --help explains):\n")
    for study in STUDIES.values():
        print(f"  {study.name:22} {study.title}; {len(study.rows)} x {len(study.seeds)} runs")
    print("\nYour own, as TOML: camp study FILE.toml")


def _parsed(study: Study, words: Sequence[str]) -> dict[str, Any]:
    """Options of camp run out of `words`, as --name value, --name=value, --name or --no-name."""
    values: dict[str, Any] = {}
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    at = 0
    while at < len(words):
        if not words[at].startswith("--"):
            raise CampError(f'"{words[at]}" belongs to no option; leave it out.')
        name = words[at].removeprefix("--").replace("-", "_")
        given = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else None
        if given is None and name.startswith("no_") and not _takes(study, name):
            name, value = name.removeprefix("no_"), False
        else:
            varied = any(name in row for row in study.rows)
            value = True if given is None else (_values(given) if varied else _value(given))
        if name == "seed":
            raise CampError("A study has several seeds: --seeds 0,1,2.")
        values[name] = value
        at += 1 if given is None else 2
    return values


def _takes(study: Study, name: str) -> bool:
    return any(name in option_names(row["method"]) for row in study.rows)


def _values(word: str) -> Any:
    """A word, or those between its commas as a tuple.

    >>> _values("0.1,0.5"), _values("camp")
    ((0.1, 0.5), 'camp')
    """
    return tuple(_value(part) for part in word.split(",")) if "," in word else _value(word)


def _value(word: str) -> Any:
    """A word as the number it is, or True, False, None, or itself.

    >>> _value("3"), _value("0.5"), _value("None"), _value("camp")
    (3, 0.5, None, 'camp')
    """
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return {"True": True, "False": False, "None": None}.get(word, word)


def _with_seeds(study: Study, given: str) -> Study:
    try:
        seeds = tuple(int(part) for part in given.split(","))
    except ValueError:
        raise CampError(f'--seeds takes whole numbers with commas between, not "{given}".') from None
    return replace(study, seeds=seeds)


def _engine(options: dict[str, Any]) -> Engine:
    if options["jobs"] is not None and options["jobs"] < 1:
        raise CampError(f"--jobs must be at least 1, not {options['jobs']}.")
    if options["engine"] == "ray":
        from camp.bench.engines.ray_cluster import RayEngine

        cpus = 1.0 if options["cpus"] is None else options["cpus"]
        return RayEngine(options["address"], cpus, options["gpus"], options["jobs"])
    if options["address"] is not None:
        raise CampError("--address is that of a Ray cluster: add --engine ray.")
    if options["gpus"]:
        raise CampError(
            "--gpus is what a run gets on Ray: add --engine ray, or --device cuda for this machine."
        )
    if options["cpus"] is not None and options["cpus"] < 1:
        raise CampError(f"--cpus must be at least 1 on this machine, not {options['cpus']:g}.")
    from camp.bench.engines.local import LocalEngine

    return LocalEngine(options["jobs"] or 1, int(options["cpus"] or 0) or None)


def _plan(study: Study, store: Path) -> int:
    """What would be run."""
    jobs = missing(study, store)
    points = {point.address: point.label for point in study.points()}
    todo = {job.folder.name for job in jobs}
    for address, label in points.items():
        print(f"{'to do' if address in todo else 'done ':6} {address}  {label}")
    print(f"{len(points) - len(todo)} of {len(points)} runs are there.")
    return 0


def failures(conducted: Conducted) -> list[str]:
    """What went wrong, once for all runs in which it did."""
    runs: dict[str, list[tuple[str, Path]]] = {}
    for label, (fault, log) in conducted.failed.items():
        runs.setdefault(fault, []).append((label, log))
    sentences = []
    for fault, each in runs.items():
        label, log = each[0]
        if len(each) == 1:
            sentences.append(f"{label} did not finish: {fault} Its log: {log}")
        else:
            who = f"{label} and {len(each) - 1} more"
            sentences.append(
                f"{who} did not finish: {fault} Their logs are in {log.parent}, the first is {log.name}."
            )
    return sentences


def _show(study: Study, conducted: Conducted, folder: Path) -> int:
    """The table on the screen, the files beside it; 2 if runs failed, and which."""
    if conducted.rows:
        drawn = draw(study, conducted, folder)
        print(render(drawn.table, "text"))
        for note in drawn.notes:
            print(note)
        if drawn.figure is not None:
            print(f"The figure: {(folder / 'figure.png').resolve()}")
        print(f"The page: {(folder / 'page.html').resolve()}")
    for sentence in failures(conducted):
        print(f"camp: {sentence}", file=sys.stderr)
    if not conducted.rows and not conducted.failed:
        raise CampError(f"No run of the study {study.name} has finished.")
    return 2 if conducted.failed else 0
