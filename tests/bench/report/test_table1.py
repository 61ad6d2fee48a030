"""Table 1, and our runs of category discovery beside it."""

import csv
import io
from pathlib import Path

import pytest
from synthetic_runs import edited, make_run, without_task_hungarian

from camp.bench.report.groups import group_runs
from camp.bench.report.published import TABLE_1, beside_paper, other_orders, published_table
from camp.bench.report.run_tables import Metric
from camp.bench.results import StoredRun, load_run
from camp.data.datasets import DATASETS as REGISTERED
from camp.methods.registry import METHODS


def run(
    folder: Path, method: str, final: float, exemplars: int = 0, dataset: str = "cub200", seed: int = 0
) -> StoredRun:
    """A run of one task with a final accuracy of `final` per cent on all classes."""
    title = REGISTERED[dataset].title
    path = folder / f"{dataset}-{method}-{exemplars}-{seed}"
    made = make_run(
        path, method=method, exemplars=exemplars, seed=seed, tasks=1, images=0, epochs=0,
        dataset=dataset, dataset_title=title,
    )  # fmt: skip
    return edited(load_run(made), lambda r: r["summary"]["agnostic"]["final"].update(all=final / 100))


def figure_of(method: str, exemplars: int, dataset: str, name: Metric = "all") -> float:
    value = TABLE_1.value(method, exemplars, (dataset, None), name)
    assert value is not None
    return value


def test_the_paper_says_of_its_own_table() -> None:
    """Sentences of its text, which were not copied from the table."""

    def ahead(dataset: str, one: tuple[str, int], other: tuple[str, int]) -> list[float]:
        names = TABLE_1.metrics
        return [round(figure_of(*one, dataset, n) - figure_of(*other, dataset, n), 1) for n in names]

    assert ahead("cub200", ("camp", 0), ("gcd-ewc", 0)) == [8.6, 9.3, 6.1]
    assert ahead("domainnet", ("gcd-fd", 0), ("camp", 0))[::2] == [-4.0, 10.0]
    assert ahead("cub200", ("gcd-er", 5), ("gcd", 0))[0] == 16.0
    assert ahead("cub200", ("gcd-er", 20), ("gcd", 0))[0] == 31.4


def test_camp_is_best_on_three_data_sets_with_and_without_exemplars() -> None:
    for dataset in ("cifar100", "stanford_cars", "cub200"):
        for exemplars in (0, 5, 20):
            rivals = [figure_of(m, e, dataset) for m, e in TABLE_1.rows if e == exemplars and m != "camp"]
            assert figure_of("camp", exemplars, dataset) > max(rivals)


def test_impossible_numbers_are_those_named() -> None:
    odd = set()
    for method, exemplars in TABLE_1.rows:
        for dataset, _ in TABLE_1.columns:
            whole, known, novel = (figure_of(method, exemplars, dataset, n) for n in TABLE_1.metrics)
            if not min(known, novel) <= whole <= max(known, novel):
                odd.add((method, exemplars, dataset))
    assert odd == {
        ("simgcd", 0, "stanford_cars"), ("simgcd", 0, "domainnet"), ("gcd-fd", 0, "domainnet"),
        ("metagcd", 0, "domainnet"), ("igcd", 5, "domainnet"),
    }  # fmt: skip


def test_names_are_those_of_the_registries() -> None:
    assert {method for method, _ in TABLE_1.rows} <= set(METHODS)
    assert {dataset for dataset, _ in TABLE_1.columns} <= set(REGISTERED)
    assert all([len(block) for block in row] == [3] * 5 for row in TABLE_1.rows.values())
    assert {exemplars for _, exemplars in TABLE_1.rows} == {0, 5, 20}
    assert TABLE_1.value("frozen", 0, ("cub200", None), "all") is None


def test_rows_are_in_the_papers_order_by_exemplars(tmp_path: Path) -> None:
    asked = [
        ("camp", 20),
        ("frozen", 0),
        ("camp", 0),
        ("gcd-er", 20),
        ("gcd", 0),
        ("pa", 20),
        ("simgcd", 0),
        ("gm", 5),
    ]
    runs = [run(tmp_path, method, 50.0, exemplars) for method, exemplars in asked]
    table = beside_paper(TABLE_1, group_runs(runs))
    assert table.columns == ("method", "exemplars", "all", "paper", "known", "paper", "novel", "paper")
    assert [row[:2] for row in table.rows] == [
        ("gcd", 0), ("simgcd", 0), ("simgcd (authors' protocol)", 0), ("camp", 0), ("frozen", 0), ("gm", 5), ("gcd-er", 20), ("pa", 20), ("camp", 20),
    ]  # fmt: skip
    assert table.rows[3][3::2] == ("58.9", "62.6", "44.2")
    assert table.rows[4][3::2] == (None, None, None)


def with_protocol(made: StoredRun, final: float) -> StoredRun:
    """The run with an accuracy of `final` per cent when categories are matched on the test images of each task."""
    return edited(made, lambda r: r["summary"]["task_hungarian"]["final"].update(all=final / 100))


def test_simgcd_has_a_row_under_the_protocol_of_its_number(tmp_path: Path) -> None:
    """The paper's number stands in that row alone, and neither it nor the order is compared across protocols."""
    simgcd = with_protocol(run(tmp_path, "simgcd", 23.6), 46.0)
    runs = [simgcd, run(tmp_path, "gcd", 30.0), run(tmp_path, "gcd-fd", 44.0)]
    lines = published_table(runs, "md").splitlines()
    [plain] = [line for line in lines if line.startswith("| simgcd | 0 | 23.6 |")]
    [own] = [line for line in lines if line.startswith("| simgcd (authors' protocol) | 0 | 46.0 |")]
    assert plain.split(" | ")[3] == "–"
    assert own.split(" | ")[3] == "35.7"
    assert any("**44.0**" in line for line in lines)  # the best of those under one protocol
    assert [line for line in lines if "matched to classes anew" in line]
    [order] = other_orders(TABLE_1, group_runs(runs))
    assert "ours simgcd > gcd-fd > gcd" in order


def test_a_protocol_that_runs_do_not_have_has_no_row(tmp_path: Path) -> None:
    made = run(tmp_path, "simgcd", 23.6)
    old = without_task_hungarian(tmp_path / "cub200-simgcd-0-0")
    [row] = beside_paper(TABLE_1, group_runs([load_run(old)])).rows
    assert (row[0], row[3]) == ("simgcd", "35.7")
    aware = beside_paper(TABLE_1, group_runs([made]), "aware").rows
    assert [row[0] for row in aware] == ["simgcd"]


def test_seeds_become_mean_and_deviation(tmp_path: Path) -> None:
    runs = [run(tmp_path, "camp", 50.0, seed=0), run(tmp_path, "camp", 54.0, seed=1)]
    assert published_table(runs, "md").splitlines()[2].startswith("| camp | 0 | 52.0 ± 2.8 | 58.9 | ")


def test_data_sets_are_blocks_in_the_papers_order(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, "camp", 50.0, dataset="digits"),
        run(tmp_path, "camp", 60.0),
        run(tmp_path, "camp", 40.0, dataset="cifar100"),
        run(tmp_path, "gcd", 20.0),
    ]
    head, _, gcd, camp = published_table(runs, "md").splitlines()
    assert head == (
        "| method | exemplars | cifar100 all | paper | known | paper | novel | paper "
        "| cub200 all | paper | known | paper | novel | paper | digits all | paper | known | paper | novel | paper |"
    )
    assert gcd.startswith("| gcd | 0 | – | 26.7 | – | 26.6 | – | 27.2 | 20.0 | 20.6 |")
    assert camp.split(" | ")[2:4] == ["40.0", "52.1"]
    assert camp.split(" | ")[8:10] == ["**60.0**", "58.9"]
    assert camp.split(" | ")[14:16] == ["50.0", "–"]


def test_every_format_has_both_figures(tmp_path: Path) -> None:
    runs = [run(tmp_path, "camp", 50.0), run(tmp_path, "camp", 40.0, dataset="cifar100")]
    [row] = csv.DictReader(io.StringIO(published_table(runs, "csv")))
    assert (row["cub200_all"], row["cub200_all_paper"]) == ("50.0000", "58.9")
    assert (row["cifar100_all"], row["cifar100_novel_paper"]) == ("40.0000", "37.8")
    assert "$50.0$ & 58.9 &" in published_table(runs, "latex")
    assert "58.9" in published_table(runs, "text")


def test_other_orders_are_told_where_they_differ(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, "gcd", 60.0),
        run(tmp_path, "camp", 55.0),
        run(tmp_path, "frozen", 99.0),  # not in the paper
        run(tmp_path, "gcd-fd", 41.0),
        run(tmp_path, "metagcd", 30.0),  # the paper has 42.0 for both
        run(tmp_path, "gcd-er", 40.0, exemplars=20),
        run(tmp_path, "camp", 70.0, exemplars=20),
        run(tmp_path, "gcd", 10.0, dataset="cifar100"),
        run(tmp_path, "gcd-ewc", 9.0, dataset="cifar100"),
    ]
    lines = [
        "CIFAR-100, 0 exemplars: ours gcd > gcd-ewc, paper gcd-ewc > gcd",
        "CUB-200-2011 birds, 0 exemplars: ours gcd > camp > gcd-fd > metagcd, paper camp > gcd-fd = metagcd > gcd",
    ]
    assert other_orders(TABLE_1, group_runs(runs)) == lines
    assert published_table(runs, "md").split("\n\n")[1].splitlines() == [f"- {line}" for line in lines]
    assert "ours" not in published_table(runs, "text")


@pytest.mark.parametrize("ours", [(50.0, 40.0, 40.0), (50.0, 40.0, 39.0), (50.04, 50.0, 50.0)])
def test_an_order_that_only_breaks_or_makes_a_tie_is_the_same(
    tmp_path: Path, ours: tuple[float, float, float]
) -> None:
    methods = ("camp", "gcd-fd", "metagcd")
    runs = [run(tmp_path, method, final) for method, final in zip(methods, ours)]
    assert other_orders(TABLE_1, group_runs(runs)) == []


def test_a_run_under_way_has_no_place_in_an_order(tmp_path: Path) -> None:
    runs = [run(tmp_path, "camp", 10.0), run(tmp_path, "gcd", 90.0)]
    assert len(other_orders(TABLE_1, group_runs(runs))) == 1
    runs[1] = edited(runs[1], lambda r: r.update(tasks_planned=5))
    assert other_orders(TABLE_1, group_runs(runs)) == []
