"""Several methods by one command: on one bank, each as it is alone, and gone on with after whatever happens."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import camp
from camp.bench.experiment import Run
from camp.bench.settings import from_flat, to_dict
from camp.cli import main
from camp.nn.backbones.engine import TorchEngine

TINY = (
    "--dataset digits --tasks 2 --epochs 1 --images-per-class 12 --test-per-class 4 --batch-size 32 --n-init 3 "
    "--projector-width 32 --resolution 8 --quiet"
)
SETTINGS: dict[str, Any] = {
    "dataset": "digits", "tasks": 2, "epochs": 1, "images_per_class": 12, "test_per_class": 4, "batch_size": 32,
    "n_init": 3, "projector_width": 32, "resolution": 8,
}  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAMP_BANKS", str(tmp_path / "banks"))
    return tmp_path


def numbers(folder: Path) -> dict[str, Any]:
    """Results but for times, and what depends on the folder's name."""
    results = json.loads((folder / "results.json").read_text())
    return {key: results[key] for key in results if key not in ("seconds", "name", "command")}


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != ".lock"}


def run_several(methods: str, out: str, *more: str) -> int:
    return main(["run", "--method", methods, *TINY.split(), "--out", out, *more])


def test_each_run_is_the_one_that_the_method_makes_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_several("gcd,camp", "many", "--exemplars", "2") == 0
    shown = capsys.readouterr()
    assert shown.err == ""  # quiet
    rows = [line.split()[0] for line in shown.out.splitlines() if line[:3] in ("gcd", "cam")]
    assert rows == ["gcd", "camp"]  # one table
    assert shown.out.strip().endswith(f"The page: {here / 'many/report.html'}")
    assert (here / "many/report.html").read_text().count('data-choose="run') == 2

    described = json.loads((here / "many/several.json").read_text())
    assert list(described["methods"]) == ["gcd", "camp"]
    assert described["methods"]["gcd"] == to_dict(from_flat("gcd", SETTINGS))
    assert described["methods"]["camp"] == to_dict(from_flat("camp", {**SETTINGS, "exemplars": 2}))

    for method, more in (("gcd", {}), ("camp", {"exemplars": 2})):
        alone = camp.run(**SETTINGS, **more, out=here / "alone" / method, method=method, quiet=True)
        assert numbers(here / "many" / method) == numbers(alone.folder)


def test_progress_counts_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    words = TINY.replace("--quiet", "").split()
    assert main(["run", "--method", "gcd,camp", *words, "--adapter", "none", "--out", "many"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "Method" in line or "without" in line]
    assert said == ["gcd: no --adapter, run without", "Method 1 of 2: gcd", "Method 2 of 2: camp"]


def test_stopped_it_goes_on_where_it_was(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_several("camp,gcd,frozen", "whole") == 0
    learn = Run._learn
    with monkeypatch.context() as patch:

        def interrupted(self: Run, method: Any, task: Any, next_epoch: int | None) -> None:
            if self.settings.method == "gcd" and task.index == 1:
                raise KeyboardInterrupt
            learn(self, method, task, next_epoch)

        patch.setattr(Run, "_learn", interrupted)
        assert run_several("camp,gcd,frozen", "many") == 130
    assert not (here / "many/frozen").exists()
    assert not (here / "many/report.html").exists()
    finished = written(here / "many/camp")

    capsys.readouterr()
    assert main(["run", "--resume", "many", "--quiet"]) == 0
    assert written(here / "many/camp") == finished
    for method in ("camp", "gcd", "frozen"):
        assert numbers(here / "many" / method) == numbers(here / "whole" / method)
    assert "frozen" in capsys.readouterr().out
    before = written(here / "many")
    assert main(["run", "--resume", "many", "--quiet"]) == 0
    after = written(here / "many")
    assert {path for path in after if after[path] != before.get(path)} <= {
        here / "many",
        here / "many/report.html",
    }


def test_stopped_before_the_first_run_it_begins(here: Path) -> None:
    assert run_several("camp,gcd", "whole") == 0
    (here / "many").mkdir()
    (here / "many/several.json").write_bytes((here / "whole/several.json").read_bytes())
    assert main(["run", "--resume", "many", "--quiet"]) == 0
    assert numbers(here / "many/gcd") == numbers(here / "whole/gcd")


def test_one_that_fails_leaves_the_others(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An entropy so heavy that CAMP's loss is no number; GCD has none."""
    assert run_several("camp,gcd", "many", "--entropy-weight", "1e39") == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("camp: camp did not finish: The loss became ")
    assert shown.err.count("\n") == 1
    rows = [line.split()[0] for line in shown.out.splitlines() if line[:3] in ("gcd", "cam")]
    assert rows == ["gcd"]
    assert (here / "many/gcd/results.json").exists()
    assert (here / "many/report.html").exists()
    assert main(["run", "--resume", "many", "--quiet"]) == 2
    assert run_several("camp,metagcd", "none", "--learning-rate", "1e30") == 2
    assert not (here / "none/report.html").exists()


def test_folders_that_hold_something_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_several("camp,gcd", "many") == 0
    capsys.readouterr()
    before = written(here / "many")
    refused = "already holds a run: continue it with --resume"
    for methods, out in (
        ("camp,gcd", "many"),
        ("camp", "many"),
        ("camp,frozen", "many/camp"),
        ("gcd", "many/gcd"),
    ):
        assert run_several(methods, out) == 2
        assert f"camp: {out} {refused}" in capsys.readouterr().err
    (here / "many/several.json").rename(here / "several.json")
    assert run_several("frozen,gcd", "many") == 2  # a run of gcd that this command did not make
    assert f"camp: many/gcd {refused}" in capsys.readouterr().err
    (here / "several.json").rename(here / "many/several.json")
    assert written(here / "many") == before


@pytest.mark.parametrize(
    "words",
    [
        "--dataset folder --data nowhere",
        "--tasks 20",
        "--device abacus",
        "--exemplars -1",
        "--nonsense 3",
        "--setting ssl-cl --k estimated",
    ],
)
def test_mistakes_leave_nothing(here: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert main(["run", "--method", "camp,gcd", "--out", "many", *words.split()]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--setting cll", 'There is no setting "cll"; the settings are '),
        ("--dataset nope", "There is no data set 'nope'; known are "),
        ("--dataset folder --data nowhere", "nowhere does not exist; "),
        ("--split nowhere.json", "Could not read nowhere.json: "),
    ],
)
def test_what_is_wrong_for_all_names_no_method(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    assert main(["run", "--method", "all", "--out", "many", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"camp: {said}")
    assert list(here.iterdir()) == []


def test_a_damaged_several_json_is_a_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "many").mkdir()
    (here / "many/several.json").write_text("[]")
    assert main(["run", "--resume", "many"]) == 2
    assert "several.json is not that of several methods" in capsys.readouterr().err


def test_report_takes_the_folder_for_its_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_several("gcd,camp", "many") == 0
    (here / "many/report.html").unlink()
    capsys.readouterr()
    assert main(["report", "many", "--format", "csv", "--protocol", "task_hungarian"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:3]
    assert [row.split(",")[0] for row in rows] == ["gcd", "camp"]
    final = json.loads((here / "many/gcd/results.json").read_text())["summary"]["task_hungarian"]["final"]
    assert float(rows[0].split(",")[2]) == pytest.approx(100 * final["all"], abs=1e-4)
    assert main(["report", "many"]) == 0
    assert (here / "many/report.html").exists()


def test_the_trunk_runs_for_the_first_method_only(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views through the trunk, counted; the second method finds all of them in the bank."""
    views, lock = 0, threading.Lock()
    through = TorchEngine.__call__

    def counted(self: TorchEngine, pixels: Tensor) -> Any:
        nonlocal views
        with lock:
            views += len(pixels)
        return through(self, pixels)

    monkeypatch.setattr(TorchEngine, "__call__", counted)
    after: dict[str, int] = {}
    begun = Run._learn

    def noted(self: Run, *arguments: Any) -> None:
        after.setdefault(self.settings.method, views)
        begun(self, *arguments)

    monkeypatch.setattr(Run, "_learn", noted)
    vit = "--backbone vit-s16 --weights random --depth 2 --resolution 16 --engine torch --augmentations 2"
    words = f"{TINY.replace('--resolution 8', vit)} --method camp,gcd --out many"
    assert main(["run", *words.split()]) == 0
    # 12 training pictures of each digit with a clean and two augmented views, 4 test pictures with a clean one
    assert after == {"camp": 10 * (12 * 3 + 4), "gcd": 10 * (12 * 3 + 4)}
    assert views == after["camp"]
