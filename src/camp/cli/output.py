"""What commands print about runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from camp.bench.evaluation.class_groups import Protocol


def show_runs(
    folders: list[Path], page: Path, protocol: "Protocol" = "agnostic", by_task: bool = True
) -> None:
    """Write the page of some runs and print their tables; of several processes only the first does."""
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
