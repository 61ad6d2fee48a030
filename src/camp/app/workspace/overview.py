"""Confidence of the categories of images, similar categories, and what a person should review first."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from sklearn.cluster import KMeans

from camp.app.workspace.knowledge import CLUSTERED, DISCARDED, LABELLED, Knowledge, count
from camp.core.errors import CampError
from camp.core.large_arrays import copy_rows
from camp.core.progress import Progress
from camp.core.seeds import seed_of
from camp.core.types import FALSE_ALARMS
from camp.discovery.calibration import fit_open_set, with_radii
from camp.discovery.open_set import OpenSet

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
    classifier: OpenSet
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
        classifier = self.classifier
        return {
            "ids": np.array(self.ids, dtype=np.int64),
            "centroids": classifier.centroids.numpy(),
            "radii": classifier.radii.numpy(),
            "temperature": np.array([classifier.temperature]),
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


def fit_classifier(
    knowledge: Knowledge, false_alarms: float = FALSE_ALARMS
) -> tuple[tuple[int, ...], OpenSet]:
    """Return the ids of the live categories with images, and the classifier of their images.

    It calls about the share `false_alarms` of new images of these categories unknown.
    """
    ids = tuple(id for id, count in knowledge.counts().items() if count)
    if not ids:
        raise CampError("No category has any picture; learn a batch, or undo what was discarded.")
    images, rows = knowledge.images, np.flatnonzero(knowledge.images.category != DISCARDED)
    points = torch.from_numpy(images.points if len(rows) == len(images) else copy_rows(images.points, rows))
    positions = torch.from_numpy(np.searchsorted(ids, images.category[rows]))
    fitted = metric_labels(knowledge)[rows]
    metric, calibration = knowledge.metric, knowledge.calibration
    return ids, fit_open_set(points, positions, fitted, metric, calibration, len(ids), false_alarms)


def _centroids(knowledge: Knowledge, rows: np.ndarray, ids: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the centroids (K, d) of the categories `ids`, whose images `rows` are, and `Overview.own` of these images."""
    images, metric = knowledge.images, knowledge.metric
    everything = len(rows) == len(images)
    points = torch.from_numpy(images.points if everything else copy_rows(images.points, rows))
    positions = torch.from_numpy(np.searchsorted(ids, images.category[rows]))
    ratios = knowledge.calibration.ratios(metric_labels(knowledge)[rows])
    own = ratios * metric.leave_one_out_distances(points, positions, len(ids))
    return metric.centroids(points, positions, len(ids)), own


def metric_labels(knowledge: Knowledge) -> torch.Tensor:
    """Return whether the category of each image (n,) was a label when the metric was fitted.

    Those are all images of earlier steps, and of the last step those that came with a label.
    """
    images = knowledge.images
    return torch.from_numpy((images.steps != knowledge.step) | (images.source == LABELLED))


def overview(knowledge: Knowledge, progress: Progress | None = None) -> Overview:
    """Compute the overview of all images; a few matrix products."""
    images = knowledge.images
    n, width = images.points.shape
    if not any(knowledge.counts().values()):  # every image was discarded
        nothing = OpenSet(torch.zeros(0, width), torch.zeros(0), 1.0)
        return _assemble((), nothing, _nothing(n), knowledge)
    ids = np.array([id for id, count in knowledge.counts().items() if count])
    rows = np.flatnonzero(images.category != DISCARDED)
    centroids, of_kept = _centroids(knowledge, rows, ids)
    positions = torch.from_numpy(np.searchsorted(ids, images.category[rows]))
    classifier = with_radii(centroids, of_kept, positions, knowledge.calibration)
    found = _nothing(n)
    found.own[rows] = of_kept.numpy()
    _measure(knowledge, ids, classifier, np.arange(n), found, progress or Progress(quiet=True))
    return _assemble(tuple(ids.tolist()), classifier, found, knowledge)


def restored(state: Mapping[str, np.ndarray], knowledge: Knowledge) -> Overview:
    """Return the overview of `knowledge` that `state` was taken of."""
    centroids, radii = (torch.from_numpy(np.array(state[name])) for name in ("centroids", "radii"))
    classifier = OpenSet(centroids, radii, float(state["temperature"][0]))
    found = _Measured(*(state[name] for name in ("confidence", "runner_up", "own", "near")))
    return _assemble(tuple(state["ids"].tolist()), classifier, found, knowledge)


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
    changed = (old != new) | (metric_labels(earlier) != metric_labels(now)).numpy()
    if not changed.any():
        return replace(before, similar=_similar(before.ids, before.classifier, now.distinct))
    affected = np.union1d(old[changed], new[changed])
    affected = affected[affected != DISCARDED]
    rows = np.flatnonzero(np.isin(new, affected))
    ids = np.array([id for id, count in now.counts().items() if count])
    if not len(rows) or not len(ids) or not before.ids:
        return overview(now)
    local = np.unique(new[rows])
    centroids, own = _centroids(now, rows, local)
    all_centroids = centroids.new_empty(len(ids), centroids.shape[1])
    stays = ~np.isin(ids, local)
    all_centroids[torch.from_numpy(stays)] = before.classifier.centroids[
        np.searchsorted(before.ids, ids[stays])
    ]
    all_centroids[torch.from_numpy(~stays)] = centroids
    found = _Measured(
        before.confidence.copy(), before.runner_up.copy(), before.own.copy(), before.near.copy()
    )
    found.own[rows] = own.numpy()
    found.own[new == DISCARDED] = np.nan
    kept = np.flatnonzero(new != DISCARDED)
    positions = torch.from_numpy(np.searchsorted(ids, new[kept]))
    classifier = with_radii(all_centroids, torch.from_numpy(found.own[kept]), positions, now.calibration)
    again = np.flatnonzero(changed | np.isin(new, affected) | np.isin(before.runner_up, affected))
    _measure(now, ids, classifier, again, found, Progress(quiet=True))
    return _assemble(tuple(ids.tolist()), classifier, found, now)


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
    classifier: OpenSet,
    rows: np.ndarray,
    found: _Measured,
    progress: Progress,
) -> None:
    """Set confidence, runner-up and distance of the images `rows`, a block at a time."""
    category, centroids = knowledge.images.category, classifier.centroids
    ratios = knowledge.calibration.ratios(metric_labels(knowledge))
    with progress.track("Measuring confidences", len(rows)) as bar:
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            points = torch.from_numpy(np.asarray(knowledge.images.points[part]))
            # |z - p|^2 by a matrix product: the last digits do not matter here.
            norms = points.square().sum(dim=1, keepdim=True)
            d = (norms + centroids.square().sum(dim=1) - 2 * points @ centroids.T).clamp_min_(0)
            kept = torch.from_numpy(category[part] != DISCARDED)
            at = torch.from_numpy(np.searchsorted(ids, category[part]).clip(0, len(ids) - 1))[:, None]
            # The image itself was used to fit the metric and its centroid.
            d.scatter_(1, at, ratios[part, None] ** 2 * d.gather(1, at))
            p = torch.softmax(-d / classifier.temperature, dim=1)
            found.confidence[part] = torch.where(kept, p.gather(1, at)[:, 0], 0.0)
            found.near[part] = torch.where(kept, d.gather(1, at)[:, 0].sqrt(), torch.inf)
            if len(ids) > 1:
                others = d.scatter(1, at, torch.inf).argmin(dim=1)
                found.runner_up[part] = ids.astype(np.int32)[others]
            bar.advance(len(part))


def _assemble(ids: tuple[int, ...], classifier: OpenSet, found: _Measured, knowledge: Knowledge) -> Overview:
    """Make the overview of what was measured."""
    distance = np.full(len(found.near), np.inf, dtype=np.float32)
    kept = knowledge.images.category != DISCARDED
    if ids:
        positions = np.searchsorted(ids, knowledge.images.category[kept])
        distance[kept] = found.near[kept] / classifier.radii.numpy()[positions]
    similar = _similar(ids, classifier, knowledge.distinct)
    return Overview(
        ids, classifier, found.confidence, found.runner_up, distance, found.own, found.near, similar
    )


def _similar(
    ids: tuple[int, ...], classifier: OpenSet, distinct: frozenset[tuple[int, int]]
) -> tuple[tuple[int, int, float], ...]:
    """Find pairs, except `distinct` ones, that are within their mean radius and much nearer than most pairs."""
    if len(ids) < 2 or not bool(classifier.radii.isfinite().all()):
        return ()
    distances = torch.cdist(classifier.centroids, classifier.centroids)
    apart = distances / ((classifier.radii[:, None] + classifier.radii) / 2)
    upper = torch.triu(torch.ones_like(apart, dtype=torch.bool), diagonal=1)
    limit = 0.6 * float(apart[upper].median())
    pairs = ((apart < min(limit, 1.0)) & upper).nonzero().tolist()
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
