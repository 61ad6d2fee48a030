"""Semi-supervised k-means (Vaze et al. 2022), all of its restarts advanced together.

Labelled points are clamped to the cluster of their class; unlabelled points go to the nearest of all centres;
a centre is the mean of its members. Known centres start at the means of the labelled points, novel ones are
drawn from the unlabelled points by k-means++ given the known. The best of `n_init` runs by inertia is kept.

Why it is fast, and still the same algorithm:

- The distances of all points to the centres of all runs are one matrix product: argmin_j |x - c_j|^2 is
  argmin_j |c_j|^2 - 2 x.c_j.
- Labelled points need no distances, and what they add to their centres is the same in every iteration.
- The sums of the members follow the points that changed their cluster, which soon are few.
- A run leaves the batch when it has converged.

Categories of earlier batches, of which no picture is left, take part as `Anchors`: a cluster that already has so
many members with that mean.

Merging runs that meet in the same partition was tried and gains nothing: they meet only at their end.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Bar
from camp.core.types import UNLABELLED

SCORES_AT_ONCE = 2**22
"""Elements of the largest temporary of point-to-centre scores (16 MB in float32)."""
STATE_AT_ONCE = 2**24
"""Elements of the state kept for the runs that are advanced together (centres or assignments)."""


@dataclass(frozen=True)
class Anchors:
    """Known classes that bring members of their own, which are not among the points."""

    labels: Tensor
    """(m,) int64, each once; they may also occur among the labelled points."""
    centroids: Tensor
    """(m, D) means of the members."""
    weights: Tensor
    """(m,) how many members, above 0."""


@dataclass(frozen=True)
class KMeans:
    """The best run."""

    centroids: Tensor
    """(k, D): the known classes in the order of `known_labels`, then the novel clusters."""
    known_labels: tuple[int, ...]
    """The labels that occur, those of anchors too, sorted."""
    assignments: Tensor
    """(n,) int64: the row of `centroids` each point belongs to; labelled points have their class's row."""
    inertia: float
    """Sum over all points, and the members of anchors, of the squared distance to their centroid (up to the spread of
    the anchors' members, which is not known)."""
    iterations: int
    """Iterations of the best run."""
    runs: int
    """Runs it is the best of."""


def semi_supervised_kmeans(
    features: Tensor,
    labels: Tensor,
    n_novel: int,
    *,
    anchors: Anchors | None = None,
    n_init: int = 100,
    max_iterations: int = 200,
    tolerance: float = 1e-4,
    generator: torch.Generator,
    progress: Bar | None = None,
) -> KMeans:
    """Cluster `features` (n, D) into the classes of `labels` (n,), -1 where unlabelled, and `n_novel` more.

    The classes of `anchors` take part whether or not they are among the labels.

    A run stops when (sum over centres of the length of their step)^2 < `tolerance`. A novel cluster that has
    lost all its points takes the point farthest from its centre; where every point lies on its centre (fewer
    distinct points than clusters) it stays where it was, empty. `progress` is advanced by `n_init` in all.

    >>> x = torch.tensor([[0.0], [1.0], [0.4], [9.0], [9.2]])
    >>> found = semi_supervised_kmeans(
    ...     x, torch.tensor([7, 7, -1, -1, -1]), 1, n_init=3, generator=torch.Generator().manual_seed(0)
    ... )
    >>> found.assignments.tolist(), found.known_labels, round(found.centroids[1].item(), 3)
    ([0, 0, 0, 1, 1], (7,), 9.1)
    """
    known_labels = _check(features, labels, n_novel, n_init, max_iterations, anchors)
    dtype = features.dtype if features.dtype in (torch.float32, torch.float64) else torch.float32
    device = features.device
    # Moving the origin changes no distance, and keeps |c|^2 - 2 x.c from cancelling.
    origin = features.double().mean(dim=0)
    x = (features.double() - origin).to(dtype)
    unlabelled = x[labels == UNLABELLED]

    known = torch.tensor(known_labels, dtype=torch.int64, device=labels.device)
    rows = torch.searchsorted(known, labels[labels != UNLABELLED])
    n_known, k = len(known_labels), len(known_labels) + n_novel
    clamped = _Clamped(
        sums=x.new_zeros(k, x.shape[1]).index_add_(0, rows, x[labels != UNLABELLED]),
        counts=torch.bincount(rows, minlength=k).to(dtype),
    )
    if anchors is not None:
        anchored, weights = torch.searchsorted(known, anchors.labels), anchors.weights.to(dtype)
        places = (anchors.centroids.double() - origin).to(dtype)
        clamped.sums.index_add_(0, anchored, places * weights[:, None])
        clamped.counts.index_add_(0, anchored, weights)

    # Without novel clusters, or without points that could move, every run is the same one.
    random_runs = n_init if n_novel and len(unlabelled) else 1
    draws = torch.rand(random_runs, n_novel, generator=generator, dtype=torch.float64).to(device)
    points = _Points(unlabelled, unlabelled.square().sum(dim=1))

    best: _Run | None = None
    at_once = max(1, STATE_AT_ONCE // max(k * x.shape[1], len(unlabelled), 1))
    for draw in draws.split(at_once):
        centres = _seed(points, clamped, n_known, draw)
        run = _best_run(points, clamped, centres, max_iterations, tolerance, progress)
        best = run if best is None or run.score < best.score else best
    if progress is not None:
        progress.advance(n_init - random_runs)
    assert best is not None

    assignments = labels.new_zeros(len(x))
    assignments[labels != UNLABELLED] = rows
    assignments[labels == UNLABELLED] = best.assignments
    centroids = _means(features, assignments, best.centres.double() + origin)
    inertia = 0.0
    if anchors is not None:
        counts = torch.bincount(assignments, minlength=k)[anchored, None]
        own = anchors.weights.double()[:, None]
        centroids[anchored] = (centroids[anchored] * counts + anchors.centroids.double() * own) / (
            counts + own
        )
        inertia = float((own * (anchors.centroids.double() - centroids[anchored]).square()).sum())
    return KMeans(
        centroids=centroids.to(dtype),
        known_labels=known_labels,
        assignments=assignments,
        inertia=inertia + _inertia(features, assignments, centroids),
        iterations=best.iterations,
        runs=n_init,
    )


@dataclass(frozen=True)
class _Points:
    """The u unlabelled points."""

    x: Tensor
    """(u, D), centred."""
    squares: Tensor
    """(u,) |x|^2."""


@dataclass(frozen=True)
class _Clamped:
    """What the labelled points give to every centre in every iteration of every run."""

    sums: Tensor
    """(k, D), zero for novel clusters."""
    counts: Tensor
    """(k,)"""


@dataclass(frozen=True)
class _Run:
    """A run that has left the batch."""

    score: float
    """Inertia up to a constant."""
    assignments: Tensor
    """(u,)"""
    centres: Tensor
    """(k, D)"""
    iterations: int


def _check(
    features: Tensor, labels: Tensor, n_novel: int, n_init: int, max_iterations: int, anchors: Anchors | None
) -> tuple[int, ...]:
    """The labels that occur, sorted, those of anchors among them; refuses what cannot be clustered."""
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise CampError(
            f"Clustering needs features (n, D) and labels (n,), but was given {tuple(features.shape)} and "
            f"{tuple(labels.shape)}."
        )
    if not bool(torch.isfinite(features).all()):
        raise CampError("The features to cluster contain NaN or infinite values; the network has diverged.")
    if n_novel < 0 or n_init < 1 or max_iterations < 1:
        raise CampError(
            f"Clustering needs n_novel >= 0, n_init >= 1 and max_iterations >= 1, but was given {n_novel}, "
            f"{n_init} and {max_iterations}."
        )
    if anchors is not None:
        if not bool(torch.isfinite(anchors.centroids).all()) or not bool((anchors.weights > 0).all()):
            raise CampError("Anchors need finite centroids and weights above 0.")
        if len(anchors.labels.unique()) != len(anchors.labels):
            raise CampError("Anchors name a class twice; once is enough.")
    occurring = labels if anchors is None else torch.cat([labels, anchors.labels])
    known = tuple(int(label) for label in occurring.unique().tolist() if label != UNLABELLED)
    free = int((labels == UNLABELLED).sum())
    if n_novel > free:
        raise CampError(
            f"{n_novel} novel clusters were asked for, but only {free} images are unlabelled; "
            f"ask for at most {free}."
        )
    if not known and n_novel == 0:
        raise CampError("There is nothing to find: no image is labelled and no novel cluster was asked for.")
    return known


def _seed(points: _Points, clamped: _Clamped, n_known: int, draws: Tensor) -> Tensor:
    """First centres (R, k, D): class means, then k-means++ with the uniform numbers `draws` (R, n_novel)."""
    runs, n_novel = draws.shape
    x, squares = points.x, points.squares
    known = clamped.sums[:n_known] / clamped.counts[:n_known, None]
    centres = x.new_zeros(runs, n_known + n_novel, x.shape[1])
    centres[:, :n_known] = known
    if n_novel == 0:
        return centres
    # Squared distance to the nearest centre so far, per run and point; equal weights when there is none yet.
    if n_known:
        nearest = _squared_distances(x, squares, known).amin(dim=1).expand(runs, -1)
    else:
        nearest = x.new_ones(runs, len(x))
    for j in range(n_novel):
        cumulative = nearest.double().cumsum(dim=1)
        # All points lie on centres already: any of them will do.
        steps = torch.arange(1, len(x) + 1, device=x.device, dtype=torch.float64)
        cumulative = torch.where(cumulative[:, -1:] > 0, cumulative, steps)
        target = draws[:, j : j + 1] * cumulative[:, -1:]
        chosen = torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp_(max=len(x) - 1)
        centres[:, n_known + j] = x[chosen]
        distances = _squared_distances(x, squares, x[chosen]).T
        nearest = distances if n_known + j == 0 else torch.minimum(nearest, distances)
    return centres


def _squared_distances(x: Tensor, squares: Tensor, centres: Tensor) -> Tensor:
    """(u, m) squared distances from u points to m centres; what is below rounding error is zero."""
    scale = squares[:, None] + centres.square().sum(dim=1)
    distances = torch.addmm(scale, x, centres.T, alpha=-2.0)
    return torch.where(distances > 32 * torch.finfo(x.dtype).eps * scale, distances, 0.0)


def _best_run(
    points: _Points,
    clamped: _Clamped,
    centres: Tensor,
    max_iterations: int,
    tolerance: float,
    progress: Bar | None,
) -> _Run:
    """Lloyd's iterations from `centres` (R, k, D) until no run is left; the one with the lowest inertia."""
    best: _Run | None = None
    assignments, sums = None, clamped.sums.double().repeat(len(centres), 1, 1)
    for iteration in range(1, max_iterations + 1):
        before = assignments
        assignments, nearest = _assign(points, centres)
        counts = _fill_empty(assignments, nearest, clamped.counts)[:, :, None]
        _follow(points, sums, before, assignments)
        # A centre without members stays.
        moved = torch.where(counts > 0, (sums / counts.clamp(min=1)).to(centres.dtype), centres)
        done = (moved - centres).norm(dim=2).sum(dim=1).square() < tolerance
        if iteration == max_iterations:
            done[:] = True
        centres = moved
        if not done.any():
            continue
        # sum_i |x_i - c_a(i)|^2 = sum_i |x_i|^2 - sum_j n_j |c_j|^2, as each c_j is the mean of its members.
        scores = -(counts * centres.double().square()).sum(dim=(1, 2))
        first = int(torch.where(done, scores, math.inf).argmin())
        if best is None or float(scores[first]) < best.score:
            best = _Run(float(scores[first]), assignments[first].clone(), centres[first].clone(), iteration)
        centres, assignments, sums = centres[~done], assignments[~done], sums[~done]
        if progress is not None:
            progress.advance(int(done.sum()))
            progress.say(f"{len(centres)} runs still moving")
        if len(centres) == 0:
            break
    assert best is not None
    return best


def _assign(points: _Points, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest centre of each point in each run, (R, u) int64, and the squared distance to it, (R, u)."""
    runs, k, dim = centres.shape
    assignments = torch.empty(runs, len(points.x), dtype=torch.int64, device=centres.device)
    nearest = torch.empty(runs, len(points.x), dtype=centres.dtype, device=centres.device)
    flat = centres.reshape(runs * k, dim)
    squares = flat.square().sum(dim=1)
    block = max(1, SCORES_AT_ONCE // (runs * k))
    for start in range(0, len(points.x), block):
        part = slice(start, start + block)
        scores = torch.addmm(squares, points.x[part], flat.T, alpha=-2.0)  # (b, R k)
        least, index = scores.view(-1, runs, k).min(dim=2)
        assignments[:, part] = index.T
        nearest[:, part] = least.T + points.squares[part]
    return assignments, nearest


def _fill_empty(assignments: Tensor, nearest: Tensor, clamped_counts: Tensor) -> Tensor:
    """Give each empty cluster the point farthest from its centre, in place; returns the counts (R, k)."""
    ones = torch.ones((), dtype=clamped_counts.dtype, device=assignments.device).expand_as(assignments)
    counts = clamped_counts.repeat(len(assignments), 1).scatter_add_(1, assignments, ones)
    resolution = 32 * torch.finfo(nearest.dtype).eps * float(nearest.max()) if nearest.numel() else 0.0
    for run, cluster in (counts == 0).nonzero().tolist():
        # A cluster's last point stays, or filling one cluster would empty another.
        spare = counts[run, assignments[run]] > 1
        distances = torch.where(spare, nearest[run], 0.0)
        point = int(distances.argmax())
        if float(distances[point]) <= resolution:
            continue
        counts[run, assignments[run, point]] -= 1
        counts[run, cluster] += 1
        assignments[run, point] = cluster
        nearest[run, point] = 0.0
    return counts


def _follow(points: _Points, sums: Tensor, before: Tensor | None, after: Tensor) -> None:
    """Move points from their clusters `before` (R, u) to those `after` in `sums` (R, k, D), in place.

    The sums are float64, so that what was added goes away again when it is subtracted.
    """
    if before is None:
        for run in range(len(after)):
            added = torch.zeros_like(sums[run], dtype=points.x.dtype).index_add_(0, after[run], points.x)
            sums[run] += added
        return
    flat = sums.view(-1, sums.shape[2])
    for changed in (before != after).nonzero().split(max(1, SCORES_AT_ONCE // sums.shape[2])):
        run, point = changed.unbind(dim=1)
        x = points.x[point].double()
        flat.index_add_(0, run * sums.shape[1] + after[run, point], x)
        flat.index_add_(0, run * sums.shape[1] + before[run, point], x, alpha=-1)


def _means(features: Tensor, assignments: Tensor, fallback: Tensor) -> Tensor:
    """(k, D) float64 means of the members; the row of `fallback` where there are none."""
    k, dim = fallback.shape
    counts = torch.bincount(assignments, minlength=k)[:, None]
    sums = torch.zeros(k, dim, dtype=torch.float64, device=features.device)
    sums.index_add_(0, assignments, features.double())
    return torch.where(counts > 0, sums / counts.clamp(min=1), fallback)


def _inertia(features: Tensor, assignments: Tensor, centroids: Tensor) -> float:
    """The sum of squared distances, from differences in float64."""
    return sum(
        float((rows.double() - centroids[own]).square().sum())
        for rows, own in zip(features.split(8192), assignments.split(8192))
    )
