import copy
import csv
import io
import statistics
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import edited, forget, make_incremental_run, make_run, without_task_hungarian

from camp.bench.report.groups import group_runs
from camp.bench.report.numbers import Spread
from camp.bench.report.run_tables import METRICS, run_table
from camp.bench.report.tables import Table, render
from camp.bench.results import StoredRun, load_run
from camp.bench.settings import from_flat, to_dict


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[StoredRun]:
    base = tmp_path_factory.mktemp("runs")
    each = [("gcd", 0), ("camp", 2), ("camp", 0), ("camp", 1)]
    return [load_run(make_run(base / f"{m}-{s}", method=m, seed=s, images=0, epochs=1)) for m, s in each]


def test_runs_that_differ_only_in_seed_are_one_row(runs: list[StoredRun]) -> None:
    groups = group_runs(runs)
    assert [group.label for group in groups] == ["gcd", "camp"]
    assert [run.results.seed for run in groups[1].runs] == [0, 1, 2]


def test_csv_has_mean_and_sample_deviation(runs: list[StoredRun]) -> None:
    rows = list(csv.DictReader(io.StringIO(run_table(runs, format="csv"))))
    finals = [100 * (run.results.summary["agnostic"].final.novel or 0) for run in runs[1:]]
    assert [row["method"] for row in rows] == ["gcd", "camp"]
    assert float(rows[1]["novel"]) == pytest.approx(statistics.mean(finals), abs=1e-4)
    assert float(rows[1]["novel_std"]) == pytest.approx(statistics.stdev(finals), abs=1e-4)
    assert rows[0]["novel_std"] == ""
    assert (rows[1]["seeds"], rows[1]["exemplars"]) == ("3", "0")


def test_every_format_tells_the_same_figures(runs: list[StoredRun]) -> None:
    final = runs[0].results.summary["agnostic"].final.all
    assert final is not None
    for format in ("text", "md", "latex"):
        table = run_table(runs, format=format)  # type: ignore[arg-type]
        assert f"{100 * final:.1f}" in table
        assert "gcd" in table
        assert table.endswith("\n")
    assert "±" in run_table(runs, format="text")
    assert r"\pm" in run_table(runs, format="latex")


def test_text_columns_line_up(runs: list[StoredRun]) -> None:
    head, rule, *rows = run_table(runs, format="text").splitlines()
    assert head.split()[:3] == ["method", "exemplars", "seeds"]
    assert {len(row) for row in rows} == {len(head), len(rule)} == {len(rule)}


def test_settings_that_differ_become_labels(tmp_path: Path) -> None:
    def run(name: str, **settings: object) -> StoredRun:
        return load_run(make_run(tmp_path / name, images=0, epochs=1, config={"settings": dict(settings)}))

    plain, ablated = run("a", adapter={"kind": "linear"}), run("b", adapter={"kind": "none"})
    labels = [group.label for group in group_runs([plain, ablated])]
    assert labels == ["camp (kind linear)", "camp (kind none)"]
    assert [group.label for group in group_runs([plain])] == ["camp"]


def test_options_that_are_newer_than_a_run_have_their_default(tmp_path: Path) -> None:
    new = to_dict(from_flat("camp", {"epochs": 3}))
    old = copy.deepcopy(new)
    del old["settings"]["training"]["optimizer"]
    runs = [
        load_run(make_run(tmp_path / f"{seed}", seed=seed, images=0, epochs=1, config={"settings": settings}))
        for seed, settings in enumerate((old, new))
    ]
    assert [group.label for group in group_runs(runs)] == ["camp"]


def test_labels_speak_plainly_of_nested_settings(tmp_path: Path) -> None:
    def run(name: str, adapter: str, share: float, data: str) -> StoredRun:
        data_settings = {"data": data, "labelled_fraction": share, "tasks": None if adapter == "sdc" else 4}
        config = {"version": name, "settings": {"data": data_settings, "settings": {"adapter": adapter}}}
        return load_run(make_run(tmp_path / name, images=0, epochs=1, config=config))

    runs = [run("a", "linear", 0.5, "/here"), run("b", "sdc", 0.5, "/there"), run("c", "sdc", 0.25, "/here")]
    assert [group.label for group in group_runs(runs)] == [
        "camp (labelled_fraction 0.5, adapter linear)",
        "camp (labelled_fraction 0.5, adapter sdc)",
        "camp (labelled_fraction 0.25, adapter sdc)",
    ]


def test_settings_that_end_in_the_same_word_keep_their_whole_name(tmp_path: Path) -> None:
    runs = [
        load_run(
            make_run(
                tmp_path / kind,
                images=0,
                epochs=1,
                config={"settings": {"a": {"kind": kind}, "b": {"kind": "x"}}},
            )
        )
        for kind in ("one", "two")
    ]
    assert [group.label for group in group_runs(runs)] == [
        "camp (settings.a.kind one)",
        "camp (settings.a.kind two)",
    ]


def test_exemplars_have_a_column_and_no_label(tmp_path: Path) -> None:
    runs = [
        load_run(
            make_run(
                tmp_path / str(m), exemplars=m, images=0, epochs=1, config={"settings": {"exemplars": m}}
            )
        )
        for m in (0, 20)
    ]
    assert [group.label for group in group_runs(runs)] == ["camp", "camp"]


def test_other_classes_or_the_same_seed_again_are_not_another_seed(tmp_path: Path) -> None:
    first = load_run(make_run(tmp_path / "first", images=0, epochs=1))
    again = load_run(make_run(tmp_path / "again", images=0, epochs=1))
    other = load_run(make_run(tmp_path / "other", seed=1, novel=3, images=0, epochs=1))
    labels = [group.label for group in group_runs([first, again, other])]
    assert labels == ["camp [first]", "camp [again]", "camp [other]"]


def test_an_unfinished_run_stands_alone(tmp_path: Path) -> None:
    done = load_run(make_run(tmp_path / "done", tasks=3, images=0, epochs=1))
    begun = load_run(make_run(tmp_path / "begun", seed=1, tasks=2, planned=3, images=0, epochs=1))
    assert [group.label for group in group_runs([done, begun])] == ["camp", "camp (2 of 3 tasks)"]


def test_several_data_sets_get_a_column(tmp_path: Path) -> None:
    runs = [
        load_run(make_run(tmp_path / name, dataset=name, images=0, epochs=1)) for name in ("cub200", "digits")
    ]
    assert run_table(runs, format="md").startswith("| dataset | method |")


def test_missing_figures_are_dashes(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "x", tasks=1, known=0, images=0, epochs=1))
    cells = run_table([run], format="md").splitlines()[2].split(" | ")
    assert cells[3] == "–"  # known
    assert cells[5] == "–"  # forgetting


def test_without_novel_classes_there_is_nothing_to_tell_apart(tmp_path: Path) -> None:
    run = load_run(make_incremental_run(tmp_path / "cil", method="lwf", tasks=3))
    assert run_table([run], format="md").splitlines()[0] == (
        "| method | exemplars | all | forgetting | plasticity | incremental |"
    )
    table = run_table([run], "tasks", "csv")
    assert table.splitlines()[0] == (
        "method,task,classes,learned,learned_std,mean_so_far,mean_so_far_std,in_the_end,in_the_end_std"
    )
    rows = list(csv.DictReader(io.StringIO(table)))
    after = [100 * statistics.mean(task.agnostic.all) for task in run.results.tasks]  # type: ignore[type-var]
    assert [float(row["mean_so_far"]) for row in rows] == pytest.approx(after, abs=1e-4)
    incremental = run.results.summary["agnostic"].incremental.all
    assert statistics.mean(after) == pytest.approx(100 * (incremental or 0))
    # Beside a run that has novel classes the columns are there.
    other = load_run(make_run(tmp_path / "gccd", tasks=3, images=0, epochs=1))
    assert "| known | novel |" in run_table([run, other], format="md")


def test_other_numbers_of_tasks_get_a_column(tmp_path: Path) -> None:
    runs = [load_run(make_incremental_run(tmp_path / str(n), tasks=n)) for n in (2, 3)]
    assert [group.label for group in group_runs(runs)] == ["camp", "camp"]
    lines = run_table(runs, format="md").splitlines()
    assert lines[0].startswith("| method | exemplars | tasks | all |")
    assert [line.split(" | ")[2] for line in lines[2:]] == ["2", "3"]
    rows = list(csv.DictReader(io.StringIO(run_table(runs, "tasks", "csv"))))
    assert [(row["tasks"], row["task"]) for row in rows] == [
        *(("2", "1"), ("2", "2")),
        *(("3", "1"), ("3", "2"), ("3", "3")),
    ]


def test_task_table_shows_learning_and_the_end(runs: list[StoredRun]) -> None:
    rows = list(csv.DictReader(io.StringIO(run_table(runs[:1], "tasks", "csv"))))
    tasks = runs[0].results.tasks
    assert [row["task"] for row in rows] == ["1", "2", "3", "4"]
    learned = [task.agnostic.all[i] or 0 for i, task in enumerate(tasks)]
    assert [float(row["learned"]) for row in rows] == pytest.approx([100 * x for x in learned], abs=1e-4)
    last = tasks[-1].agnostic.known
    assert [float(row["known"]) for row in rows] == pytest.approx([100 * (x or 0) for x in last], abs=1e-4)


def test_letters_that_would_break_a_table_are_escaped() -> None:
    table = Table(("method", "all"), [("a_b & 50% | [c] \\", Spread(0.5, 0.01))], frozenset({"all"}))
    assert r"a\_b \& 50\% | [c] \textbackslash{} & $50.0 \pm 1.0$" in render(table, "latex")
    assert r"50% \| [c]" in render(table, "md")
    assert r"a_b & 50% | [c] \\" not in render(table, "text")
    assert "a_b & 50% | [c] \\" in render(table, "text")


@pytest.mark.parametrize("protocol", ["agnostic", "aware", "test_hungarian", "task_hungarian"])
def test_the_protocol_is_that_of_all_figures(runs: list[StoredRun], protocol: Any) -> None:
    [row] = csv.DictReader(io.StringIO(run_table(runs[:1], format="csv", protocol=protocol)))
    summary = runs[0].results.summary[protocol]
    values = {name: getattr(summary, name).all for name in ("forgetting", "plasticity", "incremental")}
    values |= summary.final.model_dump()
    assert values.keys() == set(METRICS)
    for name, value in values.items():
        assert float(row[name]) == pytest.approx(100 * value, abs=1e-4)
    tasks = list(csv.DictReader(io.StringIO(run_table(runs[:1], "tasks", "csv", protocol))))
    last = runs[0].results.tasks[-1].accuracy(protocol).novel
    assert [float(task["novel"]) for task in tasks] == pytest.approx([100 * x for x in last], abs=1e-4)


def test_a_run_without_the_protocol_shows_dashes(tmp_path: Path, runs: list[StoredRun]) -> None:
    old = load_run(without_task_hungarian(make_run(tmp_path / "old", seed=7, images=0, epochs=1)))
    cells = run_table([old], format="md", protocol="task_hungarian").splitlines()[2].split(" | ")
    assert cells[2:] == ["–"] * 5 + ["– |"]
    cells = run_table([old], "tasks", "md", "task_hungarian").splitlines()[2].split(" | ")
    assert cells[4:] == ["–"] * 4 + ["– |"]
    # Beside seeds that have it, it does not count.
    with_it = run_table(runs[1:], format="csv", protocol="task_hungarian").splitlines()[1].split(",")
    joined = run_table([*runs[1:], old], format="csv", protocol="task_hungarian").splitlines()[1].split(",")
    assert (with_it[2], joined[2]) == ("3", "4")
    assert with_it[3:] == joined[3:]


def test_what_rounds_to_nothing_has_no_sign(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", images=0, epochs=1)
    forget(folder, -1e-17)
    run = load_run(folder)
    [row] = csv.DictReader(io.StringIO(run_table([run], format="csv")))
    assert row["forgetting"] == "0.0000"
    assert run_table([run], format="md").splitlines()[-1].split(" | ")[-3] == "0.0"
    forget(folder, -4e-4)
    assert run_table([load_run(folder)], format="md").splitlines()[-1].split(" | ")[-3] == "0.0"
    forget(folder, -6e-4)
    assert run_table([load_run(folder)], format="md").splitlines()[-1].split(" | ")[-3] == "-0.1"


def test_estimated_numbers_stand_beside_the_true_ones(tmp_path: Path) -> None:
    runs = [load_run(make_run(tmp_path / str(s), seed=s, tasks=2, images=0, epochs=1)) for s in (0, 1)]

    def edit(used: tuple[int, int], error: float | None) -> Any:
        def change(results: dict[str, Any]) -> None:
            for task, number in zip(results["tasks"], used):
                task.update(novel_true=4, novel_used=number)
            results["tasks"][1]["novel_error"] = error

        return change

    second = edited(runs[1], edit((4, 4), None))
    for error, told, covered in ((0.75, "0.8", "1 of 1"), (0.6, "0.6", "0 of 1"), (None, "", "")):
        first = edited(runs[0], edit((3, 5), error))
        [row] = csv.DictReader(io.StringIO(run_table([first, second], "numbers", "csv")))
        assert (row["there_are"], row["task_1"], row["task_2"]) == ("4", "3, 4", "5, 4")
        assert (row["off"], row["own_error"], row["covered"]) == ("0.5", told, covered)


def test_the_best_of_each_column_is_bold_and_of_forgetting_the_least() -> None:
    rows: list[tuple[Any, ...]] = [
        ("a", Spread(0.5, None), Spread(0.3, None), None),
        ("b", Spread(0.7, 0.01), Spread(0.2, None), Spread(0.1, None)),
        ("c", Spread(0.7, 0.02), Spread(0.1, None), None),
    ]
    table = Table(("method", "all", "forgetting", "novel"), rows, frozenset(("all", "forgetting", "novel")))
    assert table.best == {(1, 1), (2, 1), (2, 2)}  # the only value of a column is not the best
    assert render(table, "md").splitlines()[3:] == [
        "| b | **70.0 ± 1.0** | 20.0 | 10.0 |",
        "| c | **70.0 ± 2.0** | **10.0** | – |",
    ]
    assert r"c & $\mathbf{70.0 \pm 2.0}$ & $\mathbf{10.0}$ & -- \\" in render(table, "latex")
    apart = Table(table.columns, rows, table.metrics, blocks=("x", "x", "y"))
    assert apart.best == {(1, 1), (1, 2)}


def test_values_that_are_printed_alike_are_equally_good() -> None:
    rows: list[tuple[Any, ...]] = [
        ("a", Spread(0.7001, None)),
        ("b", Spread(0.7004, None)),
        ("c", Spread(0.69, None)),
    ]
    assert Table(("method", "all"), rows, frozenset({"all"})).best == {(0, 1), (1, 1)}


def test_only_runs_that_can_be_compared_are_best(tmp_path: Path) -> None:
    """A run on other data, or with tasks still to come, neither wins nor takes the place of another."""
    make = {"images": 0, "epochs": 1}
    runs = [
        load_run(make_run(tmp_path / "camp", method="camp", **make)),
        load_run(make_run(tmp_path / "gcd", method="gcd", **make)),
        load_run(make_run(tmp_path / "begun", method="simgcd", tasks=2, planned=4, **make)),
        load_run(make_run(tmp_path / "other", method="pa", dataset="digits", **make)),
    ]
    bold = [line.count("**") for line in run_table(runs, format="md").splitlines()[2:]]
    assert bold[0] + bold[1] >= 12
    assert bold[2:] == [0, 0]
