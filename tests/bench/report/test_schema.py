import json
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import edit_results, make_run, without_task_hungarian

from camp.bench.report.checks import check
from camp.bench.report.schema import Results, load_run, load_runs
from camp.core.errors import CampError
from camp.core.files import write_json


def test_a_run_comes_back_whole(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "x", tasks=3, epochs=4, config={"alpha": 0.5}))
    assert not run.unfinished
    assert len(run.results["tasks"]) == 3
    assert len(run.epochs) == 12
    assert run.config["alpha"] == 0.5


def test_a_run_under_way_is_marked(tmp_path: Path) -> None:
    assert load_run(make_run(tmp_path / "x", tasks=2, planned=5)).unfinished


def test_fresh_views_and_no_map_and_no_metrics(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", views=None, map=None, epochs=0)
    assert load_run(folder).epochs == []


def test_missing_folders_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CampError, match="no run folder"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(CampError, match="not a run folder"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CampError, match="first task; continue it with `camp run --resume"):
        load_run(tmp_path)


def test_torn_json_and_other_formats(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x")
    edit_results(folder, format=2)
    with pytest.raises(CampError, match="format 2"):
        load_run(folder)
    path = folder / "results.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(CampError, match="not valid JSON"):
        load_run(folder)
    path.write_text("[]")
    with pytest.raises(CampError, match="format None"):
        load_run(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tasks": []}, "no task"),
        ({"tasks_planned": 1}, "4 tasks of 1"),
        ({"seed": "zero"}, "seed is 'zero', expected int"),
        ({"k": "guessed"}, "k is 'guessed', expected 'known' or 'estimated'"),
        ({"confusion": {"all": [[1]], "known": [[1]], "novel": [[1]]}}, "confusion is not 4 x 4"),
        ({"notes": None}, "notes is None, expected a list"),
        ({"map": {"points": [[0.0, 1.0]], "centroids": []}}, "point without 5"),
        ({"categories": [{"id": 1}]}, r"categories\[0\] lacks 'kind'"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    folder = make_run(tmp_path / "x", pictures=0)
    edit_results(folder, **change)
    with pytest.raises(CampError, match=words):
        load_run(folder)


def test_a_short_row_is_damage(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", pictures=0)
    tasks = json.loads((folder / "results.json").read_text())["tasks"]
    tasks[2]["aware"]["novel"].pop()
    edit_results(folder, tasks=tasks)
    with pytest.raises(CampError, match="task 2 do not have 3 entries"):
        load_run(folder)


def test_every_required_entry_is_required(tmp_path: Path) -> None:
    value = json.loads((make_run(tmp_path / "x", pictures=0) / "results.json").read_text())
    assert check(value, Results) is None
    for key in Results.__required_keys__:
        assert check({k: v for k, v in value.items() if k != key}, Results) == f"it lacks {key!r}"
    del value["command"]
    assert check(value, Results) is None


def test_check_looks_inside() -> None:
    assert check(True, int) == "it is True, expected int"
    assert check(None, float | None) is None
    assert check({"all": 1, "x": []}, dict[str, float]) == "x is [], expected float"
    assert check([[1, 2], [1, None]], list[list[int]] | None) == "[1][1] is None, expected int"


def test_runs_from_before_a_protocol_are_whole(tmp_path: Path) -> None:
    folder = without_task_hungarian(make_run(tmp_path / "x", pictures=0))
    assert "task_hungarian" not in load_run(folder).results["summary"]


def test_a_short_row_of_a_protocol_that_may_be_missing_is_damage(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", pictures=0)
    tasks = json.loads((folder / "results.json").read_text())["tasks"]
    tasks[1]["task_hungarian"]["all"].pop()
    edit_results(folder, tasks=tasks)
    with pytest.raises(CampError, match="task 1 do not have 2 entries"):
        load_run(folder)


def test_a_folder_of_several_methods_stands_for_its_runs(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    write_json(tmp_path / "many" / "several.json", {"methods": {"gcd": {}, "camp": {}, "simgcd": {}}})
    with pytest.raises(CampError, match=r"No run in .*many has finished its first task; continue them with"):
        load_runs([tmp_path / "many"])
    alone = make_run(tmp_path / "alone", method="camp", pictures=0)
    for method in ("camp", "gcd"):
        make_run(tmp_path / "many" / method, method=method, pictures=0)
    found = [run.folder.relative_to(tmp_path).as_posix() for run in load_runs([alone, tmp_path / "many"])]
    assert found == ["alone", "many/gcd", "many/camp"]


def test_a_folder_of_run_folders_stands_for_them(tmp_path: Path) -> None:
    for name in ("camp-1", "camp-0"):
        make_run(tmp_path / "mine" / name, pictures=0, config={"settings": {}})
    (tmp_path / "mine" / "notes").mkdir()
    found = [run.folder.name for run in load_runs([tmp_path / "mine"])]
    assert found == ["camp-0", "camp-1"]
