"""Small pictures of representatives."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from camp.app.workspace.storage import WorkspaceSettings
from camp.app.workspace.thumbnails import (
    SIDE,
    ThumbnailReader,
    encode_thumbnail,
    representatives,
    save_thumbnail,
)
from camp.core.errors import CampError
from camp.data.datasets.base import FileReader
from camp.data.images import image_digest


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
    save_thumbnail(encode_thumbnail(picture), tmp_path / "ab" / "thumbnail.jpg")
    assert picture.size == size  # whoever gave it may go on with it
    with Image.open(tmp_path / "ab" / "thumbnail.jpg") as saved:
        assert saved.format == "JPEG"
        assert saved.size == expected
    assert [path.name for path in (tmp_path / "ab").iterdir()] == ["thumbnail.jpg"]


def test_few_pixels_are_not_blurred(tmp_path: Path) -> None:
    board = np.indices((6, 6)).sum(axis=0) % 2 * 255
    save_thumbnail(
        encode_thumbnail(Image.fromarray(board.astype(np.uint8)).convert("RGB")), tmp_path / "board.jpg"
    )
    pixels = np.asarray(Image.open(tmp_path / "board.jpg").convert("L"))
    assert (np.abs(pixels.astype(int) - 128) > 100).mean() > 0.95


def test_a_place_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "ab").write_text("a file where the folder should be")
    with pytest.raises(CampError, match="Could not write"):
        save_thumbnail(encode_thumbnail(Image.new("RGB", (8, 8))), tmp_path / "ab" / "thumbnail.jpg")


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


class Folder:
    """Storage of thumbnails alone."""

    def __init__(self, path: Path, thumbnails: int) -> None:
        self.path, self.settings = path, WorkspaceSettings(thumbnails=thumbnails)

    def thumbnail(self, digest: bytes) -> Path:
        return self.path / f"{digest.hex()}.jpg"


@pytest.mark.parametrize("kept", [0, 5])
def test_images_that_were_decoded_are_not_read_again(tmp_path: Path, kept: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 200, 300, 3), dtype=np.uint8)
    for name, image in zip("ab", pixels):
        Image.fromarray(image).save(tmp_path / f"{name}.png")
    reader = ThumbnailReader(FileReader(tmp_path), Folder(tmp_path, kept))
    data = [reader.read(f"{name}.png") for name in "ab"]
    assert np.array_equal(np.asarray(reader.decode(data[0])), pixels[0])  # what the trunk gets
    for name in "ab":
        (tmp_path / f"{name}.png").unlink()
    made = [reader.thumbnail(f"{name}.png", image_digest(each)) for name, each in zip("ab", data)]
    assert made == [encode_thumbnail(Image.fromarray(pixels[0])) if kept else None, None]


def test_other_images_are_read_for_their_thumbnail(tmp_path: Path) -> None:
    image = Image.new("RGB", (300, 200), "teal")
    image.save(tmp_path / "a.png")
    reader = ThumbnailReader(FileReader(tmp_path), Folder(tmp_path, 5))
    assert reader.thumbnail("a.png", bytes(16)) == encode_thumbnail(image)
