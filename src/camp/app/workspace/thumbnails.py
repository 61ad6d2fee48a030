"""Thumbnails of representative images, kept in the workspace so that the review page needs no batch."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

from camp.app.workspace.learning import LearnedBatch
from camp.app.workspace.overview import most_doubtful, most_typical
from camp.app.workspace.storage import Storage
from camp.core.files import atomic_write, sync_folder
from camp.core.parallel import threaded_map
from camp.core.progress import Progress
from camp.data.datasets.base import Reader
from camp.data.images import UnreadableImageError

SIDE = 144


@contextlib.contextmanager
def new_thumbnails(
    storage: Storage, learned: LearnedBatch, reader: Reader, progress: Progress
) -> Iterator[None]:
    """Write thumbnails of the batch's representatives; new files are removed unless the block stores the batch."""
    images, written = learned.step.knowledge.images, list[Path]()
    first = len(images) - len(learned.keys)

    def write(row: int) -> None:
        path = storage.thumbnail(images.digests[row])
        if path is None or path.exists():
            return
        # An image that was removed since it was learned has no thumbnail.
        with contextlib.suppress(UnreadableImageError, OSError):
            image = reader.decode(reader.read(learned.keys[row - first]), min_size=SIDE)
            if isinstance(image, Image.Image):
                written.append(path)
                save_thumbnail(image, path)

    try:
        if storage.thumbnail(bytes(16)) is not None and storage.settings.thumbnails:
            rows = _representative_rows(learned, storage.settings.thumbnails)
            with progress.track("Thumbnails", len(rows)) as bar:
                for _ in threaded_map(write, rows):
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


def _representative_rows(learned: LearnedBatch, count: int) -> list[int]:
    """Return rows of at most `count` images of each category of the batch."""
    knowledge, seen = learned.step.knowledge, learned.overview
    mine = knowledge.images.steps == knowledge.step
    rows: list[int] = []
    for category in learned.step.report.categories:
        doubtful = most_doubtful(knowledge, seen, category.id)
        typical = most_typical(knowledge, seen, category.id)
        rows += representatives(doubtful[mine[doubtful]].tolist(), typical[mine[typical]].tolist(), count)
    return rows


def save_thumbnail(image: Image.Image, path: Path) -> None:
    """Write `image` as a JPEG of at most SIDE pixels a side."""
    if max(image.size) < SIDE // 2:  # few pixels are enlarged without blur
        scale = SIDE // max(image.size)
        size = (image.width * scale, image.height * scale)
        image = image.resize(size, Image.Resampling.NEAREST)
    else:
        image = image.copy()
        image.thumbnail((SIDE, SIDE))
    with atomic_write(path, sync_entry=False) as file:  # many at a time, whose folders are synced once
        image.save(file, format="JPEG", quality=80)


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
