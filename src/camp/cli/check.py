"""`camp check`: verify a workspace, a run folder or a view bank."""

from pathlib import Path
from typing import Annotated

import tyro

from camp.cli.shared import starting
from camp.core.errors import CampError
from camp.core.finding import Finding
from camp.core.progress import Progress


def check(
    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")],
    repair: bool = False,
    quiet: bool = False,
) -> None:
    """Verify a workspace, a run folder or a view bank completely, and say what can be rebuilt.

    Args:
        path: Folder of the workspace, the run or the bank.
        repair: Rebuild the log of a workspace from its steps, and remove damaged records of a bank, which are computed
            again when they are needed. A damaged log is kept beside the new one.
        quiet: Show no progress.
    """
    folder, progress = Path(path), Progress(quiet)
    findings, what = _check(folder, progress, repair)
    for finding in findings:
        print(finding)
    left = [finding for finding in findings if not finding.repaired]
    if not findings:
        print(f"{folder}: {what}; no damage was found.")
    elif left:
        hint = (
            f"; `camp check {folder} --repair` repairs some of it"
            if any(one.repairable for one in left)
            else ""
        )
        raise CampError(f"{folder} is damaged{hint}.")


def _check(folder: Path, progress: Progress, repair: bool) -> tuple[list[Finding], str]:
    """Return what was found, and what the folder holds."""
    try:
        if not folder.is_dir():
            raise CampError(f"There is no folder {folder}; give a workspace, a run folder or a view bank.")
        is_workspace = (folder / "workspace.json").exists()
        is_run = (folder / "config.json").exists() or (folder / "study.json").exists()
        is_bank = (folder / "bank.json").exists() or (folder / "clean" / "index.bin").exists()
    except OSError as error:
        raise CampError(f"{folder} cannot be read ({error.strerror or error}).") from error
    if is_workspace:
        with starting(progress.quiet):
            from camp.app.workspace.check import check_workspace, describe_workspace

        found = check_workspace(folder, progress, repair)
        return found, "" if found else describe_workspace(folder)
    if is_run:
        with starting(progress.quiet):
            from camp.bench.check import check_runs

        return check_runs(folder), "run folder"
    if is_bank:
        with starting(progress.quiet):
            from camp.data.bank.check import check_bank

        return check_bank(folder, progress, repair), "view bank"
    raise CampError(f"{folder} is neither a workspace nor a run folder nor a view bank.")
