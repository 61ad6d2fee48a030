"""`camp report`: the page or a table of run folders."""

from typing import Annotated, Literal

import tyro

from camp.bench.evaluation.class_groups import Protocol
from camp.cli.output import show_runs
from camp.cli.shared import given_path
from camp.core.errors import CampError


def report(
    runs: Annotated[tuple[str, ...], tyro.conf.Positional],
    out: str | None = None,
    format: Literal["page", "text", "md", "csv", "latex"] | None = None,
    protocol: Protocol = "agnostic",
    published: bool = False,
    table: Literal["comparison", "tasks", "numbers"] = "comparison",
) -> None:
    """Make a page or a table from run folders, with several runs side by side.

    Args:
        runs: Run folders, or folders that hold run folders.
        out: File to write; if not given, report.html in the first folder, or the screen for a table.
        format: HTML page, or table as text, Markdown, CSV or LaTeX; if not given, the page, or text for --table.
        protocol: Accuracy: task-agnostic, task-aware, or after matching on the test images of all or each task.
        published: Show the numbers of the paper's Table 1, or of Table 2 with --setting cil, beside ours.
        table: One row per setting, one row per task, or the numbers of novel categories beside the true ones.
    """
    if not runs:
        raise CampError("camp report needs at least one run folder.")
    folders = [given_path(run, "A run folder") for run in runs]
    target = given_path(out, "--out") if out is not None else None
    if published and table != "comparison":
        raise CampError(f"The paper has no --table {table}: leave out --table or --published.")
    if target is not None:
        from camp.bench.run_folder import STUDY_FILE, RunFolder
        from camp.core.output_file import check_output

        found = [
            run
            for folder in folders
            for run in (folder, *(path.parent for path in folder.glob("*/config.json")))
        ]
        files = [file for run in found for file in (*RunFolder(run).own_files(), run / STUDY_FILE)]
        check_output(target, "--out", [file for file in files if file.is_dir()], files)
    if format is None:
        format = "text" if published or table != "comparison" else "page"
    if format == "page":
        if published or table != "comparison":
            reason = "The paper's numbers are shown in a table" if published else "A page has no --table"
            raise CampError(f"{reason}: add --format md or another.")
        show_runs(folders, target or folders[0] / "report.html", protocol)
        return
    from camp.bench.report.published import published_table
    from camp.bench.report.run_tables import run_table
    from camp.bench.results import load_runs
    from camp.core.output_file import write_output

    loaded = load_runs(folders)
    text = (
        published_table(loaded, format, protocol) if published else run_table(loaded, table, format, protocol)
    )
    if target is not None:
        write_output(target, text + "\n")
    else:
        print(text)
