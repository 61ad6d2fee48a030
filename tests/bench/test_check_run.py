"""`camp check` on a run folder, and damage that a resumed run notices."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import camp
from camp.bench.checkpoint import load_checkpoint
from camp.bench.trained_tips import TrainedTips
from camp.cli import main
from camp.core.errors import CampError


@pytest.fixture
def run(digits_run: "camp.RunResult", tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return Path(shutil.copytree(digits_run.folder, tmp_path / "run"))


def check(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["check", str(run), "--quiet"])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def test_a_whole_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(run, capsys) == (0, f"{run}: run folder; no damage was found.\n")


def test_a_run_of_the_version_before(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no checksums."""
    path = run / "checkpoint" / "state.json"
    values = json.loads(path.read_text())
    for key in ("checksum", "tensors_checksum", "files"):
        del values[key]
    path.write_text(json.dumps(values))
    assert check(run, capsys)[0] == 0
    assert load_checkpoint(run / "checkpoint") is not None


def digit(path: Path) -> None:
    """The last digit that a file holds is another one."""
    text = path.read_text()
    place = [found.start() for found in re.finditer("[0-8]", text)][-1]
    path.write_text(text[:place] + str(int(text[place]) + 1) + text[place + 1 :])


def tensors(run: Path) -> Path:
    [path] = (run / "checkpoint").glob("*.safetensors")
    return path


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(bytes(data))


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "config": (lambda run: digit(run / "config.json"), "config.json was changed"),
    "split": (lambda run: digit(run / "split.json"), "split.json was changed"),
    "half of the split": (lambda run: (run / "split.json").write_text('{"tasks"') and None, "split.json is damaged"),
    "results": (lambda run: digit(run / "results.json"), "results.json was changed"),
    "predictions": (lambda run: digit(run / "predictions.csv"), "predictions.csv was changed"),
    "no predictions": (lambda run: (run / "predictions.csv").unlink(), "predictions.csv is missing"),
    "metrics": (lambda run: digit(run / "metrics.jsonl"), "metrics.jsonl was changed"),
    "state": (lambda run: digit(run / "checkpoint" / "state.json"), "is damaged (state.json was changed since it was written)"),
    "tensors": (lambda run: flip(tensors(run)), "safetensors was changed since it was written)"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found(run: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    done, said = DAMAGE[damage]
    done(run)
    code, shown = check(run, capsys)
    assert code == 2
    assert said in shown
    assert "Traceback" not in shown
    assert f"camp: {run} is damaged." in shown


@pytest.mark.parametrize("path", ["state.json", "tensors"])
def test_a_damaged_checkpoint_is_not_continued(run: Path, path: str) -> None:
    flip(tensors(run)) if path == "tensors" else digit(run / "checkpoint" / path)
    with pytest.raises(
        CampError, match=r"The checkpoint .* is damaged \(\S+ was changed since it was written\)"
    ):
        load_checkpoint(run / "checkpoint")


def test_damaged_trained_networks_are_trained_again(run: Path, tmp_path: Path) -> None:
    saved = load_checkpoint(run / "checkpoint")
    assert saved is not None
    tips = TrainedTips(tmp_path / "tips")
    tensors, lines = (tmp_path / "tips" / name for name in ("task-0.safetensors", "task-0.json"))
    for path, damage in ((tensors, flip), (lines, digit)):
        tips.save(0, saved.state.tensors, [{"task": 0, "epoch": 0}])
        assert tips.load(0) is not None
        damage(path)
        assert tips.load(0) is None
    tips.save(0, saved.state.tensors, [])
    lines.write_text('[{"task": 0, "epoch": 0}]')  # as version 0.1.0 wrote it
    assert tips.load(0) is not None


@pytest.mark.parametrize("name", ["results.json", "checkpoint/state.json", "thumbnails/new.md", "study.json"])
def test_a_report_does_not_replace_the_files_of_a_run(
    run: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (run / "study.json").write_text("{}")
    before = (run / "results.json").read_bytes()
    assert main(["report", str(run), "--format", "md", "--out", str(run / name)]) == 2
    assert f"--out {run / name}" in capsys.readouterr().err
    assert (run / "results.json").read_bytes() == before
    assert main(["report", str(run), "--format", "md", "--out", str(run / "table.md")]) == 0
