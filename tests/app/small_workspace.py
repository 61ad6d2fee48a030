"""A workspace of scikit-learn's digits as two batches would leave it, without any training."""

import functools
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from camp.app.workspace.knowledge import CLUSTERED, LABELLED, Category, Images, Knowledge
from camp.app.workspace.overview import overview
from camp.app.workspace.report import BatchReport, CategoryReport, CategoryShift, Seconds
from camp.app.workspace.step_files import Step
from camp.app.workspace.storage import FolderStorage, WorkspaceSettings
from camp.app.workspace.thumbnails import encode_thumbnail, save_thumbnail
from camp.app.workspace.workspace import Workspace
from camp.discovery.calibration import Calibration
from camp.discovery.class_metric import ClassMetric

NAMES = ("nought", "one", "two", "three")
"""Categories 1 to 4 came with labels; 5 to 8 hold the digits 4 to 7; 9 and 10 each hold half of the eights."""

FIRST = 5
"""Categories of the first batch."""


@functools.cache
def _digits(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pictures (n, 8, 8), digits (n,), features (n, 16) and map positions (n, 2) of the digits 0 to 8."""
    data = load_digits()
    rows = np.flatnonzero(data.target < 9)[:count]
    features = PCA(16, random_state=0).fit_transform(data.data[rows] / 4)
    return data.images[rows], data.target[rows], features, PCA(2, random_state=0).fit_transform(features)


def small_workspace(path: Path, count: int = 400, thumbnails: bool = True) -> Workspace:
    """Two learning steps over `count` digits: 10 categories, 4 of them with names; 9 and 10 are one kind."""
    images, digits, features, positions = _digits(count)
    category = digits + 1
    eights = np.flatnonzero(digits == 8)
    category[eights[len(eights) // 2 :]] = 10
    source = np.where((digits < len(NAMES)) & (np.arange(len(digits)) % 3 == 0), LABELLED, CLUSTERED)
    step = np.where(category <= FIRST, 1, 2)
    order = np.argsort(step, kind="stable")
    images, step, category = images[order], step[order], category[order]
    workspace = Workspace.create(path, WorkspaceSettings())
    for number in (1, 2):
        part = slice(0, int((step <= number).sum()))
        rows = order[part]
        table = Images(
            files=[f"digits/{row:04d}.png" for row in rows],
            digests=np.array([[*row.to_bytes(8, "big"), *bytes(8)] for row in rows.tolist()], dtype=np.uint8),
            steps=step[part].astype(np.int32),
            category=category[part].astype(np.int32),
            source=source[rows].astype(np.uint8),
            features=features[rows].astype(np.float16),
            points=features[rows].astype(np.float32),
            positions=positions[rows].astype(np.float32),
        )
        as_it_is = ClassMetric(
            np.zeros(16, np.float32), np.eye(16, dtype=np.float32), np.zeros(16, np.float32), unit=False
        )
        known = Knowledge(
            number, _categories(np.unique(table.category)), table, as_it_is, Calibration(1.0, 20.0)
        )
        with workspace.storage.lock():
            if thumbnails:
                for image, digest in zip(images[step == number], table.digests[table.steps == number]):
                    picture = Image.fromarray((255 - image * 15).astype(np.uint8)).convert("RGB")
                    save_thumbnail(encode_thumbnail(picture), FolderStorage.open(path).thumbnail(digest))
            workspace.add_step(Step(known, {}, _report(known), trunk="none"))
    return workspace


def _categories(ids: np.ndarray) -> dict[int, Category]:
    def one(id: int) -> Category:
        step = 1 if id <= FIRST else 2
        if id <= len(NAMES):
            return Category(id, NAMES[id - 1], step, "labelled")
        return Category(id, None, step, "discovered")

    return {id: one(id) for id in ids.tolist()}


def _report(known: Knowledge) -> BatchReport:
    new = [
        id for id, one in known.categories.items() if one.step == known.step and one.origin == "discovered"
    ]
    counts, mine = known.counts(), known.images.steps == known.step
    seen = overview(known)
    return BatchReport(
        step=known.step,
        time=f"2026-0{known.step}-03T10:00:00+00:00",
        folder=("january", "february")[known.step - 1],
        n_images=int(mine.sum()),
        n_labelled=int((known.images.source[mine] == LABELLED).sum()),
        unreadable=known.step - 1,
        repeated=2,
        n_new=len(new),
        curve=[(k, 0.9 - 0.02 * abs(k - len(new))) for k in range(9)],
        categories=[
            CategoryReport(
                id=id,
                name=known.categories[id].name,
                n_images=counts[id],
                kind="discovered" if id in new else "known",
            )
            for id in counts
        ],
        drift=[CategoryShift(id, 0.3 * id) for id in counts if known.categories[id].step < known.step],
        doubtful=int(seen.doubtful().sum()),
        confidence=float(seen.confidence.mean()),
        epochs=10,
        views=2,
        seconds=Seconds(total=12.5),
        remarks=["1 file could not be read: digits/broken.png."] if known.step == 2 else [],
    )
