"""Our runs beside the paper's tables: Table 1 for category discovery, Table 2 for class-incremental learning."""

from camp.bench.report import table1, table2
from camp.bench.report.groups import group_runs
from camp.bench.report.tables import TableFormat, render
from camp.bench.results import Protocol, StoredRun


def as_published(runs: list[StoredRun], format: TableFormat = "text", protocol: Protocol = "agnostic") -> str:
    """Our runs beside the paper's figures; where every picture has its label beside those of Table 2.

    Runs of both kinds give both tables. In Markdown a line follows wherever the order of methods differs.
    """
    tables = []
    for published, labelled in ((table1, False), (table2, True)):
        groups = group_runs([run for run in runs if run.results.all_labelled is labelled])
        if not groups:
            continue
        table = render(published.beside_paper(groups, protocol, whole_names=format == "csv"), format)
        lines = published.other_orders(groups, protocol)
        if labelled:
            lines = [table2.NOTE, *lines]
        if format == "md" and lines:
            table += "\n" + "".join(f"- {line}\n" for line in lines)
        tables.append(table)
    return "\n".join(tables)
