"""CAMP where old categories come back: batches of a person's pictures instead of the paper's stream.

Phases 1 and 3 are CAMP's. Phase 2 differs:

- The adapted old centroids take part beside the classes that are labelled now and the novel clusters: an old category is
  a cluster that already has as many members as it was made of.
- Clustering happens under the `metric` of all labelled pictures, where the paper clusters the features themselves.
  On three months of CUB-200 (`benchmarks/months.py`) that is worth some ten points; see docs/guide.md.
- The number of novel categories is estimated with the help of remembered features, so a batch needs no labels of its own.

Every category, named or not, is a known class to this method; its label is its position.
"""

import torch
from torch import Tensor

from camp.core.progress import Progress
from camp.core.seeds import generator
from camp.core.types import UNLABELLED
from camp.discovery.class_metric import Metric, fit_metric, means_of
from camp.discovery.nearest_centroid import NearestCentroid
from camp.discovery.number_of_categories import Estimate, estimate_n_novel, estimate_without_labels
from camp.discovery.semi_supervised_kmeans import Anchors, semi_supervised_kmeans
from camp.methods.base import Category, Drift
from camp.methods.gccd.centroid_method import CentroidMethod, Composition
from camp.methods.trainer import clean_features
from camp.nn.backbones.base import Backbone

LEAST = 3
"""Pictures that a discovered category has at least where their number is estimated; fewer go to the nearest other one."""
PER_CATEGORY, AT_MOST = 30, 2000
"""Old pictures of a category, and unlabelled ones of the batch, that the estimate of the number of categories looks at."""
TOLERANCE, FOLDS, COARSE = 0.02, 8, 16
"""Of numbers of categories that score about as well as the best, the greatest is taken: a person merges two categories with
a key, but must find out that one is two. `benchmarks/new_kinds.py` on CUB-200 and CIFAR-100: 1.25 off on average over 24
batches with 6 to 20 known classes and up to 6 new ones (0.08 too many); 4.5 off over 8 with 30 known and up to 18 new ones
(4 too many)."""
DIRECTIONS = 32
"""Dimensions of the points that are clustered."""


class OpenWorld(CentroidMethod):
    """A centroid method that remembers the features of its pictures."""

    def __init__(
        self,
        backbone: Backbone,
        parts: Composition,
        seed: int,
        device: torch.device,
        features: Tensor,
        positions: Tensor,
    ) -> None:
        """`features` (m, D) of earlier pictures in the space of the backbone's tip; their categories, `positions` (m,)."""
        super().__init__(backbone, parts, seed, device)
        self.remembered, self.positions = features, positions
        self.batch = features[:0]  # (n, D) of the batch under the trained tip, once there is one
        counts = torch.bincount(positions).tolist()
        self.categories = [Category(at, 0, at, size) for at, size in enumerate(counts)]
        if counts:
            self.centroids = means_of(features, positions, len(counts)).to(features.dtype)

    def _conclude(self, progress: Progress) -> None:
        self.batch = clean_features(self.tip, self._current().views, progress)
        super()._conclude(progress)

    def _adapt(self, progress: Progress) -> Drift | None:
        """Carry the centroids, and the remembered features around them, into the new space."""
        drift = super()._adapt(progress)
        if drift is not None and self.adapter is not None:
            carried, around = self.adapter(self.remembered), drift.adapted[self.positions]
            self.remembered = around + self._stretch(progress) * (carried - around)
        return drift

    def _stretch(self, progress: Progress) -> float:
        """How much more the batch's features spread than psi predicts; what psi can not predict it leaves out."""
        assert self.adapter is not None
        assert self._old_tip is not None
        before = clean_features(self._old_tip, self._current().views, progress, "Features before")
        spread, expected = (x.var(dim=0, correction=0).sum() for x in (self.batch, self.adapter(before)))
        return float((spread / expected.clamp_min(1e-12)).sqrt().clamp(1.0, 2.0))

    def _discover(self, progress: Progress) -> None:
        """Old, labelled and novel categories by semi-supervised k-means under the metric of the labels."""
        task, features = self._current(), self.batch
        n_novel, curve = task.n_novel, None
        if n_novel is None:
            estimate = self._estimate(features, progress, "after")
            n_novel, curve = estimate.n_novel, [list(point) for point in estimate.curve]
        metric = self._metric(features, task.labels)
        points = metric(features)
        with progress.track("Clustering", self.discovery.n_init) as bar:
            found = semi_supervised_kmeans(
                points,
                task.labels,
                n_novel,
                anchors=self._anchors(metric),
                n_init=self.discovery.n_init,
                max_iterations=self.discovery.max_iterations,
                generator=generator(self.seed, "clustering", task.index),
                progress=bar,
            )
        assignments, least = found.assignments, LEAST if task.n_novel is None else 1
        sizes = torch.bincount(assignments, minlength=len(found.centroids))
        n_known = len(found.known_labels)
        kept = (torch.arange(len(sizes)) < n_known) | (sizes >= least)
        if not bool(kept.any()):  # too few pictures for more than one
            kept[sizes.argmax()] = True
        if not bool(kept.all()):
            stray = ~kept[assignments]
            allowed = kept.nonzero()[:, 0]
            assignments[stray] = NearestCentroid(found.centroids).predict(points[stray], allowed)
            assignments = (kept.cumsum(dim=0) - 1)[assignments]
        self.found = {"n_novel": int(kept.sum()) - n_known, "curve": curve, "inertia": found.inertia}
        self._enter([*found.known_labels, *[None] * self.found["n_novel"]], assignments)
        everything, positions = (
            torch.cat([self.remembered, features]),
            torch.cat([self.positions, self._assigned]),
        )
        self.centroids = means_of(everything, positions, len(self.categories)).to(features.dtype)

    def _metric(self, features: Tensor, labels: Tensor) -> Metric:
        """The metric of what is remembered and the batch; remembered categories count as labels."""
        everything = torch.cat([self.remembered, features])
        return fit_metric(everything, torch.cat([self.positions, labels]), DIRECTIONS)

    def _anchors(self, metric: Metric) -> Anchors | None:
        """The old categories under the metric."""
        if not len(self.positions):
            return None
        counts = torch.bincount(self.positions)
        means = means_of(metric(self.remembered), self.positions, len(counts))
        return Anchors(torch.arange(len(counts)), means, counts)

    def _estimate(self, features: Tensor, progress: Progress, when: str) -> Estimate:
        """Some remembered pictures stand beside the batch's labelled ones, so a batch needs no labels of its own."""
        task, most = self._current(), self.discovery.max_novel
        draw = generator(self.seed, "estimate", task.index, when)
        some, new = _some_of_each(self.positions), _some(task.labels, draw)
        features = torch.cat([self.remembered[some], features[new]])
        labels = torch.cat([self.positions[some], task.labels[new]])
        known = len(labels[labels >= 0].unique())
        if not known:
            points = fit_metric(features, labels, DIRECTIONS)(features)
            return estimate_without_labels(points, most or 30, draw, progress=progress)
        return estimate_n_novel(
            features,
            labels,
            most or max(10, known),
            draw,
            folds=FOLDS,
            coarse=COARSE,
            n_init=10,
            space=lambda shown: fit_metric(features, shown, DIRECTIONS)(features),
            tolerance=TOLERANCE,
            progress=progress,
        )


def _some_of_each(positions: Tensor) -> Tensor:
    """Rows of at most PER_CATEGORY pictures of each category, spread over all of them."""
    rows = [torch.empty(0, dtype=torch.long)]
    for position in positions.unique().tolist():
        own = (positions == position).nonzero()[:, 0]
        rows.append(own[torch.linspace(0, len(own) - 1, min(PER_CATEGORY, len(own))).long()])
    return torch.cat(rows)


def _some(labels: Tensor, draw: torch.Generator) -> Tensor:
    """Rows of at most PER_CATEGORY pictures of each label, and of AT_MOST unlabelled ones."""
    free = (labels == UNLABELLED).nonzero()[:, 0]
    if len(free) > AT_MOST:
        free = free[torch.randperm(len(free), generator=draw)[:AT_MOST]].sort().values
    labelled = (labels != UNLABELLED).nonzero()[:, 0]
    return torch.cat([labelled[_some_of_each(labels[labelled])], free])
