"""What commands print about runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from camp.bench.report.schema import Protocol


def show_runs(
    folders: list[Path], page: Path, protocol: "Protocol" = "agnostic", by_task: bool = True
) -> None:
    """Write the page of some runs and print their tables; of several processes only the first does."""
    if os.environ.get("RANK", "0") != "0":
        return
    from camp.bench.report.page import write_page
    from camp.bench.report.schema import load_runs
    from camp.bench.report.tables import as_table, as_task_table

    runs = load_runs(folders)
    write_page(runs, page, protocol)
    if by_task:
        print(as_task_table(runs, protocol=protocol))
    print(as_table(runs, protocol=protocol))
    print(f"\nThe page: {page.resolve()}")
