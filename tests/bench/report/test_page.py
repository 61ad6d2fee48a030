import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic_runs import edit_results, forget, make_incremental_run, make_run, without_task_hungarian

from camp.bench.report.page import render_page, write_page
from camp.bench.report.rendering import vega_script
from camp.bench.results import load_run
from camp.core.errors import CampError
from camp.core.files import append_json_line

ALWAYS = [
    "comparison",
    "accuracy",
    "protocols",
    "matrix",
    "drift",
    "confusion",
    "categories",
    "making",
]
VOID = {"meta", "img", "input", "br"}


class Reader(HTMLParser):
    """Checks that tags close in order, and collects what tests ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.chosen: dict[str, bool] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if values.get("id"):
            self.ids.append(values["id"] or "")
        if tag == "section":
            self.sections.append(values.get("id") or "")
        self.addresses += [values[key] or "" for key in ("src", "href", "srcset", "action") if key in values]
        if "data-choose" in values:
            self.chosen[values["data-choose"] or ""] = "checked" in values

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    return reader


def words(page: str) -> str:
    """The visible text, roughly."""
    body = re.sub(r"data-chart='[^']*'", "", page.split("</style>")[1].split("<script>")[0])
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


SITUATIONS: dict[str, Callable[[Path], list[Path]]] = {
    "one run": lambda base: [make_run(base / "a")],
    "three seeds of two methods": lambda base: [
        make_run(base / f"{m}{s}", method=m, seed=s, images=1) for m in ("camp", "gcd") for s in range(3)
    ],
    "unfinished": lambda base: [make_run(base / "a", tasks=2, planned=5)],
    "no novel classes": lambda base: [make_run(base / "a", novel=0)],
    "class-incremental": lambda base: [make_incremental_run(base / m, method=m) for m in ("lwf", "joint")],
    "one task": lambda base: [make_run(base / "a", tasks=1)],
    "estimated": lambda base: [make_run(base / "a", estimated=True)],
    "bare": lambda base: [
        make_run(base / "a", tasks=1, novel=0, images=0, epochs=0, map=None, categories=[])
    ],
    "without a protocol": lambda base: [without_task_hungarian(make_run(base / "a"))],
    "twelve tasks": lambda base: [make_run(base / "a", tasks=12, images=0)],
    "lengths differ": lambda base: [
        make_run(base / "a"),
        make_run(base / "b", method="gcd", tasks=1, planned=4),
    ],
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_page_is_whole_and_asks_nothing_of_the_network(tmp_path: Path, situation: str) -> None:
    page = render_page([load_run(folder) for folder in SITUATIONS[situation](tmp_path)])
    reader = read(page)
    assert [name for name in reader.sections if name in ALWAYS] == ALWAYS
    assert all(address.startswith("data:image/") for address in reader.addresses)
    own = re.sub(r"base64,[^\"]+", "", page.replace(vega_script(), ""))
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", own)
    assert "link" not in reader.tags
    assert not re.search(r"\b(nan|inf|None|undefined)\b", words(page))
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_sections_follow_what_a_run_has(tmp_path: Path) -> None:
    full = read(render_page([load_run(make_run(tmp_path / "a", estimated=True))]))
    assert {"map", "estimated", "losses"} <= set(full.sections)
    bare = read(render_page([load_run(make_run(tmp_path / "b", map=None, epochs=0))]))
    assert not {"map", "estimated", "losses"} & set(bare.sections)


def test_known_and_novel_are_apart_only_where_there_are_novel_classes(tmp_path: Path) -> None:
    usual = render_page([load_run(make_run(tmp_path / "gccd", images=0))])
    assert "known-novel" in read(usual).sections
    assert "Continual category discovery" in words(usual)
    runs = [load_run(make_incremental_run(tmp_path / m, method=m)) for m in ("lwf", "joint")]
    page = render_page(runs)
    assert "known-novel" not in read(page).sections
    text = words(page)
    assert "Class-incremental learning" in text
    assert "every image is labelled" in text
    assert "mean of the accuracies after each task" in text
    for absent in ("Novel classes", "Known classes", "classes discovered without labels", "(novel)"):
        assert absent not in text


def test_numbers_of_tasks_are_named_where_they_differ(tmp_path: Path) -> None:
    runs = [load_run(make_incremental_run(tmp_path / str(n), method="lwf", tasks=n)) for n in (2, 3)]
    text = words(render_page(runs))
    assert "lwf, 2 tasks" in text
    assert "lwf, 3 tasks" in text


def test_names_cannot_break_out(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\"'&"
    folder = make_run(
        tmp_path / "a",
        names={0: evil, 7: evil},
        notes=[evil],
        dataset_title=evil,
        command=evil,
        backbone=evil,
        method=evil,
    )
    append_json_line(folder / "metrics.jsonl", {"task": 3, "epoch": 30, evil: 1.0})
    other = make_run(tmp_path / "b", config={"settings": {evil: evil}}, method=evil)
    page = render_page([load_run(folder), load_run(other)])
    assert read(page).tags.count("script") == 2
    assert "alert(1)</script>" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_headline_compares_with_the_next_best(tmp_path: Path) -> None:
    runs = [load_run(make_run(tmp_path / m, method=m, images=0)) for m in ("gcd", "camp")]
    camp, gcd = (100 * (run.results.summary["agnostic"].final.all or 0) for run in runs[::-1])
    assert camp > gcd
    text = words(render_page(runs))
    assert (
        f"After 4 tasks, camp recognises {camp:.1f} % of the test images, {camp - gcd:.1f} points more"
        in text
    )


def test_unfinished_runs_are_announced_and_do_not_win(tmp_path: Path) -> None:
    done = make_run(tmp_path / "done", method="gcd", images=0)
    begun = make_run(tmp_path / "begun", method="camp", tasks=2, planned=4, images=0)
    page = words(render_page([load_run(begun), load_run(done)]))
    assert "Unfinished." in page
    assert "After 4 tasks, gcd recognises" in page
    assert "points more" not in page


def test_selector_opens_with_one_run_of_each_setting(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / f"{m}{s}", method=m, seed=s, images=1) for m in ("camp", "gcd") for s in (0, 1)
    ]
    reader = read(render_page([load_run(folder) for folder in folders]))
    assert reader.chosen == {"run0": True, "run1": False, "run2": True, "run3": False}
    classes = 4 * 8
    assert reader.tags.count("img") == 2 * classes  # only the first seed of each setting brings its images
    assert read(render_page([load_run(folders[0])])).chosen == {}


def test_only_images_inside_the_folder_are_embedded(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", tasks=1, known=1, novel=1, images=2)
    outside = tmp_path / "secret.jpg"
    outside.write_bytes((folder / "thumbnails" / "0-0.jpg").read_bytes())
    (folder / "thumbnails" / "text.jpg").write_text("not an image")
    names = [
        "../secret.jpg",
        str(outside),
        "thumbnails/text.jpg",
        "thumbnails/gone.jpg",
        "thumbnails/0-0.jpg",
    ]
    category = load_run(folder).results.categories[1].model_copy(update={"images": names})
    edit_results(folder, categories=[category.model_dump()])
    assert len(read(render_page([load_run(folder)])).addresses) == 1


def test_losses_that_are_not_numbers_are_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", epochs=3, images=0)
    append_json_line(folder / "metrics.jsonl", {"task": 3, "epoch": 3, "loss": float("nan"), "note": "odd"})
    page = render_page([load_run(folder)])
    read(page)
    own = page.replace(vega_script(), "")
    assert "NaN" not in own
    assert "odd" not in own


def test_page_is_written_whole(tmp_path: Path) -> None:
    write_page([load_run(make_run(tmp_path / "a", images=0))], tmp_path / "deep" / "report.html")
    assert (tmp_path / "deep" / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")


def test_no_run_is_an_error() -> None:
    with pytest.raises(CampError, match="at least one run folder"):
        render_page([])


def test_the_protocol_of_the_comparison_is_named(tmp_path: Path) -> None:
    runs = [load_run(make_run(tmp_path / "a", images=0))]
    final = runs[0].results.summary["aware"].final.all or 0
    usual, told = render_page(runs), render_page(runs, "aware")
    assert "This table uses another protocol, Task-aware ," in words(told)
    assert "another protocol" not in words(usual)

    def table(page: str) -> str:
        return words("</style>" + page.split('id="comparison"')[1].split("</section>")[0])

    assert f"{100 * final:.1f}" in table(told)
    assert f"{100 * final:.1f}" not in table(usual)


def test_nothing_forgotten_is_no_negative_zero(tmp_path: Path) -> None:
    folder = make_incremental_run(tmp_path / "a", method="lwf")
    for nothing in (-0.0, -1e-17):
        forget(folder, nothing)
        text = words(render_page([load_run(folder)]))
        assert "Forgetting 0.0 pts" in text
        assert "-0.0" not in text
