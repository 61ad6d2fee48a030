"""What figures and tables show, against the numbers of the runs they are drawn from."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
from synthetic_runs import make_run

from camp.bench.results import StoredRun, load_run
from camp.bench.studies.figures import DRAWINGS, Drawn
from camp.bench.studies.figures.rows import Row
from camp.bench.studies.figures.style import mark
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
                        pictures=0,
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


def final(run: StoredRun, group: str = "all") -> float:
    return 100 * (run.results.summary["agnostic"].final[group] or 0)  # type: ignore[literal-required]


def distances(run: StoredRun, end: str, group: str = "all") -> list[float]:
    """After each task but the first."""
    return [task.drift[group][end] for task in run.results.tasks[1:]]  # type: ignore[index,literal-required]


def line(axes: Any, label: str) -> tuple[list[float], list[float]]:
    [found] = [each for each in axes.lines if each.get_label() == label]
    return list(found.get_xdata()), list(found.get_ydata())


def test_alpha_is_drawn_in_its_order_with_the_distances_of_all_tasks(drawn) -> None:
    rows = [{"method": "camp", "distiller": d, "alpha": a} for d in ("fd", "mlp") for a in (0.9, 0.1)]
    result, made = drawn("alpha", rows)
    left, right = result.figure.axes
    xs, ys = line(left, "MLP")
    assert xs == [0.1, 0.9]
    assert ys == pytest.approx([mean(final(run) for run in made[i].runs) for i in (3, 2)])
    for end, words in (("stored", "as stored"), ("adapted", "adapted")):
        far = [mean(mean(distances(run, end)) for run in made[i].runs) for i in (1, 0)]
        assert line(right, f"FD, {words}")[1] == pytest.approx(far)
        assert result.table.rows[1][-2 + (end == "adapted")].startswith(f"{far[0]:.3f} ± ")


def test_a_heat_map_has_every_pair_in_its_cell(drawn) -> None:
    rows = [{"method": "camp", "distiller": d, "adapter": a} for d in ("fd", "mlp") for a in ("none", "sdc")]
    look = {"x": "adapter", "y": "distiller", "what": ["all", "novel"]}
    result, made = drawn("heat-maps", rows, look)
    _, novel = result.figure.axes
    cells = np.asarray(novel.images[0].get_array())
    wanted = [mean(final(run, "novel") for run in row.runs) for row in made]
    assert cells.flatten() == pytest.approx(wanted)
    assert [text.get_text() for text in novel.texts] == [f"{number:.1f}" for number in wanted]
    assert [label.get_text() for label in novel.get_xticklabels()] == ["none", "SDC"]
    assert [label.get_text() for label in novel.get_yticklabels()] == ["FD", "MLP"]


def test_centroid_distance_tells_by_how_much_adaptation_helps(drawn) -> None:
    result, [row] = drawn("centroid-distance", [{"method": "camp"}])
    [axes] = result.figure.axes
    after = {
        (group, end): [mean(both) for both in zip(*(distances(run, end, group) for run in row.runs))]
        for group in ("known", "novel")
        for end in ("stored", "adapted")
    }
    assert line(axes, "novel, as stored") == ([2, 3], pytest.approx(after["novel", "stored"]))
    assert line(axes, "known, adapted") == ([2, 3], pytest.approx(after["known", "adapted"]))
    less = 100 * (1 - after["known", "adapted"][1] / after["known", "stored"][1])
    assert result.table.rows[1][4] == f"{less:.1f} %"
    assert 0 < less < 100


def test_before_and_after_stand_side_by_side(drawn) -> None:
    result, made = drawn(
        "before-after", [{"method": "camp", "exemplars": m} for m in (0, 5)], {"x": "exemplars"}
    )
    bars = [patch.get_height() for patch in result.figure.axes[0].patches]
    wanted = [
        mean(mean(distances(run, end)) for run in row.runs) for end in ("stored", "adapted") for row in made
    ]
    assert bars == pytest.approx(wanted)


def test_lines_show_means_and_their_deviation(drawn) -> None:
    rows = [{"method": "camp", "beta": b} for b in (0.0, 0.5, 1.0)] + [{"method": "gcd"}]
    result, made = drawn("lines", rows, {"x": "beta", "what": ["known"]})
    [axes] = result.figure.axes
    each = [[final(run, "known") for run in row.runs] for row in made]
    assert line(axes, "known classes") == ([0.0, 0.5, 1.0], pytest.approx([mean(both) for both in each[:3]]))
    assert line(axes, "gcd")[1] == pytest.approx([mean(each[3])] * 2)  # a level line
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(max(mean(both) + stdev(both) for both in each[:3]))


def test_curves_are_means_over_the_tasks_so_far(drawn) -> None:
    result, [row] = drawn("curves", [{"method": "camp"}])
    after = [mean(100 * mean(run.results.tasks[t].agnostic.all) for run in row.runs) for t in range(3)]
    assert line(result.figure.axes[0], "CAMP") == ([1, 2, 3], pytest.approx(after))


def test_confusion_counts_pictures_of_all_seeds(drawn) -> None:
    result, [row] = drawn("task-confusion", [{"method": "gcd"}])
    counts = sum(np.array(run.results.confusion.all) for run in row.runs)
    shares = 100 * counts / counts.sum(axis=1, keepdims=True)
    assert np.asarray(result.figure.axes[0].images[0].get_array()) == pytest.approx(shares)
    told = [float(cell.removesuffix(" %")) for cell in result.table.rows[0][2:]]
    assert told == pytest.approx([np.diag(shares).mean(), shares[:-1, -1].mean()], abs=0.051)


def test_the_number_of_categories_has_its_curve_the_truth_and_the_choice(drawn) -> None:
    result, [row] = drawn("number-of-categories", [{"method": "camp"}], estimated=True)
    second = result.figure.axes[1]
    task = row.first.results.tasks[1]
    curve, choice, truth = second.lines[:3]
    assert list(curve.get_xdata()) == [point[0] for point in task.curve]
    assert list(curve.get_ydata()) == pytest.approx([100 * point[1] for point in task.curve])
    known = len(task.known)
    assert choice.get_xdata()[0] == known + task.novel_used == known + 3
    assert truth.get_xdata()[0] == known + task.novel_true == known + 2


def test_plasticity_against_forgetting(drawn) -> None:
    result, made = drawn("plasticity-forgetting", [{"method": "camp"}, {"method": "gcd"}])
    points = [(each.lines[0].get_xdata()[0], each.lines[0].get_ydata()[0]) for each in result.figure.axes[0].containers]  # fmt: skip
    summaries = [[run.results.summary["agnostic"] for run in row.runs] for row in made]
    wanted = [
        tuple(100 * mean(s[name]["all"] for s in both) for name in ("forgetting", "plasticity"))
        for both in summaries
    ]
    assert np.array(points) == pytest.approx(np.array(wanted))


def test_no_two_of_many_methods_look_alike() -> None:
    assert len({mark(number) for number in range(20)}) == 20


def test_arrows_lead_from_stored_to_adapted_centroids(drawn) -> None:
    result, [row] = drawn("drift", [{"method": "camp"}])
    drawn_map = row.first.results.map
    first = [c for c in drawn_map.centroids if c.task == 0]
    arrows = [text for text in result.figure.axes[0].texts if hasattr(text, "arrow_patch")]
    assert len(arrows) == len(first)
    assert [(*arrow.xyann, *arrow.xy) for arrow in arrows] == [
        (*centroid.stored, *centroid.adapted) for centroid in first
    ]


def test_scenarios_share_their_colours_within_a_figure(drawn) -> None:
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
    gcd, camp, *_ = result.figure.axes
    every = [mean(final(run) for run in row.runs) for row in made]
    assert gcd.images[0].get_clim() == camp.images[0].get_clim() == pytest.approx((min(every), max(every)))
    assert np.asarray(camp.images[0].get_array()).flatten() == pytest.approx(every[4:])
