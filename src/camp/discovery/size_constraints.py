"""Semi-supervised k-means with clusters constrained to sizes predicted from the labelled classes.

K-means lets a known class absorb a novel one, as the centre of a known class is fixed by its labels
and moves little. Labels also predict sizes, however. If images are labelled at random, every class
has r times as many unlabelled images as labelled ones, and novel classes are as large as known ones
on average. With n_c labelled images of class c, their mean n, u unlabelled images and m novel
clusters, the expected numbers of unlabelled images are

    e_c = r n_c  (known),      e_j = (1 + r) n  (novel),      sum e = u   =>   r = (u - m n) / (sum_c n_c + m n)

Soft assignments q_ik of unlabelled points p_i to centres c_k minimise

    kappa sum_ik q_ik |p_i - c_k|^2 + sum_ik q_ik log q_ik + rho sum_k KL(sum_i q_ik, e_k)

by alternating two steps: q_ik proportional to exp(b_k - kappa |p_i - c_k|^2), with offsets b from
Sinkhorn iterations for unbalanced optimal transport (Chizat et al. 2018), b_k <- h (b_k + log e_k -
log sum_i q_ik), h = rho / (1 + rho); then c_k, the mean of its members weighted by q. The start is
the best of several runs of k-means.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.core.types import UNLABELLED
from camp.discovery.semi_supervised_kmeans import KMeans

MAX_ITERATIONS, SINKHORN_ITERATIONS = 30, 10
"""Alternations at most, and Sinkhorn iterations in each; offsets are carried over."""
_MIN_SIZE = 1e-3
"""Lower bound of sizes, of which logarithms are taken."""


@dataclass(frozen=True)
class SizeConstraint:
    """How strictly clusters follow their expected sizes."""

    inverse_temperature: float
    """kappa of soft assignments, for points of unit length."""
    size_prior: float
    """h, from 0 (soft k-means without a constraint) to 1 (exact sizes)."""


def expected_sizes(labels: Tensor, n_novel: int) -> Tensor:
    """Expected number (k,) of unlabelled images of the known classes, ascending, and of novel clusters.

    >>> expected_sizes(torch.tensor([0, 0, 0, 5, UNLABELLED, UNLABELLED, UNLABELLED, UNLABELLED]), 1)
    tensor([1.0000, 0.3333, 2.6667])
    """
    labelled = labels[labels != UNLABELLED]
    n_unlabelled = len(labels) - len(labelled)
    counts = labelled.unique(return_counts=True)[1].float()
    if not len(counts):
        return torch.full((n_novel,), n_unlabelled / n_novel)
    novel = n_novel * counts.mean()
    ratio = ((n_unlabelled - novel) / (counts.sum() + novel)).clamp_min(0)
    rest = (n_unlabelled - ratio * counts.sum()) / max(n_novel, 1)
    return torch.cat([ratio * counts, rest.expand(n_novel)])


def constrain_sizes(points: Tensor, labels: Tensor, start: KMeans, constraint: SizeConstraint) -> Tensor:
    """Continue from k-means of points (n, d) with labels (n,), under a constraint on cluster sizes.

    Returns the cluster (n,) of each point, numbered as in `start`; labelled points stay in their class.
    """
    k, unlabelled = len(start.centroids), labels == UNLABELLED
    if not bool(unlabelled.any()):
        return start.assignments
    expected = expected_sizes(labels, k - len(start.known_labels)).clamp_min(_MIN_SIZE).log()
    members = F.one_hot(start.assignments, k).to(points.dtype)
    sums, counts = members[~unlabelled].T @ points[~unlabelled], members[~unlabelled].sum(dim=0)
    p, q, b = points[unlabelled], members[unlabelled], torch.zeros(k, dtype=points.dtype)
    clusters = start.assignments[unlabelled]
    for _ in range(MAX_ITERATIONS):
        weights = counts + q.sum(dim=0)
        centres = (sums + q.T @ p) / weights.clamp_min(1e-6)[:, None]
        logits = -constraint.inverse_temperature * torch.cdist(p, centres).square()
        # Sinkhorn iterations are products with exp(logits); a factor per point does not change assignments.
        kernel = (logits - logits.amax(dim=1, keepdim=True)).exp()
        for _ in range(SINKHORN_ITERATIONS):
            scale = b.exp()
            sizes = scale * (kernel.T @ (kernel @ scale).reciprocal())
            b = constraint.size_prior * (b + expected - sizes.clamp_min(_MIN_SIZE).log())
        q = kernel * b.exp()
        q /= q.sum(dim=1, keepdim=True)
        before, clusters = clusters, q.argmax(dim=1)
        if torch.equal(before, clusters):
            break
    assignments = start.assignments.clone()
    assignments[unlabelled] = clusters
    return assignments
