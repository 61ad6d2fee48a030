"""Thumbnails of representative images, kept in the workspace so that the review page needs no batch."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from camp.app.workspace.overview import most_doubtful, most_typical
from camp.app.workspace.storage import Storage
from camp.core.files import atomic_write, sync_folder
from camp.core.parallel import threaded_map
from camp.core.progress import Progress
from camp.data.datasets.base import Reader
from camp.data.images import UnreadableImageError, image_digest

if TYPE_CHECKING:
    from camp.app.workspace.learning import LearnedBatch

SIDE = 144
"""Number of pixels of the longer side."""
MAX_IN_MEMORY = 20_000
"""Thumbnails that are kept in memory until representatives are known; about 5 KB each."""
_REDUCING_GAP = 1.5
"""Pillow first reduces an image by an integer factor to at least this many times the size, which is faster."""
_WRITING_THREADS = 16
"""Syncs that wait together take hardly longer than one."""


class ThumbnailReader:
    """Reader that makes thumbnails of the first images that it decodes, if `storage` keeps thumbnails.

    They need not be decoded a second time when it is known which images are representative.
    """

    def __init__(self, reader: Reader, storage: Storage) -> None:
        self.reader = reader
        self._made: dict[bytes, bytes] = {}
        self._most = MAX_IN_MEMORY if _keeps_thumbnails(storage) else 0

    def read(self, key: str) -> bytes:
        """Return the bytes of image `key`."""
        return self.reader.read(key)

    def decode(self, data: bytes, min_size: int | None = None) -> Image.Image | np.ndarray:
        """Decode the bytes to an RGB image or a vector."""
        image = self.reader.decode(data, min_size)
        if isinstance(image, Image.Image) and len(self._made) < self._most:
            self._made[image_digest(data)] = encode_thumbnail(image)
        return image

    def thumbnail(self, key: str, digest: bytes) -> bytes | None:
        """Return the thumbnail of image `key`, a JPEG file; None if it cannot be read any more, or is a vector."""
        if digest in self._made:
            return self._made[digest]
        with contextlib.suppress(UnreadableImageError, OSError):
            image = self.reader.decode(self.reader.read(key), min_size=SIDE)
            return encode_thumbnail(image) if isinstance(image, Image.Image) else None
        return None


@contextlib.contextmanager
def new_thumbnails(
    storage: Storage, learned: "LearnedBatch", reader: ThumbnailReader, progress: Progress
) -> Iterator[None]:
    """Write thumbnails of the batch's representatives; new files are removed unless the block stores the batch."""
    images, written = learned.step.knowledge.images, list[Path]()
    first = len(images) - len(learned.keys)

    def write(row: int) -> None:
        digest = bytes(images.digests[row])
        path = storage.thumbnail(digest)
        if path is None or path.exists():
            return
        thumbnail = reader.thumbnail(learned.keys[row - first], digest)
        if thumbnail is not None:
            written.append(path)
            save_thumbnail(thumbnail, path)

    try:
        if _keeps_thumbnails(storage):
            rows = _representative_rows(learned, storage.settings.thumbnails)
            with progress.track("Thumbnails", len(rows)) as bar:
                for _ in threaded_map(write, rows, threads=_WRITING_THREADS):
                    bar.advance()
        for folder in sorted({path.parent for path in written if path.exists()}):
            sync_folder(folder)
        yield
    except BaseException:
        if storage.holds(learned.step):  # the interruption came too late
            raise
        for path in written:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise


def _keeps_thumbnails(storage: Storage) -> bool:
    return bool(storage.settings.thumbnails) and storage.thumbnail(bytes(16)) is not None


def _representative_rows(learned: "LearnedBatch", count: int) -> list[int]:
    """Return rows of at most `count` images of each category of the batch."""
    knowledge, seen = learned.step.knowledge, learned.overview
    mine = knowledge.images.steps == knowledge.step
    rows: list[int] = []
    for category in learned.step.report.categories:
        doubtful = most_doubtful(knowledge, seen, category.id)
        typical = most_typical(knowledge, seen, category.id)
        rows += representatives(doubtful[mine[doubtful]].tolist(), typical[mine[typical]].tolist(), count)
    return rows


def encode_thumbnail(image: Image.Image) -> bytes:
    """Return a JPEG file of at most SIDE pixels a side."""
    if max(image.size) < SIDE // 2:  # few pixels are enlarged without blur
        scale = SIDE // max(image.size)
        size = (image.width * scale, image.height * scale)
        image = image.resize(size, Image.Resampling.NEAREST)
    else:
        image = image.copy()
        image.thumbnail((SIDE, SIDE), reducing_gap=_REDUCING_GAP)
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=80)
    return file.getvalue()


def save_thumbnail(jpeg: bytes, path: Path) -> None:
    """Write a thumbnail; its folder is not synced, as many are written at a time."""
    with atomic_write(path, sync_entry=False) as file:
        file.write(jpeg)


def representatives(doubtful_first: Sequence[int], typical_first: Sequence[int], count: int) -> list[int]:
    """Return at most `count` rows: half of them the most typical ones, the rest the most doubtful.

    >>> representatives([4, 3, 2, 1], [1, 2, 3, 4], 3)
    [1, 2, 4]
    """
    if count >= len(typical_first):
        return sorted(typical_first)
    typical = set(typical_first[: -(-count // 2)])
    doubtful = [row for row in doubtful_first if row not in typical]
    return sorted([*typical, *doubtful[: count - len(typical)]])
