"""The page in a real browser: all charts are drawn without network access, and the headline tiles fill their rows."""

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright
from synthetic_runs import make_run

from camp.bench.report import page as page_module
from camp.bench.report.page import write_page
from camp.bench.results import load_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")

CSS = Path(page_module.__file__).with_name("templates").joinpath("page.css").read_text(encoding="utf-8")
TILE = "<div><dt>Forgetting</dt><dd>14.1 pts</dd><small>points lost on earlier tasks; less is better</small></div>"
ROWS = """grid => {
  const rows = new Map();
  for (const tile of grid.children) {
    const { left, right, top } = tile.getBoundingClientRect();
    rows.set(top, [...(rows.get(top) ?? []), [left, right]]);
  }
  return [...rows.values()];
}"""


@pytest.fixture(scope="module")
def screen() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


@pytest.mark.parametrize(
    ("width", "counts"),
    [
        (1280, {4: [4], 5: [5], 6: [6]}),
        (1000, {4: [2, 2], 5: [3, 2], 6: [3, 3]}),
        (561, {4: [2, 2], 5: [3, 2], 6: [3, 3]}),
        (560, {4: [2, 2], 5: [2, 2, 1], 6: [2, 2, 2]}),
        (360, {4: [2, 2], 5: [2, 2, 1], 6: [2, 2, 2]}),
    ],
)
def test_no_cell_is_empty(screen: Page, width: int, counts: dict[int, list[int]]) -> None:
    screen.set_viewport_size({"width": width, "height": 600})
    for tiles, rows_wanted in counts.items():
        screen.set_content(
            f'<!doctype html><style>:root {{ --rule: #ccc }}{CSS}</style><header><dl class="tiles">{TILE * tiles}</dl></header>'
        )
        grid = screen.locator(".tiles")
        box, rows = grid.bounding_box(), grid.evaluate(ROWS)
        assert box is not None
        assert [len(row) for row in rows] == rows_wanted
        for row in rows:
            # From border to border, with a rule of one pixel between neighbours.
            assert row[0][0] == pytest.approx(box["x"] + 1, abs=0.1)
            assert row[-1][1] == pytest.approx(box["x"] + box["width"] - 1, abs=0.1)
            gaps = [after[0] - before[1] for before, after in pairwise(row)]
            assert gaps == pytest.approx([1] * len(gaps), abs=0.1)


def test_every_chart_is_drawn_and_says_what_a_mark_is(tmp_path: Path, screen: Page) -> None:
    runs = [
        load_run(make_run(tmp_path / m, method=m, estimated=True, images=0, epochs=2))
        for m in ("camp", "gcd")
    ]
    write_page(runs, tmp_path / "report.html")
    faults: list[str] = []
    screen.on("pageerror", lambda error: faults.append(str(error)))
    screen.on(
        "request", lambda request: None if request.url.startswith("file:") else faults.append(request.url)
    )
    screen.goto((tmp_path / "report.html").as_uri())
    screen.evaluate("Promise.all([...charts].map(draw)).then(() => null)")
    assert screen.locator(".chart svg").count() == screen.locator(".chart").count() > 20
    dot = screen.locator("#accuracy .chart svg path[aria-label*='after task 2']").first
    dot.hover()
    final = runs[0].results.tasks[1].agnostic.all
    share = 100 * sum(share or 0 for share in final) / 2
    assert screen.locator("#tip").inner_text() == f"camp, after task 2: {share:.1f} %"
    assert faults == []
