"""Help, listings and mistakes in options import neither torch nor anything else that takes long to import."""

from pathlib import Path

import pytest

from camp.cli import COMMANDS
from imported import heavy_imports


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command: str) -> None:
    assert heavy_imports([command, "--help"]) == ([0], set())


def test_help_of_camp_and_an_unknown_command() -> None:
    codes, imported = heavy_imports([], ["--help"], ["help"], ["-h"], ["--version"], ["frobnicate"])
    assert (codes, imported) == ([0, 0, 0, 0, 0, 2], set())


def test_lists_of_methods_data_sets_and_studies() -> None:
    assert heavy_imports(["methods"], ["datasets"], ["datasets", "--help"], ["study"]) == ([0] * 4, set())


def test_help_of_methods_and_of_studies() -> None:
    names = ("frozen", "camp-plus", "metagcd", "ssre", "fetril", "camp,gcd", "all")
    commands = [["run", "--method", name, "--help"] for name in names]
    commands += [["run", "--method", "all", "--setting", "cil", "--help"], ["study", "alpha", "--help"]]
    assert heavy_imports(*commands) == ([0] * len(commands), set())


def test_mistakes_in_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = ["--out", "run"]
    mistakes = [
        ["run", "--method", "frobnicate", *out],
        ["run", "--frobnicate", "3", *out],
        ["run", "--epochs", "few", *out],
        ["run", "--epochs", "-1", *out],
        ["run", "--backbone", "frobnicate", *out],
        ["run", "--method", "camp,gcd", "--frobnicate", "3", *out],
        ["run", "--method", "camp,gcd", "--beta", "7", *out],
        ["run", "--method", "camp,gcd"],
        ["run", "--resume"],
        ["study", "frobnicate"],
        ["study", "alpha", "--frobnicate", "3"],
        ["study", "alpha", "--alpha", "much"],
        ["study", "alpha", "--jobs", "0"],
        ["report"],
        ["report", "nowhere"],
        ["report", "nowhere", "--format", "md"],
        ["check", "nowhere"],
        ["status", "nowhere"],
        ["learn"],
    ]
    codes, imported = heavy_imports(*mistakes)
    assert dict(zip(map(" ".join, mistakes), codes)) == dict.fromkeys(map(" ".join, mistakes), 2)
    assert imported == set()
    assert list(tmp_path.iterdir()) == []


def test_the_runs_of_a_study_are_listed(tmp_path: Path) -> None:
    assert heavy_imports(["study", "alpha", "--dry", "--out", str(tmp_path)]) == ([0], set())
