"""Small pictures of representatives, kept in the workspace so that a page needs no batch."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from camp.core.files import replacing

SIDE = 144


def save_thumbnail(picture: Image.Image, path: Path) -> None:
    """Write `picture` as a JPEG of at most SIDE pixels a side."""
    if max(picture.size) < SIDE // 2:  # a raster of few pixels is enlarged as it is, not blurred
        scale = SIDE // max(picture.size)
        size = (picture.width * scale, picture.height * scale)
        picture = picture.resize(size, Image.Resampling.NEAREST)
    else:
        picture = picture.copy()
        picture.thumbnail((SIDE, SIDE))
    with replacing(path) as file:
        picture.save(file, format="JPEG", quality=80)


def representatives(doubtful_first: Sequence[int], typical_first: Sequence[int], count: int) -> list[int]:
    """At most `count` rows: half of them the most typical ones, the rest the most doubtful.

    >>> representatives([4, 3, 2, 1], [1, 2, 3, 4], 3)
    [1, 2, 4]
    """
    if count >= len(typical_first):
        return sorted(int(row) for row in typical_first)
    chosen = dict.fromkeys(int(row) for row in typical_first[: -(-count // 2)])
    for row in doubtful_first:
        if len(chosen) == count:
            break
        chosen[int(row)] = None
    return sorted(chosen)
