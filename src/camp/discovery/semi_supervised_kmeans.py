"""Semi-supervised k-means (Vaze et al. 2022), with all restarts advanced in parallel.

Labelled points are assigned to the cluster of their class, unlabelled points to the nearest of all
centres, and a centre is the mean of its members. Known centres start at the means of the labelled
points; novel ones are drawn from the unlabelled points by k-means++ (Arthur and Vassilvitskii
2007). The run with the lowest inertia is kept.

Why it is fast without changing the algorithm:

- The distances of all points to the centres of all runs are one matrix product: argmin_j |x -
  c_j|^2 is argmin_j |c_j|^2 - 2 x.c_j.
- Labelled points need no distances, and their contribution to the centres is computed once.
- Sums of members are updated by the points that changed their cluster, which are soon few.
- Converged runs are removed.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from camp.core.errors import CampError
from camp.core.progress import Bar
from camp.core.types import UNLABELLED
from camp.discovery.class_scatter import class_sums

SCORES_AT_ONCE = 2**22
"""Elements of the largest temporary of point-to-centre scores (16 MB in float32)."""
STATE_AT_ONCE = 2**24
"""Elements of the state of the runs that are advanced together (centres or assignments)."""


@dataclass(frozen=True)
class KMeans:
    """Result of the run with the lowest inertia."""

    centroids: Tensor
    """(k, D) known classes in the order of `known_labels`, then novel clusters."""
    known_labels: tuple[int, ...]
    """Labels of the points, sorted."""
    assignments: Tensor
    """(n,) int64 row of `centroids` of each point; for labelled points that of their class."""
    inertia: float
    """Sum of squared distances of the points to their centroids."""
    iterations: int
    """Number of iterations of the run."""


def semi_supervised_kmeans(
    features: Tensor,
    labels: Tensor,
    n_novel: int,
    *,
    n_init: int = 100,
    max_iterations: int = 200,
    tolerance: float = 1e-4,
    generator: torch.Generator,
    progress: Bar | None = None,
) -> KMeans:
    """Cluster features into the classes of their labels and novel clusters.

    A novel cluster that has lost all points takes the point farthest from its centre; if every
    point lies on its centre (fewer distinct points than clusters) the cluster stays empty where it
    was.

    Args:
        features: (n, D)
        labels: (n,) int64 known class of each point, or UNLABELLED.
        n_init: Number of runs from different starts.
        tolerance: A run stops when (sum over centres of the length of their step)^2 is smaller.
        generator: Source of the starts.
        progress: Advanced by `n_init` in total.

    >>> x = torch.tensor([[0.0], [1.0], [0.4], [9.0], [9.2]])
    >>> found = semi_supervised_kmeans(
    ...     x, torch.tensor([7, 7, -1, -1, -1]), 1, n_init=3, generator=torch.Generator().manual_seed(0)
    ... )
    >>> found.assignments.tolist(), found.known_labels, round(found.centroids[1].item(), 3)
    ([0, 0, 0, 1, 1], (7,), 9.1)
    """
    known_labels = _check(features, labels, n_novel, n_init, max_iterations)
    dtype = features.dtype if features.dtype in (torch.float32, torch.float64) else torch.float32
    device = features.device
    # Centring changes no distance and avoids cancellation in |c|^2 - 2 x.c.
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

    # Without novel clusters or unlabelled points all runs are the same.
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
    return KMeans(
        centroids=centroids.to(dtype),
        known_labels=known_labels,
        assignments=assignments,
        inertia=_inertia(features, assignments, centroids),
        iterations=best.iterations,
    )


class _Points(NamedTuple):
    """The u unlabelled points x (u, D), centred, and |x|^2 (u,)."""

    x: Tensor
    squares: Tensor


class _Clamped(NamedTuple):
    """Labelled points, the same in every iteration: sums (k, D), 0 if novel, and counts (k,)."""

    sums: Tensor
    counts: Tensor


class _Run(NamedTuple):
    """A run that has converged: inertia up to a constant, assignments (u,), centres (k, D)."""

    score: float
    assignments: Tensor
    centres: Tensor
    iterations: int


def _check(
    features: Tensor, labels: Tensor, n_novel: int, n_init: int, max_iterations: int
) -> tuple[int, ...]:
    """Check the input and return the labels of the points, sorted."""
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
    known = tuple(int(label) for label in labels.unique().tolist() if label != UNLABELLED)
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
    """Initial centres (R, k, D): class means, then k-means++ by uniform `draws` (R, n_novel)."""
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
        # If all points lie on centres, choose uniformly.
        steps = torch.arange(1, len(x) + 1, device=x.device, dtype=torch.float64)
        cumulative = torch.where(cumulative[:, -1:] > 0, cumulative, steps)
        target = draws[:, j : j + 1] * cumulative[:, -1:]
        chosen = torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp_(max=len(x) - 1)
        centres[:, n_known + j] = x[chosen]
        distances = _squared_distances(x, squares, x[chosen]).T
        nearest = distances if n_known + j == 0 else torch.minimum(nearest, distances)
    return centres


def _squared_distances(x: Tensor, squares: Tensor, centres: Tensor) -> Tensor:
    """Squared distances (u, m) of u points to m centres; zero below rounding error."""
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
    """Run of the lowest inertia after Lloyd's iterations from `centres` (R, k, D)."""
    best: _Run | None = None
    assignments, sums = None, clamped.sums.double().repeat(len(centres), 1, 1)
    for iteration in range(1, max_iterations + 1):
        before = assignments
        assignments, nearest = _assign(points, centres)
        counts = _fill_empty(assignments, nearest, clamped.counts)[:, :, None]
        _update_sums(points, sums, before, assignments)
        # A centre without members does not move.
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
    """Nearest centre of each point in each run, (R, u) int64, and its squared distance (R, u)."""
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
    """Assign to each empty cluster the farthest point, in place; return the sizes (R, k)."""
    ones = torch.ones((), dtype=clamped_counts.dtype, device=assignments.device).expand_as(assignments)
    counts = clamped_counts.repeat(len(assignments), 1).scatter_add_(1, assignments, ones)
    resolution = 32 * torch.finfo(nearest.dtype).eps * float(nearest.max()) if nearest.numel() else 0.0
    for run, cluster in (counts == 0).nonzero().tolist():
        # The last point of a cluster stays, or filling one cluster would empty another.
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


def _update_sums(points: _Points, sums: Tensor, before: Tensor | None, after: Tensor) -> None:
    """Update `sums` (R, k, D) in place for points that moved from `before` (R, u) to `after`.

    The sums are float64, so that repeated addition and subtraction do not accumulate rounding
    errors.
    """
    if before is None:
        for run in range(len(after)):
            sums[run] += torch.zeros_like(sums[run], dtype=points.x.dtype).index_add_(0, after[run], points.x)
        return
    flat = sums.view(-1, sums.shape[2])
    for changed in (before != after).nonzero().split(max(1, SCORES_AT_ONCE // sums.shape[2])):
        run, point = changed.unbind(dim=1)
        x = points.x[point].double()
        flat.index_add_(0, run * sums.shape[1] + after[run, point], x)
        flat.index_add_(0, run * sums.shape[1] + before[run, point], x, alpha=-1)


def _means(features: Tensor, assignments: Tensor, fallback: Tensor) -> Tensor:
    """Means (k, D) float64 of the members; the row of `fallback` for an empty cluster."""
    k = len(fallback)
    counts = torch.bincount(assignments, minlength=k)[:, None]
    return torch.where(counts > 0, class_sums(features, assignments, k) / counts.clamp(min=1), fallback)


def _inertia(features: Tensor, assignments: Tensor, centroids: Tensor) -> float:
    """Sum of squared distances, computed from differences in float64."""
    return sum(
        float((rows.double() - centroids[own]).square().sum())
        for rows, own in zip(features.split(8192), assignments.split(8192))
    )
