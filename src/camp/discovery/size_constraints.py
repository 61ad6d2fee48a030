"""Semi-supervised k-means whose clusters keep to the sizes that the labels foretell.

K-means lets a known class swallow a novel one: the centre of a known class is held by its labels and spends nothing
on taking more. But labels say how many pictures to expect. If a class gives away its labels by chance, its unlabelled
pictures are as many times its labelled ones as those of any other class, r times; and novel classes are as large as known
ones on average. With n_c labelled pictures of class c, n their mean, u unlabelled ones and m novel clusters:

    e_c = r n_c  (known),      e_j = (1 + r) n  (novel),      sum e = u   =>   r = (u - m n) / (sum_c n_c + m n)

Assignments q_ik of unlabelled points p_i and centres c_k minimise

    kappa sum_ik q_ik |p_i - c_k|^2 + sum_ik q_ik log q_ik + rho sum_k KL(sum_i q_ik, e_k)

by turns: q_ik ~ exp(b_k - kappa |p_i - c_k|^2), the offsets b by the iterations of Sinkhorn for unbalanced transport,
b_k <- h (b_k + log e_k - log sum_i q_ik) with h = rho / (1 + rho); then c_k, the mean of its members with q as weights.
h = 0 is soft k-means, h = 1 holds the sizes exactly. The start is the best of many runs of plain k-means.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.types import UNLABELLED
from camp.discovery.semi_supervised_kmeans import KMeans

ITERATIONS, SINKHORN = 30, 10
"""Turns at most, and steps of Sinkhorn in a turn: offsets go on from turn to turn."""
_FEWEST = 1e-3
"""Pictures expected of a cluster at least: a logarithm is taken of them."""


@dataclass(frozen=True)
class Balance:
    """How strictly clusters keep to their sizes."""

    sharpness: float
    """kappa, for points of unit length."""
    hold: float
    """h, from 0 (not at all) to 1 (exactly)."""


def expected_sizes(labels: Tensor, n_novel: int) -> Tensor:
    """e (k,): unlabelled pictures to expect of each class in `labels` (n,), in their order, then of novel clusters.

    >>> expected_sizes(torch.tensor([0, 0, 0, 5, UNLABELLED, UNLABELLED, UNLABELLED, UNLABELLED]), 1)
    tensor([1.0000, 0.3333, 2.6667])
    """
    labelled = labels[labels != UNLABELLED]
    free = len(labels) - len(labelled)
    counts = labelled.unique(return_counts=True)[1].float()
    if not len(counts):
        return torch.full((n_novel,), free / n_novel)
    like = n_novel * counts.mean()
    ratio = ((free - like) / (counts.sum() + like)).clamp_min(0)
    rest = (free - ratio * counts.sum()) / max(n_novel, 1)
    return torch.cat([ratio * counts, rest.expand(n_novel)])


def balanced(points: Tensor, labels: Tensor, start: KMeans, balance: Balance) -> Tensor:
    """(n,) the cluster of each point p (n, d), begun at `start`; labelled points stay with their class."""
    k, free = len(start.centroids), labels == UNLABELLED
    if not bool(free.any()):
        return start.assignments
    expected = expected_sizes(labels, k - len(start.known_labels)).clamp_min(_FEWEST).log()
    own = F.one_hot(start.assignments, k).to(points.dtype)
    sums, counts = own[~free].T @ points[~free], own[~free].sum(dim=0)
    p, q, b = points[free], own[free], torch.zeros(k, dtype=points.dtype)
    chosen = start.assignments[free]
    for _ in range(ITERATIONS):
        weights = counts + q.sum(dim=0)
        centres = (sums + q.T @ p) / weights.clamp_min(1e-6)[:, None]
        near = -balance.sharpness * torch.cdist(p, centres).square()
        # Steps of Sinkhorn are products with exp(near), up to a factor for each point that assignments do not depend on.
        kernel = (near - near.amax(dim=1, keepdim=True)).exp()
        for _ in range(SINKHORN):
            scale = b.exp()
            sizes = scale * (kernel.T @ (kernel @ scale).reciprocal())
            b = balance.hold * (b + expected - sizes.clamp_min(_FEWEST).log())
        q = kernel * b.exp()
        q /= q.sum(dim=1, keepdim=True)
        before, chosen = chosen, q.argmax(dim=1)
        if torch.equal(before, chosen):
            break
    assignments = start.assignments.clone()
    assignments[free] = chosen
    return assignments
