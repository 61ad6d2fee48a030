"""Speed of semi-supervised k-means, compared with a simple implementation.

The simple implementation computes one restart at a time with broadcast distances. It is timed on a few restarts
and scaled to `RUNS`. Its inertia is the minimum over all restarts, from the same k-means++ draws as ours; only for
this, distances are computed with `torch.cdist`, to save time.
"""

import json
import time

import torch
from torch import Tensor

from camp.core import seeds
from camp.discovery.semi_supervised_kmeans import semi_supervised_kmeans

POINTS, DIM, KNOWN, NOVEL, RUNS = 10_000, 384, 16, 4, 100
REPEATS = 3


def mixture() -> tuple[Tensor, Tensor]:
    """Return synthetic features (n, D) and labels (n,) of the size of a CIFAR-100 task.

    Classes overlap and have a decaying spectrum: the nearest true mean is correct for about two thirds of the
    points, so that k-means takes tens of iterations to converge. Half of the points of known classes are labelled.
    """
    generator = seeds.generator(0, "kmeans benchmark")
    spectrum = torch.arange(1, DIM + 1).float().rsqrt()
    means = torch.randn(KNOWN + NOVEL, DIM, generator=generator) * spectrum
    classes = torch.arange(POINTS) % (KNOWN + NOVEL)
    features = means[classes] + 2.6 * spectrum * torch.randn(POINTS, DIM, generator=generator)
    labelled = (classes < KNOWN) & (torch.rand(POINTS, generator=generator) < 0.5)
    return features, torch.where(labelled, classes, -1)


def broadcast(x: Tensor, centres: Tensor) -> Tensor:
    """Squared distances (n, k), by an intermediate tensor (n, k, D)."""
    return (x[:, None, :] - centres).square().sum(dim=2)


def by_cdist(x: Tensor, centres: Tensor) -> Tensor:
    """Squared distances (n, k), faster; used for the inertia only."""
    return torch.cdist(x, centres).square()


def plain_run(features: Tensor, labels: Tensor, draws: Tensor, distances=broadcast) -> tuple[float, int]:  # type: ignore[no-untyped-def]
    """Run one restart with a simple implementation; return its inertia and number of iterations."""
    known = labels[labels >= 0].unique()
    unlabelled, labelled = features[labels < 0], features[labels >= 0]
    own = torch.searchsorted(known, labels[labels >= 0])
    centres = torch.stack([features[labels == label].mean(dim=0) for label in known])
    for draw in draws:
        weights = distances(unlabelled, centres).amin(dim=1).double().cumsum(dim=0)
        chosen = int(torch.searchsorted(weights, draw * weights[-1], right=True))
        centres = torch.cat([centres, unlabelled[chosen : chosen + 1]])
    members = torch.cat([labelled, unlabelled])
    best = float("inf")
    steps = 0
    for _ in range(200):
        steps += 1
        to_centres = distances(unlabelled, centres)
        nearest = to_centres.argmin(dim=1)
        inertia = float(
            to_centres.amin(dim=1).double().sum() + (labelled - centres[own]).double().square().sum()
        )
        best = min(best, inertia)
        clusters = torch.cat([own, nearest])
        moved = torch.stack([members[clusters == j].mean(dim=0) for j in range(len(centres))])
        step = float((moved - centres).norm(dim=1).sum())
        centres = moved
        if step**2 < 1e-4:
            break
    return best, steps


def measure() -> dict[str, float]:
    """Return seconds and inertia of both implementations, and the ratio of the seconds, `kmeans_ratio`."""
    features, labels = mixture()
    draws = torch.rand(RUNS, NOVEL, generator=seeds.generator(1), dtype=torch.float64)

    # The minimum of a few timings of each: other load on the machine can only increase them.
    ours_seconds = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        ours = semi_supervised_kmeans(features, labels, NOVEL, n_init=RUNS, generator=seeds.generator(1))
        ours_seconds = min(ours_seconds, time.perf_counter() - started)

    fast = [plain_run(features, labels, draw, by_cdist) for draw in draws]
    per_step = float("inf")
    for draw in draws[:REPEATS]:
        started = time.perf_counter()
        _, steps = plain_run(features, labels, draw)
        per_step = min(per_step, (time.perf_counter() - started) / steps)
    # Restarts differ in length, so the time is scaled by iterations.
    plain_seconds = per_step * sum(steps for _, steps in fast)

    return {
        "kmeans_ratio": plain_seconds / ours_seconds,
        "kmeans_seconds": ours_seconds,
        "kmeans_plain_seconds": plain_seconds,
        "kmeans_inertia": ours.inertia,
        "kmeans_plain_inertia": min(inertia for inertia, _ in fast),
        "kmeans_mean_iterations": sum(steps for _, steps in fast) / RUNS,
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
