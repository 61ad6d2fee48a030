"""View banks, data and finished runs that tests share."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from small_runs import DIGITS

import camp


@pytest.fixture(scope="session")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the view banks of all tests; a bank is known by its content."""
    return tmp_path_factory.mktemp("banks")


@pytest.fixture(autouse=True)
def _shared_banks(banks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMP_BANKS", str(banks))


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory, banks: Path) -> "camp.RunResult":
    """A finished run of CAMP on digits; tests read it and must not change it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAMP_BANKS", str(banks))
        return camp.run("digits", out=tmp_path_factory.mktemp("digits") / "run", **DIGITS)


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A file of vectors: the pixels of the digits."""
    digits = load_digits()
    path = tmp_path / "digits.npz"
    np.savez(path, vectors=digits.data[:500].astype(np.float32) / 16, labels=digits.target[:500])
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of six classes, each of its own colour, with eight training images and three test images."""
    rng = np.random.default_rng(0)
    root = tmp_path / "images"
    for number in range(6):
        colour = rng.integers(40, 216, 3)
        for part, count in (("train", 8), ("test", 3)):
            for i in range(count):
                pixels = colour + rng.integers(-30, 31, (20, 24, 3))
                path = root / part / f"class {number}" / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return root
