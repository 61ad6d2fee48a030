"""Confidence of the categories of images, similar categories, and what a person should review first."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from camp.app.workspace.knowledge import CLUSTERED, DISCARDED, LABELLED, Knowledge, count
from camp.core.errors import CampError
from camp.core.large_arrays import copy_rows
from camp.core.progress import Progress
from camp.core.seeds import seed_of
from camp.core.types import FALSE_ALARMS
from camp.discovery.calibration import CategoryRegions, fit_regions, with_radii

_CHUNK = 4096
LARGE = 50_000
"""The overview of more images is stored with a learning step, and only brought up to date after a decision."""
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
    own: np.ndarray
    """(n,) float64 distance to the centroid of the others of the category, calibrated; NaN where there are none."""
    near: np.ndarray
    """(n,) float32 distance to the own centroid, calibrated."""
    similar: tuple[tuple[int, int, float], ...]
    """Pairs of categories whose centroids lie within their radii: (id, id, distance in mean radii), nearest first."""

    def state(self) -> dict[str, np.ndarray]:
        """Return arrays for a file."""
        return {
            "ids": np.array(self.ids, dtype=np.int64),
            "centroids": self.regions.centroids,
            "radii": self.regions.radii,
            "temperature": np.array([self.regions.temperature]),
            "confidence": self.confidence,
            "runner_up": self.runner_up,
            "own": self.own,
            "near": self.near,
        }

    def subset(self, rows: np.ndarray) -> Self:
        """Return the overview of the images `rows`, among the same categories."""
        if len(rows) == len(self.confidence):
            return self
        names = ("confidence", "runner_up", "distance", "own", "near")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

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
    images, rows = knowledge.images, np.flatnonzero(knowledge.images.category != DISCARDED)
    points = images.points if len(rows) == len(images) else copy_rows(images.points, rows)
    positions = np.searchsorted(ids, images.category[rows])
    fitted = metric_labels(knowledge)[rows]
    metric, calibration = knowledge.metric, knowledge.calibration
    return ids, fit_regions(points, positions, fitted, metric, calibration, len(ids), false_alarms)


def _centroids(knowledge: Knowledge, rows: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the centroids (K, d) of the categories `ids`, whose images `rows` are, and `Overview.own` of these images."""
    images, metric = knowledge.images, knowledge.metric
    everything = len(rows) == len(images)
    points = images.points if everything else copy_rows(images.points, rows)
    positions = np.searchsorted(ids, images.category[rows])
    ratios = knowledge.calibration.ratios(metric_labels(knowledge)[rows])
    own = ratios * metric.leave_one_out_distances(points, positions, len(ids))
    return metric.centroids(points, positions, len(ids)), own


def metric_labels(knowledge: Knowledge) -> npt.NDArray[np.bool_]:
    """Return whether the category of each image (n,) was a label when the metric was fitted.

    Those are all images of earlier steps, and of the last step those that came with a label.
    """
    images = knowledge.images
    fitted: npt.NDArray[np.bool_] = (images.steps != knowledge.step) | (images.source == LABELLED)
    return fitted


def overview(knowledge: Knowledge, progress: Progress | None = None) -> Overview:
    """Compute the overview of all images; a few matrix products."""
    images = knowledge.images
    n, width = images.points.shape
    if not any(knowledge.counts().values()):  # every image was discarded
        nothing = CategoryRegions(np.zeros((0, width), np.float32), np.zeros(0, np.float32), 1.0)
        return _assemble((), nothing, _nothing(n), knowledge)
    ids = np.array([id for id, count in knowledge.counts().items() if count])
    rows = np.flatnonzero(images.category != DISCARDED)
    centroids, of_kept = _centroids(knowledge, rows, ids)
    positions = np.searchsorted(ids, images.category[rows])
    regions = with_radii(centroids, of_kept, positions, knowledge.calibration)
    found = _nothing(n)
    found.own[rows] = of_kept
    _measure(knowledge, ids, regions, np.arange(n), found, progress or Progress(quiet=True))
    return _assemble(tuple(ids.tolist()), regions, found, knowledge)


def restored(state: Mapping[str, np.ndarray], knowledge: Knowledge) -> Overview:
    """Return the overview of `knowledge` that `state` was taken of."""
    regions = CategoryRegions(
        np.array(state["centroids"]), np.array(state["radii"]), float(state["temperature"][0])
    )
    found = _Measured(*(state[name] for name in ("confidence", "runner_up", "own", "near")))
    return _assemble(tuple(state["ids"].tolist()), regions, found, knowledge)


def updated(before: Overview, earlier: Knowledge, now: Knowledge) -> Overview:
    """Return the overview after decisions; only images that these concern are measured again.

    Those are the images of the categories that have changed, and those whose most probable other category has changed. The
    probabilities of all others hardly depend on the categories that have.

    Args:
        before: The overview of `earlier`.
        earlier: Knowledge with the same images.
        now: Knowledge after the decisions.
    """
    old, new = earlier.images.category, now.images.category
    changed = (old != new) | (metric_labels(earlier) != metric_labels(now))
    if not changed.any():
        return replace(before, similar=_similar(before.ids, before.regions, now.distinct))
    affected = np.union1d(old[changed], new[changed])
    affected = affected[affected != DISCARDED]
    rows = np.flatnonzero(np.isin(new, affected))
    ids = np.array([id for id, count in now.counts().items() if count])
    if not len(rows) or not len(ids) or not before.ids:
        return overview(now)
    local = np.unique(new[rows])
    centroids, own = _centroids(now, rows, local)
    all_centroids = np.empty((len(ids), centroids.shape[1]), dtype=centroids.dtype)
    stays = ~np.isin(ids, local)
    all_centroids[stays] = before.regions.centroids[np.searchsorted(before.ids, ids[stays])]
    all_centroids[~stays] = centroids
    found = _Measured(
        before.confidence.copy(), before.runner_up.copy(), before.own.copy(), before.near.copy()
    )
    found.own[rows] = own
    found.own[new == DISCARDED] = np.nan
    kept = np.flatnonzero(new != DISCARDED)
    positions = np.searchsorted(ids, new[kept])
    regions = with_radii(all_centroids, found.own[kept], positions, now.calibration)
    again = np.flatnonzero(changed | np.isin(new, affected) | np.isin(before.runner_up, affected))
    _measure(now, ids, regions, again, found, Progress(quiet=True))
    return _assemble(tuple(ids.tolist()), regions, found, now)


@dataclass(frozen=True)
class _Measured:
    """Arrays (n,) of an overview."""

    confidence: np.ndarray
    runner_up: np.ndarray
    own: np.ndarray
    near: np.ndarray


def _nothing(n: int) -> _Measured:
    """Return what is said about images that were discarded."""
    return _Measured(
        confidence=np.zeros(n, dtype=np.float32),
        runner_up=np.full(n, DISCARDED, dtype=np.int32),
        own=np.full(n, np.nan),
        near=np.full(n, np.inf, dtype=np.float32),
    )


def _measure(
    knowledge: Knowledge,
    ids: np.ndarray,
    regions: CategoryRegions,
    rows: np.ndarray,
    found: _Measured,
    progress: Progress,
) -> None:
    """Set confidence, runner-up and distance of the images `rows`, a block at a time."""
    images = knowledge.images
    ratios = knowledge.calibration.ratios(metric_labels(knowledge)).astype(np.float32)
    with progress.track("Measuring confidences", len(rows)) as bar:
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            d = _squared_distances(np.asarray(images.points[part]), regions.centroids)
            kept, each = images.category[part] != DISCARDED, np.arange(len(d))
            own = np.searchsorted(ids, images.category[part]).clip(0, len(ids) - 1)
            # The image itself was used to fit the metric and its centroid.
            d[each, own] *= ratios[part] ** 2
            found.confidence[part] = np.where(kept, _softmax(-d / regions.temperature)[each, own], 0.0)
            found.near[part] = np.where(kept, np.sqrt(d[each, own]), np.inf)
            if len(ids) > 1:
                d[each, own] = np.inf
                found.runner_up[part] = ids.astype(np.int32)[d.argmin(axis=1)]
            bar.advance(len(part))


def _assemble(
    ids: tuple[int, ...], regions: CategoryRegions, found: _Measured, knowledge: Knowledge
) -> Overview:
    """Make the overview of what was measured."""
    distance = np.full(len(found.near), np.inf, dtype=np.float32)
    kept = knowledge.images.category != DISCARDED
    if ids:
        positions = np.searchsorted(ids, knowledge.images.category[kept])
        distance[kept] = found.near[kept] / regions.radii[positions]
    similar = _similar(ids, regions, knowledge.distinct)
    return Overview(ids, regions, found.confidence, found.runner_up, distance, found.own, found.near, similar)


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
    knowledge.images.index_categories()
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
