import math
from xml.etree import ElementTree

import pytest

from camp.bench.report.charts import BarRow, Line, Mark, bar_chart, dumbbell_chart, heat_map, line_chart
from camp.bench.report.latent import latent_map
from camp.bench.report.svg import scale, ticks


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup)


def having(root: ElementTree.Element, tag: str, style: str) -> list[ElementTree.Element]:
    return [element for element in root.iter(tag) if style in element.get("class", "").split()]


def test_a_picture_has_words_and_escapes_them() -> None:
    drawn = line_chart([1, 2], [Line("<b>&", "g0", [0.1, 0.2])], label='a "quoted" <label>', x_name="task")
    root = parsed(drawn)
    assert root.get("role") == "img"
    assert root.get("aria-label") == 'a "quoted" <label>'
    assert "<b>&, task 1: 10.0 %" in [title.text for title in root.iter("title")]


def test_line_goes_up_and_breaks_at_gaps() -> None:
    lines = [Line("a", "g0", [0.1, 0.9, None, 0.5, math.nan])]
    root = parsed(line_chart([1, 2, 3, 4, 5], lines, label="", x_name="task", high=1.0))
    dots = having(root, "circle", "dot")
    assert len(dots) == 3
    assert float(dots[1].get("cy", "")) < float(dots[2].get("cy", "")) < float(dots[0].get("cy", ""))
    (curve,) = having(root, "path", "line")
    assert curve.get("d", "").count("M") == 2
    assert "nan" not in curve.get("d", "")


def test_thin_lines_and_marks() -> None:
    root = parsed(
        line_chart(
            [1, 2],
            [Line("a", "g0", [0.5, 0.5], [[0.4, 0.6], [0.6, 0.4]])],
            label="",
            x_name="k",
            marks=[Mark(2, "true", "true")],
        )
    )
    assert len(having(root, "path", "behind")) == 2
    assert len(having(root, "line", "mark")) == 1


@pytest.mark.parametrize("values", [[0.5], [0.0], [None], [3.0, 3.0]])
def test_flat_single_or_empty_lines_are_drawn(values: list[float | None]) -> None:
    xs = list(range(len(values)))
    root = parsed(line_chart(xs, [Line("a", "g0", values)], label="", x_name="x", low=None, dots=False))
    assert len(having(root, "path", "line")) == 1
    assert len(having(root, "circle", "dot")) == (1 if values in ([0.5], [0.0]) else 0)


def test_bars_are_as_long_as_their_values() -> None:
    rows = [
        BarRow("camp", [("known", 0.8, 0.9), ("novel", 0.4, None)]),
        BarRow("gcd", [("known", None, None)]),
    ]
    root = parsed(bar_chart(rows, label=""))
    (known,), (novel,) = having(root, "rect", "known"), having(root, "rect", "novel")
    assert float(known.get("width", "")) == pytest.approx(2 * float(novel.get("width", "")), rel=0.01)
    assert len(having(root, "line", "bound")) == 1


def test_heat_map_draws_the_entries_that_exist() -> None:
    shares = [[1.0], [0.0, None], [0.5, 0.25, math.nan]]
    root = parsed(
        heat_map(shares, label="", row_name="r", column_name="c", tell=lambda i, j: f"{i} {j} {shares[i][j]}")
    )
    cells = having(root, "rect", "heat")
    assert len(cells) == 4
    assert float(cells[0].get("fill-opacity", "")) == 1.0
    assert [title.text for title in root.iter("title")] == ["0 0 1.0", "1 0 0.0", "2 0 0.5", "2 1 0.25"]


def test_dumbbells_join_stored_and_adapted() -> None:
    pairs = {
        "known": [{"stored": 4.0, "adapted": 1.0}, None],
        "novel": [None, {"stored": 2.0, "adapted": 3.0}],
    }
    root = parsed(dumbbell_chart([2, 3], pairs, label=""))
    rings, dots = having(root, "circle", "ring"), having(root, "circle", "dot")
    assert len(rings) == len(dots) == 2
    assert float(rings[0].get("cy", "")) < float(dots[0].get("cy", ""))
    assert float(rings[1].get("cy", "")) > float(dots[1].get("cy", ""))


def test_map_keeps_proportions_and_points_arrows() -> None:
    drawn: LatentMap = {
        "points": [[0.0, 0.0, 0, 1, 0], [10.0, 0.0, 1, 0, 1], [0.0, 5.0, 9, 1, 2]],
        "centroids": [
            {
                "id": 0,
                "task": 0,
                "kind": "known",
                "name": "a",
                "stored": [0, 0],
                "adapted": [8, 0],
                "true": [9, 0],
            },
            {
                "id": 1,
                "task": 1,
                "kind": "novel",
                "name": "b",
                "stored": [1, 1],
                "adapted": [1, 1],
                "true": None,
            },
            {
                "id": 2,
                "task": 1,
                "kind": "novel",
                "name": "c",
                "stored": None,
                "adapted": [2, 1],
                "true": None,
            },
        ],
    }
    root = parsed(latent_map(drawn, label=""))
    a, b, c = having(root, "circle", "picture")
    across = float(b.get("cx", "")) - float(a.get("cx", ""))
    up = float(a.get("cy", "")) - float(c.get("cy", ""))
    assert across == pytest.approx(2 * up, rel=0.01)
    assert len(having(root, "line", "arrow")) == 1  # the second centroid did not move, the third has no past
    assert len(having(root, "circle", "ring")) == 1
    assert len(having(root, "rect", "dot")) == 2


def test_map_of_one_place() -> None:
    drawn: LatentMap = {"points": [[1.0, 1.0, 0, 1, 0], [math.nan, 0.0, 0, 1, 0]], "centroids": []}
    assert "nan" not in latent_map(drawn, label="")


def test_scales_and_ticks() -> None:
    assert scale(0, 10, 100, 0)(2.5) == 75
    assert scale(3, 3, 0, 10)(3) == 5
    for low, high in [(0, 0.93), (-3, 12), (1, 500), (0.7, 0.82), (0, 1e-6)]:
        values = ticks(low, high)
        assert 2 <= len(values) <= 9
        assert low - 1e-12 <= values[0]
        assert values[-1] <= high + 1e-12
