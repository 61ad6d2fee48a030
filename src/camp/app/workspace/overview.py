"""How sure the workspace is of each picture and category, and where a person is needed most."""

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.cluster import KMeans

from camp.app.workspace.knowledge import FOUND, LABEL, NOWHERE, Knowledge
from camp.core.errors import CampError
from camp.core.seeds import seed_of
from camp.discovery.calibration import fit_open_set
from camp.discovery.open_set import OpenSet

_CHUNK = 4096
DOUBT = 0.9
"""A picture is doubtful if its own category is less probable than this, or it lies beyond the category's radius. After three
months of CUB-200 (benchmarks/months.py) 88 of 602 unlabelled pictures were, 23 of the 39 wrong ones among them."""


@dataclass(frozen=True)
class Need:
    """Why a person should look at a category."""

    score: float
    """Greater: sooner."""
    reason: str


@dataclass(frozen=True)
class Overview:
    """Everything that can be said about the pictures from their distances to the centroids."""

    ids: tuple[int, ...]
    """The K live categories that have pictures, by id; positions below are places in this list."""
    classifier: OpenSet
    own: np.ndarray
    """(n,) float32 probability of the picture's own category; 0 for discarded pictures."""
    rival: np.ndarray
    """(n,) int32 id of the most probable other category, or NOWHERE."""
    distance: np.ndarray
    """(n,) float32 distance to its own centroid, in radii; infinite for discarded pictures."""
    alike: tuple[tuple[int, int, float], ...]
    """Pairs of ids whose centroids are nearer to each other than their radii say they should be: (a, b, distance
    in mean radii), the nearest first."""

    def doubtful(self) -> np.ndarray:
        """(n,) bool."""
        return (self.own < DOUBT) | (self.distance > 1)


def open_set_of(knowledge: Knowledge) -> tuple[tuple[int, ...], OpenSet]:
    """Ids of the live categories with pictures, and the classifier that their pictures make."""
    ids = tuple(id for id, count in knowledge.counts().items() if count)
    if not ids:
        raise CampError("No category has any picture; learn a batch, or undo what was discarded.")
    rows = np.flatnonzero(knowledge.pictures.category != NOWHERE)
    points = torch.from_numpy(knowledge.pictures.points[rows])
    positions = torch.from_numpy(np.searchsorted(ids, knowledge.pictures.category[rows]))
    fitted = metric_labels(knowledge)[rows]
    return ids, fit_open_set(points, positions, fitted, knowledge.metric, knowledge.sure, len(ids))


def metric_labels(knowledge: Knowledge) -> torch.Tensor:
    """(n,) bool: the category of the image was a label when the metric was fitted, at the last learning step.

    Those are all images of earlier steps, and of the last step those that came with a label.
    """
    pictures = knowledge.pictures
    return torch.from_numpy((pictures.steps != knowledge.step) | (pictures.told == LABEL))


def overview(knowledge: Knowledge) -> Overview:
    """Look at every picture; a few matrix products."""
    if not any(knowledge.counts().values()):
        return _nothing(knowledge)
    ids, classifier = open_set_of(knowledge)
    category, centroids = knowledge.pictures.category, classifier.centroids
    n = len(category)
    own, distance = np.zeros(n, dtype=np.float32), np.full(n, np.inf, dtype=np.float32)
    rival = np.full(n, NOWHERE, dtype=np.int32)
    ratios = knowledge.sure.ratios(metric_labels(knowledge))
    for start in range(0, n, _CHUNK):
        part = slice(start, start + _CHUNK)
        points = torch.from_numpy(knowledge.pictures.points[part])
        # |z - p|^2 by a matrix product: nobody decides by its last digits here.
        d = (
            points.square().sum(dim=1, keepdim=True)
            + centroids.square().sum(dim=1)
            - 2 * points @ centroids.T
        )
        d.clamp_min_(0)
        kept = torch.from_numpy(category[part] != NOWHERE)
        at = torch.from_numpy(np.searchsorted(ids, category[part]).clip(0, len(ids) - 1))[:, None]
        # A picture has pulled the metric and its centroid towards itself.
        d.scatter_(1, at, ratios[part, None] ** 2 * d.gather(1, at))
        p = torch.softmax(-d / classifier.temperature, dim=1)
        own[part] = torch.where(kept, p.gather(1, at)[:, 0], 0.0)
        near = d.gather(1, at)[:, 0].sqrt() / classifier.radii[at[:, 0]]
        distance[part] = torch.where(kept, near, torch.inf)
        if len(ids) > 1:
            others = d.scatter(1, at, torch.inf).argmin(dim=1)
            rival[part] = np.array(ids, dtype=np.int32)[others]
    return Overview(ids, classifier, own, rival, distance, _alike(ids, classifier, knowledge.apart))


def _nothing(knowledge: Knowledge) -> Overview:
    """Where every picture was discarded there is nothing to be sure of."""
    n, width = knowledge.pictures.points.shape
    return Overview(
        ids=(),
        classifier=OpenSet(torch.zeros(0, width), torch.zeros(0), 1.0),
        own=np.zeros(n, dtype=np.float32),
        rival=np.full(n, NOWHERE, dtype=np.int32),
        distance=np.full(n, np.inf, dtype=np.float32),
        alike=(),
    )


def _alike(
    ids: tuple[int, ...], classifier: OpenSet, apart_by_word: frozenset[tuple[int, int]]
) -> tuple[tuple[int, int, float], ...]:
    """Pairs whose centroids lie within the mean of their radii, and much nearer than most pairs do.

    What a person said is different is left out.
    """
    if len(ids) < 2 or not bool(classifier.radii.isfinite().all()):
        return ()
    distances = torch.cdist(classifier.centroids, classifier.centroids)
    apart = distances / ((classifier.radii[:, None] + classifier.radii) / 2)
    upper = torch.triu(torch.ones_like(apart, dtype=torch.bool), diagonal=1)
    limit = 0.6 * float(apart[upper].median())
    pairs = ((apart < min(limit, 1.0)) & upper).nonzero().tolist()
    found = [(ids[a], ids[b], float(apart[a, b])) for a, b in pairs]
    found = [pair for pair in found if pair[:2] not in apart_by_word]
    return tuple(sorted(found, key=lambda pair: pair[2]))


def typical(knowledge: Knowledge, seen: Overview, id: int) -> np.ndarray:
    """Rows of a category, the most typical first."""
    rows = knowledge.rows_of(id)
    return rows[np.argsort(seen.distance[rows], kind="stable")]


def most_doubtful(knowledge: Knowledge, seen: Overview, id: int) -> np.ndarray:
    """Rows of a category, the most doubtful first; what a person or a label said comes last."""
    rows = knowledge.rows_of(id)
    told = knowledge.pictures.told[rows] != FOUND
    return rows[np.lexsort((-seen.distance[rows], seen.own[rows], told))]


def needs(knowledge: Knowledge, seen: Overview) -> dict[int, Need]:
    """How much each live category needs a person: unnamed ones by their size, then look-alikes and doubts."""
    doubtful, told = seen.doubtful(), knowledge.pictures.told != FOUND
    partners: dict[int, int] = {}
    for a, b, _ in seen.alike:
        partners.setdefault(a, b)
        partners.setdefault(b, a)
    found = {}
    for category in knowledge.live():
        rows = knowledge.rows_of(category.id)
        count = len(rows)
        if not count:
            found[category.id] = Need(0.0, "has no pictures")
            continue
        doubts = int((doubtful[rows] & ~told[rows]).sum())
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
    """Rows of the half of a category that would leave it if it were split in two.

    The half that most labels speak for stays; without labels the larger one does.
    """
    rows = knowledge.rows_of(id)
    title = knowledge.category(id).title
    if len(rows) < 2:
        raise CampError(
            f"{title} has {len(rows)} picture{'s' * (len(rows) != 1)} and can not be split in two."
        )
    points = knowledge.pictures.points[rows]
    side = KMeans(2, n_init=10, random_state=seed_of(0, "halves", id) % 2**32).fit(points).labels_
    if side.min() == side.max():
        raise CampError(f"The pictures of {title} are all alike; there is nothing to split.")
    told = knowledge.pictures.told[rows] != FOUND

    def claim(which: int) -> tuple[int, int]:
        return int((told & (side == which)).sum()), int((side == which).sum())

    leaves = min((0, 1), key=claim)
    return rows[side == leaves]
