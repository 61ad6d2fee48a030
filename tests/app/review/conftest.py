"""A small workspace of digits, and its page without a browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from small_workspace import small_workspace

from camp.app.review.app import review_app
from camp.app.workspace.workspace import Workspace


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_workspace(tmp_path_factory.mktemp("made") / "digits", count=200).storage.path


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(made, tmp_path / "digits")
    return Workspace.open(tmp_path / "digits")


@pytest.fixture
def page(workspace: Workspace) -> Iterator[TestClient]:
    with TestClient(review_app(workspace)) as client:
        yield client
