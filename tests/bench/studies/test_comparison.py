"""Several methods compared by one command: on one view bank, each as if it were run alone."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import camp
from camp.bench.run_loop import _RunLoop
from camp.bench.settings import from_flat, to_dict
from camp.cli import main
from camp.nn.backbones.engine import TorchEngine

pytestmark = pytest.mark.slow

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
    return tmp_path


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, banks: Path) -> Path:
    """A finished comparison of GCD and CAMP; tests must not change it."""
    folder = tmp_path_factory.mktemp("compared") / "many"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAMP_BANKS", str(banks))
        assert run_several("gcd,camp", str(folder), "--exemplars", "2") == 0
    return folder


def numbers(folder: Path) -> dict[str, Any]:
    """Results but for times, and what depends on the folder's name."""
    results = json.loads((folder / "results.json").read_text())
    return {key: results[key] for key in results if key not in ("seconds", "name", "command")}


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != ".lock"}


def run_several(methods: str, out: str, *more: str) -> int:
    return main(["run", "--method", methods, *TINY.split(), "--out", out, *more])


def test_each_run_is_the_one_that_the_method_makes_alone(compared: Path, here: Path) -> None:
    described = json.loads((compared / "study.json").read_text())
    assert [run["run"] for run in described["runs"]] == ["gcd", "camp"]
    assert (compared / "report.html").read_text().count('data-choose="run') == 2
    for method, more in (("gcd", {}), ("camp", {"exemplars": 2})):
        config = json.loads((compared / method / "config.json").read_text())
        assert config["settings"] == to_dict(from_flat(method, {**SETTINGS, **more}))
        assert config["command"].startswith("camp run --method gcd,camp --dataset digits")
        alone = camp.run(**SETTINGS, **more, out=here / "alone" / method, method=method, quiet=True)
        assert numbers(compared / method) == numbers(alone.folder)


def test_progress_and_one_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = TINY.replace("--quiet", "").split()
    assert main(["run", "--method", "gcd,camp", *words, "--adapter", "none", "--out", "many"]) == 0
    shown = capsys.readouterr()
    said = [line for line in shown.err.splitlines() if "Run " in line or "without" in line]
    assert said == ["gcd: no --adapter, run without", "Run 1 of 2: gcd", "Run 2 of 2: camp"]
    rows = [line.split()[0] for line in shown.out.splitlines() if line[:3] in ("gcd", "cam")]
    assert rows == ["gcd", "camp"]
    assert shown.out.strip().endswith(f"The page: {here / 'many/report.html'}")


def test_a_stopped_comparison_continues(
    compared: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learn = _RunLoop._learn
    with monkeypatch.context() as patch:

        def interrupted(self: _RunLoop, task: Any, next_epoch: int | None) -> None:
            if self.experiment.settings.method == "camp" and task.index == 1:
                raise KeyboardInterrupt
            learn(self, task, next_epoch)

        patch.setattr(_RunLoop, "_learn", interrupted)
        assert run_several("gcd,camp,frozen", "many", "--exemplars", "2") == 130
    assert not (here / "many/frozen").exists()
    assert not (here / "many/report.html").exists()
    finished = written(here / "many/gcd")

    capsys.readouterr()
    assert main(["run", "--resume", "many", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert "frozen" in shown.out
    assert shown.err == ""  # quiet
    assert written(here / "many/gcd") == finished
    for method in ("gcd", "camp"):
        assert numbers(here / "many" / method) == numbers(compared / method)
    before = written(here / "many")
    assert main(["run", "--resume", "many", "--quiet"]) == 0
    after = written(here / "many")
    changed = {path for path in after if after[path] != before.get(path)}
    assert changed <= {here / "many", here / "many/report.html", here / "many/study.json"}


def test_a_comparison_stopped_before_its_first_run_starts_it(compared: Path, here: Path) -> None:
    (here / "many").mkdir()
    (here / "many/study.json").write_bytes((compared / "study.json").read_bytes())
    assert main(["run", "--resume", "many", "--quiet"]) == 0
    for method in ("gcd", "camp"):
        assert numbers(here / "many" / method) == numbers(compared / method)


def test_a_comparison_of_the_former_version_continues(
    compared: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(compared, here / "many")
    (here / "many/study.json").unlink()
    shutil.rmtree(here / "many/camp")
    methods = {
        method: json.loads((compared / method / "config.json").read_text())["settings"]
        for method in ("gcd", "camp")
    }
    described = {"format": 1, "version": "0.1.0", "command": "camp run", "methods": methods}
    (here / "many/several.json").write_text(json.dumps(described))
    assert main(["run", "--resume", "many", "--quiet"]) == 0
    assert numbers(here / "many/camp") == numbers(compared / "camp")
    capsys.readouterr()
    assert main(["report", "many", "--format", "csv"]) == 0
    assert [row.split(",")[0] for row in capsys.readouterr().out.splitlines()[1:3]] == ["gcd", "camp"]


def test_the_failure_of_one_does_not_stop_the_others(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_folders_that_hold_runs_are_refused(
    compared: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(compared, here / "many")
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
    (here / "many/study.json").rename(here / "study.json")
    assert run_several("frozen,gcd", "many") == 2  # a run of gcd that this command did not make
    assert f"camp: many/gcd {refused}" in capsys.readouterr().err
    (here / "study.json").rename(here / "many/study.json")
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


@pytest.mark.parametrize("name", ["study.json", "several.json"])
def test_a_damaged_description_is_a_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (here / "many").mkdir()
    (here / "many" / name).write_text("[]")
    assert main(["run", "--resume", "many"]) == 2
    assert f"{name} does not describe a comparison of methods" in capsys.readouterr().err


def test_report_takes_the_folder_for_its_runs(
    compared: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", str(compared)]
    assert main([*words, "--format", "csv", "--protocol", "task_hungarian"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:3]
    assert [row.split(",")[0] for row in rows] == ["gcd", "camp"]
    final = json.loads((compared / "gcd/results.json").read_text())["summary"]["task_hungarian"]["final"]
    assert float(rows[0].split(",")[2]) == pytest.approx(100 * final["all"], abs=1e-4)
    assert main([*words, "--out", "page.html"]) == 0
    assert (here / "page.html").exists()


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
    learn = _RunLoop._learn

    def noted(self: _RunLoop, *arguments: Any) -> None:
        after.setdefault(self.experiment.settings.method, views)
        learn(self, *arguments)

    monkeypatch.setattr(_RunLoop, "_learn", noted)
    monkeypatch.setenv("CAMP_BANKS", str(here / "banks"))
    vit = "--backbone vit-s16 --weights random --depth 2 --resolution 16 --engine torch --augmentations 2"
    words = f"{TINY.replace('--resolution 8', vit)} --method camp,gcd --out many"
    assert main(["run", *words.split()]) == 0
    # 12 training images of each digit with a clean and two augmented views, 4 test images with a clean one
    assert after == {"camp": 10 * (12 * 3 + 4), "gcd": 10 * (12 * 3 + 4)}
    assert views == after["camp"]
