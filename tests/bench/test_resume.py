"""A run that is killed anywhere and resumed ends in the numbers of a run that was never disturbed."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import camp
from camp.bench import experiment
from camp.cli import main
from camp.core.errors import CampError

OPTIONS = shlex.split(
    "--dataset digits --tasks 2 --epochs 3 --images-per-class 12 --test-per-class 4 --batch-size 32 --n-init 3 "
    "--projector-width 32 --exemplars 2 --resolution 8 --quiet"
)
BANKED = shlex.split(
    "--dataset digits --tasks 2 --epochs 1 --images-per-class 12 --test-per-class 4 --batch-size 32 --n-init 3 "
    "--projector-width 32 --backbone vit-s16 --weights random --depth 2 --resolution 32 --augmentations 3 --quiet"
)
"""With a trunk, and so with a bank of what it gives."""

CHECKPOINTS = {
    "epoch": (1, 1),
    "clustering": (1, 2),
    "between": (1, None),
    "results": (1, 2),
    "tensors": (1, 1),
    "state": (0, 2),
    "metrics": (1, 2),
}
"""Points of `killing`, and the (task, epoch) with which the checkpoint continues."""


@pytest.fixture(scope="module")
def killer() -> Iterator[subprocess.Popen[str]]:
    """The process of `killing`."""
    command = [sys.executable, str(Path(__file__).with_name("killing.py"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    assert process.stdin is not None
    process.stdin.close()
    process.wait(timeout=30)


def ask(killer: subprocess.Popen[str], point: str, words: list[str], banks: Path | str) -> None:
    assert killer.stdin is not None
    killer.stdin.write(json.dumps({"point": point, "words": words, "banks": str(banks)}) + "\n")
    killer.stdin.flush()


def answer(killer: subprocess.Popen[str]) -> int:
    """The signal that ended the child."""
    assert killer.stdout is not None
    return json.loads(killer.stdout.readline())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, beside it the bank it filled."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAMP_BANKS", str(folder / "banks"))
        assert main(["run", *OPTIONS, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(autouse=True)
def _same_bank(undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMP_BANKS", str(undisturbed.parent / "banks"))


def numbers(folder: Path) -> dict[str, Any]:
    """All that a run leaves, but for times and its own name."""
    results = json.loads((folder / "results.json").read_text())
    for varying in ("seconds", "name", "command"):
        del results[varying]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(line.pop("seconds") >= 0 for line in lines)
    return {
        "results": results,
        "metrics": lines,
        "predictions": (folder / "predictions.csv").read_text(),
        "split": (folder / "split.json").read_text(),
        "thumbnails": {path.name: path.read_bytes() for path in (folder / "thumbnails").iterdir()},
        "tensors": (folder / "checkpoint" / "tensors-2-None.safetensors").read_bytes(),
    }


def at(folder: Path) -> tuple[int, int | None] | None:
    """The (task, epoch) with which the checkpoint continues."""
    path = folder / "checkpoint" / "state.json"
    if not path.exists():
        return None
    values = json.loads(path.read_text())
    return values["task"], values["epoch"]


@pytest.mark.slow
@pytest.mark.parametrize("point", CHECKPOINTS)
def test_killed_and_resumed(
    killer: subprocess.Popen[str], undisturbed: Path, tmp_path: Path, point: str
) -> None:
    out = tmp_path / "run"
    ask(killer, point, ["run", *OPTIONS, "--out", str(out)], os.environ["CAMP_BANKS"])
    assert answer(killer) == signal.SIGKILL
    assert at(out) == CHECKPOINTS[point]
    spent = json.loads((out / "checkpoint" / "state.json").read_text())["seconds"]

    assert main(["run", "--resume", str(out), "--quiet"]) == 0
    assert numbers(out) == numbers(undisturbed)
    total = json.loads((out / "results.json").read_text())["seconds"]
    assert total["train"] >= spent["train"] > 0  # the time of the process that was killed counts
    assert total["bank"] > spent["bank"]
    kept = sorted(path.name for path in (out / "checkpoint").iterdir())
    assert kept == ["state.json", "tensors-2-None.safetensors"]


@pytest.mark.slow
def test_killed_while_the_bank_is_filled(
    killer: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clean_views(banks: Path) -> int:
        """Records in the index of a bank's clean views."""
        return sum(path.stat().st_size // 20 for path in banks.glob("*/clean/index.bin"))

    monkeypatch.setenv("CAMP_BANKS", str(tmp_path / "banks"))
    assert main(["run", *BANKED, "--out", str(tmp_path / "undisturbed")]) == 0
    monkeypatch.setenv("CAMP_BANKS", str(tmp_path / "other banks"))
    out = tmp_path / "run"
    ask(killer, "bank", ["run", *BANKED, "--out", str(out)], os.environ["CAMP_BANKS"])
    assert answer(killer) == signal.SIGKILL
    assert at(out) is None
    assert 0 < clean_views(tmp_path / "other banks") < clean_views(tmp_path / "banks")

    assert main(["run", "--resume", str(out), "--quiet"]) == 0
    assert numbers(out) == numbers(tmp_path / "undisturbed")
    assert clean_views(tmp_path / "other banks") == clean_views(tmp_path / "banks")


@pytest.mark.slow
def test_killed_over_and_over(killer: subprocess.Popen[str], undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    banks = os.environ["CAMP_BANKS"]
    ask(killer, "state", ["run", *OPTIONS, "--out", str(out)], banks)
    assert answer(killer) == signal.SIGKILL
    for point in ("between", "epoch", "clustering", "results"):
        ask(killer, point, ["run", "--resume", str(out), "--quiet"], banks)
        assert answer(killer) == signal.SIGKILL, point
    assert main(["run", "--resume", str(out), "--quiet"]) == 0
    assert numbers(out) == numbers(undisturbed)


def test_the_second_process_in_a_folder_is_refused(
    killer: subprocess.Popen[str], undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    ask(killer, "waiting", ["run", *OPTIONS, "--out", str(out)], os.environ["CAMP_BANKS"])
    while not (out / "waiting").exists():
        assert killer.poll() is None
        time.sleep(0.02)
    try:
        assert main(["run", "--resume", str(out), "--quiet"]) == 2
        refusal = capsys.readouterr().err
        assert refusal == f"camp: Another process is working on {out}; wait for it or stop it.\n"
    finally:
        os.kill(int((out / "waiting").read_text()), signal.SIGKILL)
    assert answer(killer) == signal.SIGKILL
    assert main(["run", "--resume", str(out), "--quiet"]) == 0  # the lock went with the process
    assert numbers(out) == numbers(undisturbed)


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Each file with its time and content; the page is written anew by the command."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("report.html", ".lock")
    }


def test_a_finished_run_is_left_as_it_is(
    undisturbed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(undisturbed)
    page = (undisturbed / "report.html").read_text()

    def needless(*_: Any) -> None:
        raise AssertionError("a finished run needs no data")

    monkeypatch.setattr(experiment, "load_dataset", needless)
    assert main(["run", "--resume", str(undisturbed)]) == 0
    assert everything(undisturbed) == before
    assert (undisturbed / "report.html").read_text() == page
    assert "camp" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--epochs", "4"], ["--seed=3"], ["elsewhere"], ["--out", "there"]])
def test_other_options_are_refused(
    undisturbed: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    before = everything(undisturbed)
    assert main(["run", "--resume", str(undisturbed), *words]) == 2
    assert capsys.readouterr().err == (
        f"camp: A resumed run keeps its settings: leave out {' '.join(words)}.\n"
    )
    assert everything(undisturbed) == before


def test_other_settings_from_python_are_refused(undisturbed: Path) -> None:
    with pytest.raises(CampError, match="other settings"):
        camp.run("digits", out=undisturbed, epochs=7, quiet=True)


def test_a_damaged_checkpoint_is_a_sentence(
    killer: subprocess.Popen[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    ask(killer, "between", ["run", *OPTIONS, "--out", str(out)], os.environ["CAMP_BANKS"])
    assert answer(killer) == signal.SIGKILL
    path = out / "checkpoint" / "tensors-1-None.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    assert main(["run", "--resume", str(out), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"camp: The checkpoint {path.parent} is damaged")
    assert error.count("\n") == 1
