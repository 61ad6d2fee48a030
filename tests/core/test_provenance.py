"""What is recorded about the software and hardware of a result."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from camp.core import provenance
from camp.core.provenance import Provenance, current_provenance, git_commit
from camp.core.version import __version__


def test_the_present_process_is_described() -> None:
    made = current_provenance("cuda:1")
    assert (made.version, made.torch, made.device) == (__version__, torch.__version__, "cuda:1")
    assert made.threads == torch.get_num_threads()
    assert Provenance.model_validate(made.model_dump()) == made


def test_files_with_more_or_fewer_entries_are_read() -> None:
    assert Provenance.model_validate({"version": "0.0.1", "colour": "blue"}) == Provenance(version="0.0.1")


def _fake_checkout(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = root / "src" / "camp" / "core" / "provenance.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    monkeypatch.setattr(provenance, "__file__", str(module))
    git_commit.cache_clear()


def test_the_commit_is_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_checkout(tmp_path, monkeypatch)
    assert git_commit() is None  # an installed package
    for words in ("init -q", "add .", "-c user.name=a -c user.email=b commit -qm first"):
        subprocess.run(["git", "-C", str(tmp_path), *words.split()], check=True)
    head = subprocess.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True)
    git_commit.cache_clear()
    assert git_commit() == head.stdout.strip()
    (tmp_path / "src" / "camp" / "core" / "provenance.py").write_text("changed")
    git_commit.cache_clear()
    assert git_commit() == f"{head.stdout.strip()}+changes"


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_checkout(tmp_path, monkeypatch)
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", "")
    assert git_commit() is None


@pytest.fixture(autouse=True)
def _forget_the_commit() -> Iterator[None]:
    git_commit.cache_clear()
    yield
    git_commit.cache_clear()
