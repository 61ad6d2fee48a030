import json
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import edit_results, make_run, without_task_hungarian

from camp.bench.results import Results, load_run, load_runs
from camp.core.errors import CampError
from camp.core.files import write_json


def test_a_run_comes_back_whole(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "x", tasks=3, epochs=4, config={"alpha": 0.5}))
    assert not run.results.unfinished
    assert len(run.results.tasks) == 3
    assert len(run.epochs) == 12
    assert run.config["alpha"] == 0.5


def test_a_run_under_way_is_marked(tmp_path: Path) -> None:
    assert load_run(make_run(tmp_path / "x", tasks=2, planned=5)).results.unfinished


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
    edit_results(folder, format=3)
    with pytest.raises(CampError, match="format 3"):
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
        ({"seed": "zero"}, "seed: Input should be a valid integer"),
        ({"k": "guessed"}, "k: Input should be 'known' or 'estimated'"),
        ({"confusion": {"all": [[1]], "known": [[1]], "novel": [[1]]}}, "confusion is not 4 x 4"),
        ({"notes": None}, "notes: Input should be a valid list"),
        ({"map": {"points": [[0.0, 1.0]], "centroids": []}}, r"map.points\[0\]\[2\]: Field required"),
        ({"categories": [{"id": 1}]}, r"categories\[0\].task: Field required"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    folder = make_run(tmp_path / "x", images=0)
    edit_results(folder, **change)
    with pytest.raises(CampError, match=words):
        load_run(folder)


def test_a_short_row_is_damage(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", images=0)
    tasks = json.loads((folder / "results.json").read_text())["tasks"]
    tasks[2]["aware"]["novel"].pop()
    edit_results(folder, tasks=tasks)
    with pytest.raises(CampError, match="task 2 do not have 3 entries"):
        load_run(folder)


def test_what_a_run_writes_is_what_a_report_reads(tmp_path: Path) -> None:
    results = load_run(make_run(tmp_path / "x", images=0)).results
    assert Results.model_validate(json.loads(json.dumps(results.model_dump()))) == results


def test_a_run_folder_of_format_1_is_read(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", images=2)
    value = json.loads((folder / "results.json").read_text())
    value["format"] = 1
    for category in value["categories"]:
        category["pictures"] = category.pop("images")
    value["tasks"][0]["recipe"] = {"shrinkage": 0.1}
    write_json(folder / "results.json", value)
    results = load_run(folder).results
    assert results.categories[3].images == ["thumbnails/3-0.jpg", "thumbnails/3-1.jpg"]
    assert results.tasks[0].parameters == {"shrinkage": 0.1}


def test_runs_from_before_a_protocol_are_whole(tmp_path: Path) -> None:
    folder = without_task_hungarian(make_run(tmp_path / "x", images=0))
    assert "task_hungarian" not in load_run(folder).results.summary
    assert load_run(folder).results.tasks[0].accuracy("task_hungarian") is None


def test_a_short_row_of_a_protocol_that_may_be_missing_is_damage(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", images=0)
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
    alone = make_run(tmp_path / "alone", method="camp", images=0)
    for method in ("camp", "gcd"):
        make_run(tmp_path / "many" / method, method=method, images=0)
    found = [run.folder.relative_to(tmp_path).as_posix() for run in load_runs([alone, tmp_path / "many"])]
    assert found == ["alone", "many/gcd", "many/camp"]


def test_a_folder_of_run_folders_stands_for_them(tmp_path: Path) -> None:
    for name in ("camp-1", "camp-0"):
        make_run(tmp_path / "mine" / name, images=0, config={"settings": {}})
    (tmp_path / "mine" / "notes").mkdir()
    found = [run.folder.name for run in load_runs([tmp_path / "mine"])]
    assert found == ["camp-0", "camp-1"]
