"""Several methods one after another on one view bank, each in an ordinary run folder below one folder.

    FOLDER/several.json    the methods in order with all their settings, written first
    FOLDER/<method>/       the run of each

The settings of all runs agree in data, backbone, views and seed, so the first run fills the bank and the others
find it full.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from camp.bench.experiment import Run, resume, start
from camp.bench.run_folder import alone_in, check_free, new_folder
from camp.bench.settings import RunSettings, from_dict, to_dict
from camp.core import distributed
from camp.core.errors import CampError, LostProcessError
from camp.core.files import read_json, write_json
from camp.core.progress import Progress
from camp.core.version import __version__


@dataclass(frozen=True)
class Outcome:
    """What became of several runs."""

    finished: list[Path]
    """Their folders."""
    failed: dict[str, str]
    """Why each other method did not finish."""


def start_several(each: list[RunSettings], out: Path, progress: Progress, command: str = "") -> Outcome:
    """Begin the runs `each`, which differ in their method, in the new folder `out` and see them through."""
    with distributed.process_group(), contextlib.ExitStack() as held:
        with distributed.synchronized_errors():
            for folder in (out, *(out / settings.method for settings in each)):
                check_free(folder)
            # What is wrong with the data or the backbone is wrong for all of them, and shows before there is a folder.
            Run(each[0], out / each[0].method, progress, command).prepare()
            if distributed.is_main_process():
                held.enter_context(new_folder(out))
                methods = {settings.method: to_dict(settings) for settings in each}
                described = {"format": 1, "version": __version__, "command": command, "methods": methods}
                write_json(out / "several.json", described)
        return _through(each, out, progress, command)


def resume_several(out: Path, progress: Progress) -> Outcome:
    """Go on in `out`: finished runs are left as they are, begun ones resumed, missing ones begun."""
    with distributed.process_group(), contextlib.ExitStack() as held:
        described: dict[str, Any] = {}
        with distributed.synchronized_errors():
            if distributed.is_main_process():
                described = _read_several(out)
                held.enter_context(alone_in(out))
        described = distributed.broadcast(described)
        each = [from_dict(settings) for settings in described["methods"].values()]
        return _through(each, out, progress, described.get("command", ""))


def _read_several(out: Path) -> dict[str, Any]:
    described = read_json(out / "several.json")
    if not isinstance(described, dict) or not isinstance(described.get("methods"), dict):
        raise CampError(f"{out / 'several.json'} is not that of several methods; choose another folder.")
    return described


def holds_several(folder: Path) -> bool:
    """Whether `folder` is one that `start_several` made."""
    return (folder / "several.json").exists()


def _through(each: list[RunSettings], out: Path, progress: Progress, command: str) -> Outcome:
    """All runs in their order; one that fails does not keep the others from running."""
    outcome = Outcome([], {})
    for number, settings in enumerate(each, start=1):
        method, folder = settings.method, out / settings.method
        progress.note(f"Method {number} of {len(each)}: {method}")
        try:
            if distributed.broadcast((folder / "config.json").exists()):
                resume(folder, progress)
            else:
                start(settings, folder, progress, command)
        except LostProcessError:
            raise
        except CampError as error:
            progress.note(f"{method} did not finish: {error}")
            outcome.failed[method] = str(error)
        else:
            outcome.finished.append(folder)
    return outcome
