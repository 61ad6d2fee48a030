"""Banks and data of a test's own."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits


@pytest.fixture(autouse=True)
def _own_banks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMP_BANKS", str(tmp_path / "banks"))


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A file of vectors: the pixels of the digits."""
    digits = load_digits()
    path = tmp_path / "digits.npz"
    np.savez(path, vectors=digits.data[:500].astype(np.float32) / 16, labels=digits.target[:500])
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of six classes, each of its own colour, with eight pictures to learn from and three for tests."""
    rng = np.random.default_rng(0)
    root = tmp_path / "pictures"
    for number in range(6):
        colour = rng.integers(40, 216, 3)
        for part, count in (("train", 8), ("test", 3)):
            for i in range(count):
                pixels = colour + rng.integers(-30, 31, (20, 24, 3))
                path = root / part / f"class {number}" / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return root
