"""What figures and tables show, against the numbers of the runs they are drawn from."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
from synthetic_runs import make_run

from camp.bench.evaluation.class_groups import Group
from camp.bench.report.charts import Chart
from camp.bench.results import StoredRun, load_run
from camp.bench.studies.figures import DRAWINGS
from camp.bench.studies.figures.rows import Drawn, Row
from camp.bench.studies.study import Study

SEEDS = (0, 1)


@pytest.fixture
def drawn(tmp_path: Path):
    """Draws rows, each of two runs of its own, and gives the runs beside."""

    def draw(
        drawing: str, rows: list[dict[str, Any]], look: dict[str, Any] | None = None, **run: Any
    ) -> tuple[Drawn, list[Row]]:
        made = []
        for number, options in enumerate(rows):
            config = {"settings": {name: value for name, value in options.items() if name != "method"}}
            runs = [
                load_run(
                    make_run(
                        tmp_path / f"{number}-{seed}",
                        method=options["method"],
                        seed=10 * number + seed,
                        images=0,
                        epochs=1,
                        tasks=3,
                        config=config,
                        **run,
                    )
                )
                for seed in SEEDS
            ]
            made.append(Row(options, tuple(runs)))
        study = Study("some", "Some", tuple(rows), drawing, seeds=SEEDS, look=look or {})
        return DRAWINGS[drawing](study, made), made

    return draw


def final(run: StoredRun, group: Group = "all") -> float:
    return run.results.summary["agnostic"].final[group] or 0


def distances(run: StoredRun, end: str, group: Group = "all") -> list[float]:
    """After each task but the first."""
    return [getattr(task.drift[group], end) for task in run.results.tasks[1:] if task.drift]


def panels(result: Drawn) -> list[list[list[dict[str, Any]]]]:
    """For each panel of a figure the rows of its layers."""
    assert result.figure is not None
    return [Chart(spec, "").data for spec in result.figure.spec["concat"]]


def line(panel: list[list[dict[str, Any]]], label: str) -> tuple[list[float], list[float]]:
    rows = [row for row in panel[0] if row["series"] == label]
    return [row["x"] for row in rows], [row["y"] for row in rows]


def test_alpha_is_drawn_in_its_order_with_the_distances_of_all_tasks(drawn) -> None:
    rows = [{"method": "camp", "distiller": d, "alpha": a} for d in ("fd", "mlp") for a in (0.9, 0.1)]
    result, made = drawn("alpha", rows)
    left, right = panels(result)
    xs, ys = line(left, "MLP")
    assert xs == [0.1, 0.9]
    assert ys == pytest.approx([mean(final(run) for run in made[i].runs) for i in (3, 2)])
    for end in ("stored", "adapted"):
        far = [mean(mean(distances(run, end)) for run in made[i].runs) for i in (1, 0)]
        assert line(right, f"FD, {end}")[1] == pytest.approx(far)
        assert result.table.rows[1][-2 + (end == "adapted")].startswith(f"{far[0]:.3f} ± ")


def test_a_heat_map_has_every_pair_in_its_cell(drawn) -> None:
    rows = [{"method": "camp", "distiller": d, "adapter": a} for d in ("fd", "mlp") for a in ("none", "sdc")]
    look = {"x": "adapter", "y": "distiller", "what": ["all", "novel"]}
    result, made = drawn("heat-maps", rows, look)
    _, [novel] = panels(result)
    wanted = [mean(final(run, "novel") for run in row.runs) for row in made]
    assert [row["value"] for row in novel] == pytest.approx(wanted)
    assert [row["text"] for row in novel] == [f"{100 * number:.1f}" for number in wanted]
    assert [(row["y"], row["x"]) for row in novel] == [
        ("FD", "none"), ("FD", "SDC"), ("MLP", "none"), ("MLP", "SDC"),
    ]  # fmt: skip


def test_centroid_distance_tells_by_how_much_adaptation_helps(drawn) -> None:
    result, [row] = drawn("centroid-distance", [{"method": "camp"}])
    [panel] = panels(result)
    kinds: tuple[Group, ...] = ("known", "novel")
    after = {
        (group, end): [mean(both) for both in zip(*(distances(run, end, group) for run in row.runs))]
        for group in kinds
        for end in ("stored", "adapted")
    }
    assert line(panel, "novel, stored") == ([2, 3], pytest.approx(after["novel", "stored"]))
    assert line(panel, "known, adapted") == ([2, 3], pytest.approx(after["known", "adapted"]))
    less = 100 * (1 - after["known", "adapted"][1] / after["known", "stored"][1])
    assert result.table.rows[1][4] == f"{less:.1f} %"
    assert 0 < less < 100


def test_before_and_after_stand_side_by_side(drawn) -> None:
    rows = [{"method": "camp", "exemplars": m} for m in (0, 5)]
    result, made = drawn("before-after", rows, {"x": "exemplars"})
    [bars] = result.figure.data
    wanted = [
        mean(mean(distances(run, end)) for run in row.runs) for row in made for end in ("stored", "adapted")
    ]
    assert [bar["value"] for bar in bars] == pytest.approx(wanted)
    assert [(bar["label"], bar["kind"]) for bar in bars[:3]] == [
        ("exemplars 0", "stored"), ("exemplars 0", "adapted"), ("exemplars 5", "stored"),
    ]  # fmt: skip


def test_lines_show_means_and_their_deviation(drawn) -> None:
    rows = [{"method": "camp", "beta": b} for b in (0.0, 0.5, 1.0)] + [{"method": "gcd"}]
    result, made = drawn("lines", rows, {"x": "beta", "what": ["known"]})
    [panel] = panels(result)
    each = [[final(run, "known") for run in row.runs] for row in made]
    assert line(panel, "known classes") == ([0.0, 0.5, 1.0], pytest.approx([mean(both) for both in each[:3]]))
    assert [row["high"] for row in panel[0]] == pytest.approx([mean(both) + stdev(both) for both in each[:3]])
    [level] = panel[1]
    assert (level["tooltip"], level["y"]) == ("gcd", pytest.approx(mean(each[3])))


def test_curves_are_means_over_the_tasks_so_far(drawn) -> None:
    result, [row] = drawn("curves", [{"method": "camp"}])
    after = [mean(mean(run.results.tasks[t].agnostic.all) for run in row.runs) for t in range(3)]
    assert line(panels(result)[0], "CAMP") == ([1, 2, 3], pytest.approx(after))


def test_confusion_counts_images_of_all_seeds(drawn) -> None:
    result, [row] = drawn("task-confusion", [{"method": "gcd"}])
    counts = sum(np.array(run.results.confusion.all) for run in row.runs)
    shares = counts / counts.sum(axis=1, keepdims=True)
    [cells], *_ = panels(result)
    assert [cell["value"] for cell in cells] == pytest.approx(shares.flatten())
    shown = [float(cell.removesuffix(" %")) for cell in result.table.rows[0][2:]]
    assert shown == pytest.approx([100 * np.diag(shares).mean(), 100 * shares[:-1, -1].mean()], abs=0.051)


def test_the_number_of_categories_has_its_curve_the_truth_and_the_choice(drawn) -> None:
    result, [row] = drawn("number-of-categories", [{"method": "camp"}], estimated=True)
    rows, [truth], [choice], *_ = panels(result)[1]
    task = row.first.results.tasks[1]
    assert [[row["x"], row["y"]] for row in rows if row["series"] == "seed 0"] == task.curve
    known = len(task.known)
    assert choice["x"] == known + task.novel_used == known + 3
    assert truth["x"] == known + task.novel_true == known + 2
    assert result.table.rows[2] == ("CAMP", 2, known + 2, known + 3)


def test_plasticity_against_forgetting(drawn) -> None:
    result, made = drawn("plasticity-forgetting", [{"method": "camp"}, {"method": "gcd"}])
    [points] = result.figure.data
    summaries = [[run.results.summary["agnostic"] for run in row.runs] for row in made]
    for point, both in zip(points, summaries):
        assert point["x"] == pytest.approx(mean(summary.forgetting.all for summary in both))
        assert point["y"] == pytest.approx(mean(summary.plasticity.all for summary in both))
    assert [point["label"] for point in points] == ["CAMP", "GCD"]


def test_arrows_lead_from_stored_to_adapted_centroids(drawn) -> None:
    result, [row] = drawn("drift", [{"method": "camp"}])
    centroids, images = panels(result)[0]
    measured = row.first.results.map
    assert [((c["stored_x"], c["stored_y"]), (c["adapted_x"], c["adapted_y"])) for c in centroids] == [
        (centroid.stored, centroid.adapted) for centroid in measured.centroids
    ]
    assert len(images) == len(measured.points)


def test_scenarios_share_their_colours_within_a_metric(drawn) -> None:
    rows = [
        {"method": m, "novel_fraction": n, "labelled_fraction": share}
        for m in ("gcd", "camp")
        for n in (0.2, 0.8)
        for share in (0.5, 1.0)
    ]
    look = {
        "x": "labelled_fraction", "y": "novel_fraction", "what": ["all", "forgetting"], "panels": "method",
    }  # fmt: skip
    result, made = drawn("scenarios", rows, look)
    every = [mean(final(run) for run in row.runs) for row in made]
    limits = [
        spec["layer"][0]["encoding"]["fillOpacity"]["scale"]["domain"]
        for spec in result.figure.spec["concat"]
    ]
    assert limits[0] == limits[1] == pytest.approx([min(every), max(every)])
    _, [camp], *_ = panels(result)
    assert [cell["value"] for cell in camp] == pytest.approx(every[4:])
