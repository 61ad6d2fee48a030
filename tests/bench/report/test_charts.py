"""Charts: their rows are the numbers they were given, and Vega-Lite draws all of them."""

import json
import math
import re
from pathlib import Path

import pytest
from PIL import Image

from camp.bench.evaluation.drift import CentroidDistance
from camp.bench.evaluation.feature_map import FeatureMap, MapCentroid
from camp.bench.report.charts import (
    Chart,
    ChartBar,
    Rule,
    ScatterPoint,
    Series,
    bar_chart,
    dumbbell_chart,
    grid,
    heat_map,
    line_chart,
    map_chart,
    scatter_chart,
)
from camp.bench.report.numbers import Spread
from camp.bench.report.rendering import save_figure
from camp.bench.report.theme import DARK, LIGHT, Style

ONE = Style.number(0)


def centroid(
    id: int, task: int, stored: tuple[float, float] | None, adapted: tuple[float, float]
) -> MapCentroid:
    kind = "novel" if id % 2 else "known"
    return MapCentroid(
        id=id, task=task, kind=kind, name="<b>", stored=stored, adapted=adapted, true=(9.0, 0.0)
    )


MAP = FeatureMap(
    points=[(0.0, 0.0, 0, 1, 0), (10.0, 0.0, 1, 0, 1), (0.0, 5.0, 9, 1, 2), (math.nan, 0.0, 0, 1, 0)],
    centroids=[
        centroid(0, 0, (0.0, 0.0), (8.0, 0.0)),
        centroid(1, 1, (1.0, 1.0), (1.0, 1.0)),
        centroid(2, 1, None, (2.0, 2.0)),
    ],
)
CHARTS = {
    "lines": line_chart(
        [Series("a", ONE, [1, 2, 3], [Spread(0.1, 0.05), None, 0.5], [[0.1, None, 0.4], [0.2, 0.3, 0.6]])],
        description="",
        x_title="task",
        rules=[Rule("true", x=2), Rule("level", y=0.3)],
        legend=True,
    ),
    "names": line_chart([Series("a", ONE, ["x", "y"], [0.1, 0.2])], description="", x_title="adapter"),
    "no values": line_chart([Series("a", ONE, [1, 2], [None, math.nan])], description="", x_title="task"),
    "bars": bar_chart(
        [ChartBar("camp", "known", Spread(0.8, 0.1), 0.9), ChartBar("camp", "novel", None), ChartBar("gcd", "known", Spread(0.4, None))],
        {"known": "var(--known)", "novel": "var(--novel)"},
        description="",
    ),
    "heat": heat_map([[1.0], [0.0, None]], [1, 2], [1, 2], description="", x_title="x", y_title="y"),
    "dumbbells": dumbbell_chart(
        [2, 3], {"known": [CentroidDistance(stored=4.0, adapted=1.0), None], "novel": [None, None]}, description=""
    ),
    "scatter": scatter_chart(
        [ScatterPoint(f"m{i}", Spread(0.1 * i, 0.01), Spread(0.5, None)) for i in range(9)],
        description="",
        x_title="forgetting",
        y_title="plasticity",
    ),
    "map": map_chart(MAP, description=""),
    "map by class": map_chart(MAP, description="", by_class=True),
    "empty map": map_chart(FeatureMap(points=[(1.0, 1.0, 0, 1, 0)], centroids=[]), description=""),
}  # fmt: skip


@pytest.fixture(scope="module")
def sheet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them in one figure, drawn once."""
    path = tmp_path_factory.mktemp("figure") / "figure"
    save_figure(grid(list(CHARTS.values()), 3, "", one_legend=False), path)
    return path


def test_every_chart_is_drawn_as_png_svg_and_pdf(sheet: Path) -> None:
    with Image.open(sheet.with_suffix(".png")) as image:
        assert min(image.size) > 1000
    assert sheet.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    svg = sheet.with_suffix(".svg").read_text()
    assert svg.rstrip().endswith("</svg>")
    assert svg.count('role="graphics-object"') >= len(CHARTS)
    # Names of colours are filled in, and nothing is drawn at a place that is no number.
    assert "var(" not in svg
    assert "NaN" not in svg
    assert "<b>" not in svg


def test_the_same_chart_gives_the_same_files(tmp_path: Path) -> None:
    written = []
    for name in ("lines", "lines", "heat"):
        save_figure(CHARTS[name], tmp_path / "figure")
        written.append({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    assert written[0] == written[1]
    assert all(written[1][name] != written[2][name] for name in ("figure.png", "figure.svg", "figure.pdf"))


@pytest.mark.parametrize("name", CHARTS)
def test_specifications_are_json_with_known_colours(name: str) -> None:
    text = json.dumps(CHARTS[name].spec, allow_nan=False)
    assert LIGHT.keys() == DARK.keys()
    assert set(re.findall(r"var\(--([^)]*)\)", text)) <= LIGHT.keys()


def test_lines_have_means_deviations_and_words() -> None:
    rows, seeds, *rules = CHARTS["lines"].data
    assert [(row["x"], row["y"]) for row in rows] == [(1, 0.1), (2, None), (3, 0.5)]
    assert (rows[0]["low"], rows[0]["high"]) == pytest.approx((0.05, 0.15))
    assert rows[0]["tooltip"] == "a, task 1: 10.0 % ± 5.0 %"
    assert [row["y"] for row in seeds] == [0.1, None, 0.4, 0.2, 0.3, 0.6]
    assert [(row["x"], row["y"], row["tooltip"]) for [row] in rules] == [
        (2, None, "true"),
        (None, 0.3, "level"),
    ]


def test_a_single_value_is_a_dot_even_without_dots() -> None:
    def marks(values: list[float | None]) -> set[str]:
        series = [Series("a", ONE, list(range(len(values))), values)]
        chart = line_chart(series, description="", x_title="x", dots=False)
        return {layer["mark"] for layer in chart.spec["layer"]}

    assert marks([0.5, None]) == {"line", "point"}
    assert marks([0.5, 0.6]) == {"line"}


def test_heat_maps_have_the_entries_that_exist() -> None:
    cells = [[1.0], [0.0, None], [0.5, 0.25, math.nan]]
    [rows] = heat_map(cells, [1, 2, 3], [1, 2, 3], description="", x_title="c", y_title="r").data
    assert [(row["y"], row["x"], row["value"]) for row in rows] == [
        ("1", "1", 1.0), ("2", "1", 0.0), ("3", "1", 0.5), ("3", "2", 0.25),
    ]  # fmt: skip
    assert rows[3]["tooltip"] == "r 3, c 2: 25.0 %"
    assert rows[3]["text"] == "25"


def test_one_unit_of_a_map_is_as_long_in_both_directions() -> None:
    x, y = (CHARTS["map"].spec["layer"][0]["encoding"][axis]["scale"]["domain"] for axis in "xy")
    assert x[1] - x[0] == pytest.approx(y[1] - y[0])
    assert x[0] < 0
    assert x[1] > 10


def test_arrows_lead_from_stored_to_adapted_centroids() -> None:
    centroids, images = CHARTS["map"].data
    assert len(images) == 3  # without the one that is nowhere
    right, stays, new = centroids
    assert (right["stored_x"], right["stored_y"], right["adapted_x"], right["adapted_y"]) == (
        0.0,
        0.0,
        8.0,
        0.0,
    )
    assert right["angle"] == pytest.approx(90)  # clockwise from north
    assert 7 < right["tip_x"] < 8
    assert [row["moved"] for row in centroids] == [True, False, False]
    assert (stays["shape"], new["shape"]) == ("square", "circle")


def test_no_two_of_many_series_look_alike() -> None:
    assert len({Style.number(number) for number in range(20)}) == 20


def test_a_grid_keeps_the_data_of_its_panels() -> None:
    panels: list[Chart] = [CHARTS["heat"], CHARTS["names"]]
    assert grid(panels, 2, "").data == [*CHARTS["heat"].data, *CHARTS["names"].data]
