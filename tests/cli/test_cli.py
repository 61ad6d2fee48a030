"""The command line: what it prints, what it refuses, and that a refusal leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from camp import __version__, cli
from camp.bench.settings import option_names
from camp.cli import main
from camp.data.datasets import DATASETS
from camp.methods.registry import METHODS, methods_for

TINY = (
    "--dataset digits --tasks 2 --epochs 1 --images-per-class 12 --test-per-class 4 --batch-size 32 --n-init 3 "
    "--projector-width 32 --resolution 8 --quiet"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("cli")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAMP_BANKS", str(folder / "banks"))
        assert main(["run", *TINY.split(), "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, where all banks and data would be too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAMP_BANKS", str(tmp_path / "banks"))
    monkeypatch.setenv("CAMP_DATA", str(tmp_path / "data"))
    return tmp_path


def test_the_help_says_how_to_continue_a_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "camp run --resume FOLDER" in capsys.readouterr().out
    assert list(here.iterdir()) == []


LEAVING = """
import atexit, sys
from camp.cli import main
atexit.register(print, "finalized")
sys.argv = ["camp", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.mark.parametrize(("word", "code"), [("--version", 0), ("frobnicate", 2)])
def test_one_of_several_processes_leaves_without_finalizing(
    monkeypatch: pytest.MonkeyPatch, word: str, code: int
) -> None:
    """Its exit code and all it printed are kept; a single process is finalized as usual."""
    command = [sys.executable, "-c", LEAVING, word]
    usual = subprocess.run(command, capture_output=True, text=True)
    monkeypatch.setenv("RANK", "0")
    one_of_several = subprocess.run(command, capture_output=True, text=True)
    assert (usual.returncode, one_of_several.returncode) == (code, code)
    assert usual.stdout == f"{one_of_several.stdout}finalized\n"
    assert usual.stderr == one_of_several.stderr
    assert one_of_several.stdout + one_of_several.stderr


def test_help_of_all_commands(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    whole = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert f"camp {command}" in whole
        assert main([command, "--help"]) == 0
        assert capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"camp {__version__}\n"
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("method", METHODS)
def test_help_of_a_method_shows_its_own_options(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--method", method, "--help"]) == 0
    shown = capsys.readouterr().out
    assert METHODS[method].title in " ".join(shown.split())
    own = option_names(method, own=True)
    for name in own:
        assert f"--{name.replace('_', '-')} " in shown or f"--{name.replace('_', '-')}," in shown
    assert ("--adapter " in shown) == ("adapter" in own)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("frobnicate", 'There is no command "frobnicate"; the commands are learn, review, status, predict, export, serve, check, run, report'),
        ("run --method nope --out out", 'There is no method "nope"; the methods are frozen, gcd'),
        ("run --method camp,nope --out out", 'There is no method "nope"; the methods are frozen, gcd'),
        ("run --method camp,camp --out out", "--method names camp twice; once is enough."),
        ("run --method camp,gcd --epocks 3 --out out", "None of camp, gcd has an option --epocks; did you mean --epochs?"),
        ("run --method camp,gcd --dataset cub200 --out out", "data/cub200 does not exist;"),
        ("run --dataset nope --out out", "There is no data set 'nope'; known are digits"),
        ("run --dataset folder --data nowhere --out out", "nowhere does not exist;"),
        ("run --dataset cub200 --out out", "data/cub200 does not exist;"),
        ("run --dataset folder --data empty --out out", "empty is empty;"),
        ("run --dataset embeddings --data file.txt --out out", "file.txt is not an .npz file;"),
        ("run --setting nope --out out", 'There is no setting "nope"'),
        ("run --tasks 0 --out out", "A stream has at least one task, not 0."),
        ("run --tasks 20 --out out", "10 classes cannot be divided into 20 tasks; use fewer tasks."),
        ("run --epochs -1 --out out", "The number of epochs cannot be negative, and -1 is."),
        ("run --batch-size 1 --out out", "Contrastive losses compare images"),
        ("run --learning-rate 0 --out out", "The learning rate must be above 0, and 0.0 is not."),
        ("run --learning-rate nan --out out", "The learning rate must be above 0, and nan is not."),
        ("run --supcon-temperature 0 --out out", "supcon_temperature must be above 0, and 0.0 is not."),
        ("run --alpha 1.5 --out out", "alpha is a share between 0 and 1, not 1.5."),
        ("run --exemplars -2 --out out", "The number of exemplars cannot be negative, and -2 is."),
        ("run --n-init 0 --out out", "Clustering needs at least one run and one iteration."),
        ("run --max-novel -1 --out out", "max_novel counts categories"),
        ("run --augmentations 1 --out out", "Training compares two views of an image, so camp needs"),
        ("run --bad-share 2 --out out", "bad_share must be between 0 and 1, not 2.0."),
        ("run --no-supervised --self-supervised False --out out", "CAMP without the supervised and the self-"),
        ("run --no-official-split --out out", "The reference's own 90/10 split is for cub200, not digits."),
        ("run --split split.json --tasks 2 --out out", "A given split already decides tasks: leave that out"),
        ("run --split nowhere.json --out out", "Could not read nowhere.json:"),
        ("run --backbone conv-tiny --weights x.pth --out out", "conv-tiny is trained from scratch and takes no"),
        ("run --backbone nope --out out", 'There is no backbone "nope"; the names are'),
        ("run --backbone vit-s16 --weights nowhere.pth --out out", "nowhere.pth"),
        ("run --backbone vit-s16 --weights random --resolution 33 --out out", "vit-s16 takes a resolution that"),
        ("run --backbone vit-s16 --weights random --depth 13 --out out", "vit-s16 has 12 blocks"),
        ("run --backbone embeddings --out out", "The backbone embeddings takes vectors, and digits has images."),
        ("run --method pass --setting cil --backbone efficientnet-lite0 --out out", "PASS works on images through a"),
        ("run --method fine-tune --out out", "fine-tune is for class-incremental learning and needs the label of"),
        ("run --device abacus --out out", 'There is no device "abacus" here'),
        ("run --setting ssl-cl --k estimated --out out", "The number of categories is estimated from labelled"),
        ("run --out file.txt", "The folder file.txt could not be made (File exists)."),
        ("run --out file.txt/run", "The folder file.txt/run could not be made (Not a directory)."),
        ("run --dataset digits --data somewhere --out out", "Data set digits is installed with CAMP and reads no other data; leave"),
        ("run --bank file.txt/banks --dataset digits --epochs 1 --out out", "cannot be made, since"),
        ("run --dataset cub200 --data ~nobody-of-this-name/x --out out", "~nobody-of-this-name/x does not exist;"),
        ("run --resume nothing", "nothing holds no run: there is no config.json in it."),
        ("run --resume empty", "empty holds no run: there is no config.json in it."),
        ("run --resume", "--resume needs the folder of a run."),
        ("run --resume --quiet", "--resume needs the folder of a run."),
        ("run --resume=nothing --epochs 3", "A resumed run keeps its settings: leave out --epochs 3."),
        ("report", "camp report needs at least one run folder."),
        ("report nowhere", "There is no run folder nowhere;"),
        ("report empty", "empty is not a run folder:"),
        ("report empty --format page --table numbers", "A page has no --table: add --format md"),
        ("report empty --published --table tasks", "The paper has no --table tasks: leave out --table or --published."),
        ("report empty --format page --published", "The paper's numbers are shown in a table: add --format"),
        ("report empty --format csv", "empty is not a run folder:"),
        ("datasets gett digits", 'camp datasets does not know "gett";'),
        ("datasets get", "camp datasets get needs one name;"),
        ("datasets get nope", "There is no data set 'nope'; known are"),
        ("methods camp", 'camp methods does not know "camp"; it lists the methods.'),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    (here / "empty").mkdir()
    (here / "file.txt").write_text("a file")
    before = sorted(here.rglob("*"))
    assert main(words.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("camp: ")
    assert said in shown.err
    assert shown.err.endswith((".\n", "?\n"))
    assert shown.err.count("\n") == 1
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--out", ""], "--out is empty; give the name of a file or folder."),
        (["run", "--method", "camp,gcd", "--out", " "], "--out is empty; give the name of a file or folder."),
        (["run", "--data", "", "--out", "x"], "data is empty; give the name of a file or folder, or leave it out."),
        (["run", "--split", "", "--out", "x"], "split is empty; give the name of a file or folder, or leave it out."),
        (["run", "--bank", "", "--out", "x"], "The folder of the view banks (bank) is empty; give its name"),
        (["study", "alpha", "--dataset", "digits", "--out", ""], "--out is empty; give the name of a file or folder."),
        (["report", ""], "A run folder is empty; give the name of a file or folder."),
        (["demo", "--out", ""], "--out is empty; give the name of a file or folder."),
    ],
)  # fmt: skip
def test_an_empty_path_is_not_the_present_folder(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("run --epocks 3 --out out", "--epochs"),
        ("run --epochs three --out out", "--epochs"),
        ("run --seed 1.5 --out out", "--seed"),
        ("run --k guessed --out out", "estimated"),
        ("run", "--out"),
        ("run --method gcd --adapter linear --out out", "--adapter"),
        ("report --formt md somewhere", "--format"),
        ("report --format pdf somewhere", "latex"),
        ("report --protocol agnostisch somewhere", "agnostic"),
        ("run --method camp,gcd", "--out"),
        ("run --method camp,gcd --epochs three --out out", "epochs"),
        ("demo --output there", "--out"),
    ],
)
def test_a_typo_in_an_option_gets_a_hint(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, hint: str
) -> None:
    assert main(words.split()) == 2
    shown = capsys.readouterr()
    assert hint in shown.err
    assert "Traceback" not in shown.err
    assert list(here.iterdir()) == []


def test_a_folder_that_holds_a_run_is_not_touched(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main(["run", "--dataset", "digits", "--out", str(run)]) == 2
    assert capsys.readouterr().err == (
        f"camp: {run} already holds a run: continue it with --resume {run}, or choose another --out.\n"
    )
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_run_prints_its_table_and_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *TINY.split(), "--method", "gcd", "--out", "runs/x"]) == 0
    shown = capsys.readouterr()
    assert "forgetting" in shown.out
    assert shown.out.strip().endswith(f"The page: {here / 'runs/x/report.html'}")
    assert (here / "runs/x/report.html").exists()
    assert shown.err == ""  # quiet


def test_progress_goes_to_stderr(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *TINY.replace("--quiet", "").split(), "--out", "x"]) == 0
    assert "After task 2 of 2: all" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("format", "mark"), [("text", "forgetting"), ("md", "|"), ("csv", ","), ("latex", "\\begin{tabular}")]
)
def test_report_as_a_table(
    run: Path, here: Path, capsys: pytest.CaptureFixture[str], format: str, mark: str
) -> None:
    assert main(["report", str(run), "--format", format]) == 0
    shown = capsys.readouterr().out
    assert mark in shown
    assert main(["report", str(run), "--format", format, "--out", "table"]) == 0
    assert (here / "table").read_text() == shown


def test_report_beside_the_paper(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--published"]) == 0
    text = capsys.readouterr().out
    assert text.split()[:4] == ["method", "exemplars", "all", "paper"]
    assert main(["report", str(run), "--published", "--format", "md"]) == 0
    assert capsys.readouterr().out.startswith(
        "| method | exemplars | all | paper | known | paper | novel | paper |"
    )


def test_report_by_another_protocol(run: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = []
    for protocol in ("agnostic", "task_hungarian"):
        assert main(["report", str(run), "--format", "csv", "--protocol", protocol]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] != tables[1]
    assert main(["report", str(run), "--protocol", "aware", "--out", "page.html"]) == 0
    assert "another protocol, <i>Task-aware</i>" in (here / "page.html").read_text()


def test_report_as_a_page_of_several_runs(run: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *TINY.split(), "--method", "gcd", "--out", "other"]) == 0
    capsys.readouterr()
    assert main(["report", str(run), "other", "--format", "page", "--out", "both.html"]) == 0
    shown = capsys.readouterr().out
    assert "camp" in shown
    assert "gcd" in shown
    assert f"The page: {here / 'both.html'}" in shown
    page = (here / "both.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").exists()


def test_report_of_a_run_that_has_hardly_started(
    run: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "started").mkdir()
    (here / "started" / "config.json").write_bytes((run / "config.json").read_bytes())
    assert main(["report", "started"]) == 2
    assert capsys.readouterr().err == (
        "camp: The run in started has not finished its first task; continue it with `camp run --resume started`.\n"
    )


def test_datasets_are_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets"]) == 0
    shown = capsys.readouterr().out
    for name, info in DATASETS.items():
        assert f"\n{name} " in f"\n{shown}"
        assert info.licence in shown
    assert "digits           Handwritten digits (scikit-learn) [present]" in shown
    brought = sum(info.n_classes is None for info in DATASETS.values())  # by the user
    assert shown.count("[yours]") == brought == 2
    assert shown.count("[not here]") == len(DATASETS) - 1 - brought


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    every, incremental = capsys.readouterr().out.split("\n\n")
    assert "--setting cil" in incremental.splitlines()[0]
    for shown, names in ((every, methods_for(labelled=False)), (incremental, methods_for(labelled=True))):
        listed = [line.split(maxsplit=1) for line in shown.splitlines()[1:]]
        assert listed == [[name, METHODS[name].title] for name in names]
    assert methods_for(labelled=False) != methods_for(labelled=True)


def test_ctrl_c_is_a_sentence(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("camp.cli.run.run", interrupted)
    assert main(["run"]) == 130
    assert capsys.readouterr().err.startswith("camp: interrupted; what was done is kept")


def test_too_many_unreadable_images(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one refusal that leaves a folder: it holds the list of what is broken, and can be resumed."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 6), ("test", 2)):
        for name in "abcd":
            for i in range(count):
                path = here / "pictures" / part / name / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(path)
    broken = here / "pictures/train/a/0.png"
    broken.write_bytes(b"")
    words = TINY.replace("digits", "folder").split()
    extra = "--data pictures --novel-fraction 0.5 --bad-share 0 --order given --backbone conv-tiny --out x"
    assert main(["run", *words, *extra.split()]) == 2
    sentence = capsys.readouterr().err
    assert sentence.startswith(
        "camp: 1 of 32 images could not be read, more than the 0% that --bad-share allows"
    )
    assert sentence.count("\n") == 1
    assert "train/a/0.png" in (here / "x" / "skipped.csv").read_text()
    broken.unlink()
    assert main(["run", "--resume", "x", "--quiet"]) == 0
    assert not (here / "x" / "skipped.csv").exists()


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_threads_that_wait_for_each_other_sleep(given: str | None) -> None:
    """The variable is read when torch is imported, which no command has done before."""
    code = (
        "import os, sys; from camp.cli import main; main(); "
        "print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if given is not None:
        environment["OMP_WAIT_POLICY"] = given
    said = subprocess.run(
        [sys.executable, "-c", code, "--version"], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines()[-1] == f"{given or 'PASSIVE'} False"
