"""The run folder: how far a run has come, who may write in it, and files of earlier versions."""

import json
import shutil
from pathlib import Path

import pytest
from small_runs import numbers, stop_after

import camp
from camp.bench.run_folder import RunConfig, RunFolder, comparison_runs
from camp.bench.settings import from_flat, to_dict
from camp.cli import main
from camp.core.errors import CampError
from camp.core.files import append_json_line, write_json


def test_a_damaged_or_unfinished_run_is_not_finished(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert not folder.is_started()
    assert not folder.is_finished()
    folder.checkpoint.mkdir(parents=True)
    write_json(folder.checkpoint / "state.json", {"task": 1})
    write_json(folder.results, {"tasks_planned": 2, "tasks": [{}]})
    assert not folder.is_finished()
    write_json(folder.results, {"tasks_planned": 1, "tasks": [{}]})
    assert folder.is_finished()
    folder.results.write_text("{")
    assert not folder.is_finished()


def test_the_fraction_done_follows_tasks_and_their_epochs(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.fraction_done() == 0
    folder.checkpoint.mkdir()
    folder.write_config(RunConfig(from_flat("gcd", {"epochs": 10})))
    write_json(folder.split, {"tasks": [{}, {}, {}, {}]})
    write_json(folder.checkpoint / "state.json", {"task": 1})
    for task, epochs in ((0, 10), (1, 5)):
        for epoch in range(epochs):
            append_json_line(folder.metrics, {"task": task, "epoch": epoch})
    assert folder.fraction_done() == (1 + 0.25) / 4
    folder.write_config(RunConfig(from_flat("frozen", {})))  # a method without epochs
    assert folder.fraction_done() == 1 / 4


def test_the_second_owner_of_a_folder_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.locked(), pytest.raises(CampError, match="Another process is working on"), folder.locked():
        pass
    with folder.locked():
        pass


def test_a_config_survives_its_file(tmp_path: Path) -> None:
    config = RunConfig(from_flat("camp", {"seed": 3}), "camp run --seed 3")
    RunFolder(tmp_path).write_config(config)
    assert RunFolder(tmp_path).read_config() == config


def as_former_version(folder: Path) -> None:
    """Change config.json to what version 0.1.0 wrote before provenance was recorded."""
    config = json.loads((folder / "config.json").read_text())
    del config["provenance"]
    (folder / "config.json").write_text(json.dumps({**config, "version": "0.1.0"}))


def test_a_finished_run_of_the_former_version_opens(
    digits_run: camp.RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(digits_run.folder, tmp_path / "run")
    as_former_version(folder)
    assert RunFolder(folder).read_config().provenance is None
    for words in (["report", str(folder), "--format", "csv"], ["run", "--resume", str(folder)]):
        assert main(words) == 0
    assert numbers(folder) == numbers(digits_run.folder)
    assert "camp" in capsys.readouterr().out


def test_an_unfinished_run_of_the_former_version_continues(
    digits_run: camp.RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    settings = json.loads((digits_run.folder / "config.json").read_text())["settings"]
    write_json(folder / "config.json", {"format": 1, "version": "0.1.0", "command": "", "settings": settings})
    let_continue = stop_after(monkeypatch, 3)
    assert main(["run", "--resume", str(folder), "--quiet"]) == 130
    let_continue()
    assert main(["run", "--resume", str(folder), "--quiet"]) == 0
    assert numbers(folder) == numbers(digits_run.folder)


def test_settings_that_no_longer_exist_are_refused_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = to_dict(from_flat("camp", {}))
    settings["settings"]["colour"] = "blue"
    write_json(tmp_path / "config.json", {"format": 1, "version": "0.0.1", "settings": settings})
    assert main(["run", "--resume", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"camp: {tmp_path / 'config.json'} was written by another version of camp: There is no option "
        '"colour"; finish the run with that version, or start it again in another folder.\n'
    )


def test_results_lost_after_the_last_task_are_a_sentence(
    digits_run: camp.RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(digits_run.folder, tmp_path / "run")
    (folder / "results.json").write_text("{")
    assert main(["run", "--resume", str(folder), "--quiet"]) == 2
    assert f"delete {folder / 'checkpoint'} and use --resume" in capsys.readouterr().err
    shutil.rmtree(folder / "checkpoint")
    assert main(["run", "--resume", str(folder), "--quiet"]) == 0
    assert numbers(folder) == numbers(digits_run.folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("study.json", {"runs": [{"run": "gcd"}, {"run": "camp"}]}),
        ("several.json", {"methods": {"gcd": {}, "camp": {}}}),
    ],
)
def test_the_runs_of_a_comparison_are_in_order(tmp_path: Path, name: str, content: dict[str, object]) -> None:
    assert comparison_runs(tmp_path) is None
    write_json(tmp_path / name, content)
    assert comparison_runs(tmp_path) == [tmp_path / "gcd", tmp_path / "camp"]
    write_json(tmp_path / name, [])
    with pytest.raises(CampError, match="does not hold a comparison"):
        comparison_runs(tmp_path)


OTHER = [
    "[]",
    "{}",
    "7",
    '"x"',
    "null",
    "[null]",
    '{"method": 1, "settings": [], "task": "x", "runs": [3]}',
    "{",
    "[" * 99_999,
]


def test_other_json_in_the_place_of_a_checkpoint(
    digits_run: camp.RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(digits_run.folder, tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    state = tmp_path / "run" / "checkpoint" / "state.json"
    whole = json.loads(state.read_text())
    foreign = {**whole, "task": 1, "epoch": 1}  # of a task that was under way, without its tensors
    for text in (
        *OTHER,
        json.dumps(foreign),
        json.dumps({**whole, "tensors": 5}),
        json.dumps({**whole, "task": -1}),
    ):
        state.write_text(text)
        assert main(["run", "--resume", str(tmp_path / "run"), "--quiet"]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "is damaged" in error or "is not valid JSON" in error or "another version" in error


@pytest.mark.parametrize("name", ["config.json", "results.json", "metrics.jsonl", "split.json"])
def test_other_json_in_the_place_of_a_file(
    digits_run: camp.RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    shutil.copytree(digits_run.folder, tmp_path / "run")
    for text in OTHER:
        (tmp_path / "run" / name).write_text(text + "\n")
        code = main(["report", str(tmp_path / "run"), "--format", "md"])
        assert code == (0 if name in ("metrics.jsonl", "split.json") else code)
        assert code in (0, 2)
        assert capsys.readouterr().err.count("\n") == (1 if code else 0)
        if name != "metrics.jsonl":
            (tmp_path / "run" / "results.json").rename(tmp_path / "results.json")
            assert main(["run", "--resume", str(tmp_path / "run"), "--quiet"]) == 2
            assert capsys.readouterr().err.count("\n") == 1
            (tmp_path / "results.json").rename(tmp_path / "run" / "results.json")


@pytest.mark.parametrize("name", ["study.json", "several.json"])
def test_other_json_in_the_place_of_a_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for text in OTHER:
        (tmp_path / name).write_text(text)
        for words in (["run", "--resume", str(tmp_path)], ["report", str(tmp_path)]):
            assert main(words) == 2
            assert capsys.readouterr().err.count("\n") == 1
