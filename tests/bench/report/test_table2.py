"""Table 2, and our runs of class-incremental learning beside it."""

import csv
import io
from pathlib import Path
from typing import Any

from synthetic_runs import edited, make_incremental_run

from camp.bench.report.groups import group_runs
from camp.bench.report.published import TABLE_2, beside_paper, other_orders, published_table
from camp.bench.results import StoredRun, load_run
from camp.data.datasets import DATASETS
from camp.methods.registry import METHODS, methods_for


def run(
    folder: Path, method: str, incremental: float, final: float = 10.0, dataset: str = "cifar100",
    tasks: int = 5, seed: int = 0,
) -> StoredRun:  # fmt: skip
    """A run with these accuracies in per cent."""
    path = folder / f"{dataset}-{method}-{tasks}-{seed}"
    made = make_incremental_run(path, method=method, seed=seed, tasks=tasks, dataset=dataset,
                                dataset_title=DATASETS[dataset].title)  # fmt: skip

    def edit(results: dict[str, Any]) -> None:
        summary = results["summary"]["agnostic"]
        summary["incremental"]["all"], summary["final"]["all"] = incremental / 100, final / 100

    return edited(load_run(made), edit)


def row(method: str) -> list[float | None]:
    return [value for [value] in TABLE_2.rows[method, 0]]


def test_the_paper_says_of_its_own_table() -> None:
    """Sentences of its text, which were not copied from the table."""
    ahead = [round((camp or 0) - (other or 0), 1) for camp, other in zip(row("camp"), row("fetril"))]
    assert ahead[:3] == [6.5, 10.4, 4.3]
    for number in range(len(TABLE_2.columns)):
        others = [row(method)[number] or 0 for method, _ in TABLE_2.rows if method not in ("camp", "joint")]
        assert max(others) < (row("camp")[number] or 0) < (row("joint")[number] or 0)


def test_columns_and_rows_are_those_of_the_paper() -> None:
    assert TABLE_2.columns == [
        *(("cifar100", n) for n in (5, 10, 20)),
        *(("domainnet", n) for n in (6, 12, 24)),
        *(("imagenet_subset", n) for n in (5, 10, 20)),
    ]
    assert {method for method, _ in TABLE_2.rows} == set(methods_for(labelled=True)) <= set(METHODS)
    assert all(len(blocks) == len(TABLE_2.columns) for blocks in TABLE_2.rows.values())
    # One training on the whole data set does not depend on the tasks, but DomainNet's classes do.
    assert len(set(row("joint")[:3])) == len(set(row("joint")[6:])) == 1
    assert [number for number, value in enumerate(row("il2a")) if value is None] == [0, 6, 7, 8]
    assert TABLE_2.value("lwf", 0, ("domainnet", 24), "incremental") == 15.1
    assert TABLE_2.value("frozen", 0, ("cifar100", 5), "incremental") is None


def test_ours_the_papers_and_the_end_in_the_papers_order(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, "camp", 61.0, 50.0),
        run(tmp_path, "frozen", 30.0, 20.0),
        run(tmp_path, "fine-tune", 35.0, 15.0),
        run(tmp_path, "il2a", 45.0, 33.0),
    ]
    table = beside_paper(TABLE_2, group_runs(runs))
    assert table.columns == ("method", "seeds", "cifar100 5 tasks", "paper", "last")
    shown = published_table(runs, "md").splitlines()
    assert shown[2:6] == [
        "| fine-tune | 1 | 35.0 | 40.6 | 15.0 |",
        "| il2a | 1 | 45.0 | – | 33.0 |",
        "| camp | 1 | **61.0** | 65.0 | **50.0** |",
        "| frozen | 1 | 30.0 | – | 20.0 |",
    ]
    assert shown[7:] == [f"- {TABLE_2.note}"]


def test_joint_is_compared_in_the_end(tmp_path: Path) -> None:
    """The paper's is one training on everything, not a mean over the tasks."""
    runs = [run(tmp_path, "joint", 80.0, 68.0), run(tmp_path, "camp", 70.0, 60.0)]
    lines = published_table(runs, "md").splitlines()
    assert lines[3] == "| joint | 1 | 68.0 | 71.4 | 68.0 |"
    assert other_orders(TABLE_2, group_runs(runs)) == [
        "CIFAR-100, 5 tasks: ours camp > joint, paper joint > camp",
    ]


def test_blocks_of_data_sets_and_numbers_of_tasks(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, "camp", 40.0, dataset="domainnet", tasks=6),
        run(tmp_path, "camp", 50.0, tasks=10),
        run(tmp_path, "camp", 60.0, tasks=5, seed=0),
        run(tmp_path, "camp", 64.0, tasks=5, seed=1),
        run(tmp_path, "lwf", 41.0, tasks=10),
        run(tmp_path, "lwf", 70.0, tasks=3),
    ]
    head, _, lwf, camp, *_ = published_table(runs, "md").splitlines()
    assert head == (
        "| method | seeds | cifar100 5 tasks | paper | last | cifar100 10 tasks | paper | last "
        "| domainnet 6 tasks | paper | last | cifar100 3 tasks | paper | last |"
    )
    assert camp.startswith("| camp | 2, 1, 1 | 62.0 ± 2.8 | 65.0 | 10.0 ± 0.0 | **50.0** | 56.7 |")
    assert lwf == "| lwf | 1 | – | 49.4 | – | 41.0 | 47.0 | **10.0** | – | 30.5 | – | 70.0 | – | 10.0 |"


def test_other_orders_are_told_where_they_differ(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, "camp", 50.0),
        run(tmp_path, "pass", 55.0),
        run(tmp_path, "lwf", 20.0),
        run(tmp_path, "il2a", 99.0),  # the paper has no figure
        run(tmp_path, "camp", 50.0, tasks=10),
        run(tmp_path, "pass", 40.0, tasks=10),
    ]
    line = "CIFAR-100, 5 tasks: ours pass > camp > lwf, paper camp > pass > lwf"
    assert other_orders(TABLE_2, group_runs(runs)) == [line]
    assert published_table(runs, "md").endswith(f"\n- {line}\n")
    runs[1] = edited(runs[1], lambda r: r.update(tasks_planned=6))  # and is under way
    assert other_orders(TABLE_2, group_runs(runs)) == []


def test_every_format_has_all_three_figures(tmp_path: Path) -> None:
    runs = [run(tmp_path, "camp", 61.0, 50.0), run(tmp_path, "camp", 51.0, 40.0, tasks=10)]
    [row] = csv.DictReader(io.StringIO(published_table(runs, "csv")))
    assert row["cifar100_5_tasks"] == "61.0000"
    assert (row["cifar100_10_tasks_paper"], row["cifar100_10_tasks_last"]) == ("56.7", "40.0000")
    assert "$61.0$ & 65.0 & $50.0$ &" in published_table(runs, "latex")
    assert published_table(runs, "text").split()[-8:] == ["camp", "1", "61.0", "65.0", "50.0", "51.0", "56.7", "40.0"]  # fmt: skip
