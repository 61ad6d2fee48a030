"""Small pictures of representatives."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from camp.app.workspace.thumbnails import SIDE, representatives, save_thumbnail
from camp.core.errors import CampError


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((1000, 500), (SIDE, SIDE // 2)),
        ((500, 1000), (SIDE // 2, SIDE)),
        ((SIDE, SIDE), (SIDE, SIDE)),
        ((100, 90), (100, 90)),
        ((8, 8), (SIDE, SIDE)),
        ((8, 4), (SIDE, SIDE // 2)),
        ((1, 1), (SIDE, SIDE)),
    ],
)
def test_their_size(tmp_path: Path, size: tuple[int, int], expected: tuple[int, int]) -> None:
    picture = Image.new("RGB", size, "teal")
    save_thumbnail(picture, tmp_path / "ab" / "thumbnail.jpg")
    assert picture.size == size  # whoever gave it may go on with it
    with Image.open(tmp_path / "ab" / "thumbnail.jpg") as saved:
        assert saved.format == "JPEG"
        assert saved.size == expected
    assert [path.name for path in (tmp_path / "ab").iterdir()] == ["thumbnail.jpg"]


def test_few_pixels_are_not_blurred(tmp_path: Path) -> None:
    board = np.indices((6, 6)).sum(axis=0) % 2 * 255
    save_thumbnail(Image.fromarray(board.astype(np.uint8)).convert("RGB"), tmp_path / "board.jpg")
    pixels = np.asarray(Image.open(tmp_path / "board.jpg").convert("L"))
    assert (np.abs(pixels.astype(int) - 128) > 100).mean() > 0.95


def test_a_place_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "ab").write_text("a file where the folder should be")
    with pytest.raises(CampError, match="Could not write"):
        save_thumbnail(Image.new("RGB", (8, 8)), tmp_path / "ab" / "thumbnail.jpg")


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, []), (1, [10]), (2, [10, 15]), (3, [10, 11, 15]), (4, [10, 11, 14, 15]), (6, [10, 11, 12, 13, 14, 15])],
)  # fmt: skip
def test_half_typical_half_doubtful(count: int, expected: list[int]) -> None:
    typical = [10, 11, 12, 13, 14, 15]
    assert representatives(typical[::-1], typical, count) == expected


def test_a_picture_that_is_both_counts_once() -> None:
    assert representatives([1, 2, 3, 4], [1, 2, 3, 4], 3) == [1, 2, 3]
    assert representatives([5], [5], 100) == [5]
    assert representatives([], [], 4) == []
