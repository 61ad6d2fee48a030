"""Confidence of the categories of images, similar categories, and what a person should review first."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from camp.app.workspace.knowledge import CLUSTERED, DISCARDED, LABELLED, Knowledge, count
from camp.core.errors import CampError
from camp.core.seeds import seed_of
from camp.core.types import FALSE_ALARMS
from camp.discovery.calibration import CategoryRegions, fit_regions

_CHUNK = 4096
DOUBT = 0.9
"""An image is doubtful if its own category is less probable than this, or if it lies beyond the category's radius."""


@dataclass(frozen=True)
class Need:
    """How much a category needs review, categories with greater scores first, and why."""

    score: float
    reason: str


@dataclass(frozen=True)
class Overview:
    """What the distances of images to the centroids say."""

    ids: tuple[int, ...]
    """The K live categories that have images, sorted."""
    regions: CategoryRegions
    confidence: np.ndarray
    """(n,) float32 probability of the image's own category; 0 for discarded images."""
    runner_up: np.ndarray
    """(n,) int32 id of the most probable other category, or DISCARDED."""
    distance: np.ndarray
    """(n,) float32 distance to the own centroid, in radii; infinite for discarded images."""
    similar: tuple[tuple[int, int, float], ...]
    """Pairs of categories whose centroids lie within their radii: (id, id, distance in mean radii), nearest first."""

    def doubtful(self) -> np.ndarray:
        """Return which images are doubtful: (n,) bool."""
        return (self.confidence < DOUBT) | (self.distance > 1)


def category_regions(
    knowledge: Knowledge, false_alarms: float = FALSE_ALARMS
) -> tuple[tuple[int, ...], CategoryRegions]:
    """Return the ids of the live categories with images, and their regions.

    About the share `false_alarms` of new images of these categories lies outside of them.
    """
    ids = tuple(id for id, count in knowledge.counts().items() if count)
    if not ids:
        raise CampError("No category has any picture; learn a batch, or undo what was discarded.")
    rows = np.flatnonzero(knowledge.images.category != DISCARDED)
    points = knowledge.images.points[rows]
    positions = np.searchsorted(ids, knowledge.images.category[rows])
    fitted = metric_labels(knowledge)[rows]
    metric, calibration = knowledge.metric, knowledge.calibration
    return ids, fit_regions(points, positions, fitted, metric, calibration, len(ids), false_alarms)


def metric_labels(knowledge: Knowledge) -> npt.NDArray[np.bool_]:
    """Return whether the category of each image (n,) was a label when the metric was fitted.

    Those are all images of earlier steps, and of the last step those that came with a label.
    """
    images = knowledge.images
    fitted: npt.NDArray[np.bool_] = (images.steps != knowledge.step) | (images.source == LABELLED)
    return fitted


def overview(knowledge: Knowledge) -> Overview:
    """Compute the overview of all images; a few matrix products."""
    category = knowledge.images.category
    n, width = knowledge.images.points.shape
    confidence, distance = np.zeros(n, dtype=np.float32), np.full(n, np.inf, dtype=np.float32)
    runner_up = np.full(n, DISCARDED, dtype=np.int32)
    if not any(knowledge.counts().values()):  # every image was discarded
        nothing = CategoryRegions(np.zeros((0, width), np.float32), np.zeros(0, np.float32), 1.0)
        return Overview((), nothing, confidence, runner_up, distance, ())
    ids, regions = category_regions(knowledge)
    centroids = regions.centroids
    ratios = knowledge.calibration.ratios(metric_labels(knowledge)).astype(np.float32)
    for start in range(0, n, _CHUNK):
        part = slice(start, start + _CHUNK)
        d = _squared_distances(knowledge.images.points[part], centroids)
        kept, rows = category[part] != DISCARDED, np.arange(len(d))
        own = np.searchsorted(ids, category[part]).clip(0, len(ids) - 1)
        # The image itself was used to fit the metric and its centroid.
        d[rows, own] *= ratios[part] ** 2
        confidence[part] = np.where(kept, _softmax(-d / regions.temperature)[rows, own], 0.0)
        distance[part] = np.where(kept, np.sqrt(d[rows, own]) / regions.radii[own], np.inf)
        if len(ids) > 1:
            d[rows, own] = np.inf
            runner_up[part] = np.array(ids, dtype=np.int32)[d.argmin(axis=1)]
    similar = _similar(ids, regions, knowledge.distinct)
    return Overview(ids, regions, confidence, runner_up, distance, similar)


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return |a - b|^2 (n, m) by a matrix product: the last digits do not matter here."""
    squares: np.ndarray = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2 * a @ b.T
    np.maximum(squares, 0, out=squares)
    return squares


def _softmax(x: np.ndarray) -> np.ndarray:
    powers: np.ndarray = np.exp(x - x.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def _similar(
    ids: tuple[int, ...], regions: CategoryRegions, distinct: frozenset[tuple[int, int]]
) -> tuple[tuple[int, int, float], ...]:
    """Find pairs, except `distinct` ones, that are within their mean radius and much nearer than most pairs."""
    radii = regions.radii
    if len(ids) < 2 or not np.isfinite(radii).all():
        return ()
    centroids = regions.centroids.astype(np.float64)
    apart = np.sqrt(_squared_distances(centroids, centroids)) / ((radii[:, None] + radii) / 2)
    upper = np.triu(np.ones_like(apart, dtype=np.bool_), k=1)
    limit = 0.6 * float(np.quantile(apart[upper], 0.5, method="lower"))
    pairs = np.argwhere((apart < min(limit, 1.0)) & upper).tolist()
    found = [(ids[a], ids[b], float(apart[a, b])) for a, b in pairs]
    found = [pair for pair in found if pair[:2] not in distinct]
    return tuple(sorted(found, key=lambda pair: pair[2]))


def most_typical(knowledge: Knowledge, seen: Overview, id: int) -> np.ndarray:
    """Return the rows of a category, the most typical first."""
    rows = knowledge.rows_of(id)
    return rows[np.argsort(seen.distance[rows], kind="stable")]


def most_doubtful(knowledge: Knowledge, seen: Overview, id: int) -> np.ndarray:
    """Return the rows of a category, the most doubtful first; labelled and reviewed images come last."""
    rows = knowledge.rows_of(id)
    trusted = knowledge.images.source[rows] != CLUSTERED
    return rows[np.lexsort((-seen.distance[rows], seen.confidence[rows], trusted))]


def needs(knowledge: Knowledge, seen: Overview) -> dict[int, Need]:
    """Rate how much each live category needs review: unnamed ones by size, then similar and doubtful ones."""
    doubtful, trusted = seen.doubtful(), knowledge.images.source != CLUSTERED
    partners: dict[int, int] = {}
    for a, b, _ in seen.similar:
        partners.setdefault(a, b)
        partners.setdefault(b, a)
    found = {}
    for category in knowledge.live():
        rows = knowledge.rows_of(category.id)
        count = len(rows)
        if not count:
            found[category.id] = Need(0.0, "has no pictures")
            continue
        doubts = int((doubtful[rows] & ~trusted[rows]).sum())
        reasons, score = [], doubts / count
        if category.name is None:
            reasons.append("has no name")
            score += 2 + np.log10(count)
        if category.id in partners:
            reasons.append(f"looks like {knowledge.categories[partners[category.id]].title}")
            score += 1
        if doubts:
            reasons.append(f"{doubts} of {count} pictures are doubtful")
        found[category.id] = Need(float(score), "; ".join(reasons) or "looks settled")
    return found


def halves(knowledge: Knowledge, id: int) -> np.ndarray:
    """Split a category in two by k-means and return the rows of the half that would leave it.

    The half with more labelled images stays; without labels the larger one does.
    """
    from sklearn.cluster import KMeans  # takes long to import, and `camp status` needs no clustering

    rows = knowledge.rows_of(id)
    title = knowledge.category(id).title
    if len(rows) < 2:
        raise CampError(f"{title} has {count(len(rows), 'picture')} and cannot be split in two.")
    points = knowledge.images.points[rows]
    side = KMeans(2, n_init=10, random_state=seed_of(0, "halves", id) % 2**32).fit(points).labels_
    if side.min() == side.max():
        raise CampError(f"The pictures of {title} are all alike; there is nothing to split.")
    trusted = knowledge.images.source[rows] != CLUSTERED
    claims = [(int(trusted[side == which].sum()), int((side == which).sum())) for which in (0, 1)]
    leaves: np.ndarray = rows[side == claims.index(min(claims))]
    return leaves
