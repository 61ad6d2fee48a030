"""Losses on the logits (2, B, K) of two views of each image, and schedules; 0 for a batch without images."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_labels, check_temperature, check_views

_TINY = 1e-7
"""Keeps the logarithm and its gradient finite for pairs with probability 0."""


def cross_entropy(logits: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    """Compute L_CE = -1/2B sum_i ( log p_i^(y_i) + log p_i'^(y_i) ) with p = softmax(logits / tau_s).

    The labels y are (B,); tau_s is the `temperature`.
    """
    check_views("logits", logits)
    check_labels(labels, logits)
    check_temperature(temperature)
    if logits.shape[1] == 0:
        return logits.sum()
    return F.cross_entropy((logits / temperature).flatten(0, 1), labels.repeat(2))


def pseudo_label(logits: Tensor, teacher_temperature: float, student_temperature: float = 0.1) -> Tensor:
    """Compute L = 1/2B sum_i ( l(q_i', p_i) + l(q_i, p_i') ) with l(q, p) = -sum_k q^(k) log p^(k).

    Self-distillation of SimGCD (Wen et al., 2023): p = softmax(logits / tau_s) of the student, and
    q = softmax(logits / tau_t) of the teacher, without gradient. The paper's -epsilon H term is
    `mean_entropy`.
    """
    check_views("logits", logits)
    check_temperature(teacher_temperature)
    check_temperature(student_temperature)
    if logits.shape[1] == 0:
        return logits.sum()
    q = (logits.detach() / teacher_temperature).softmax(dim=-1)
    log_p = (logits / student_temperature).log_softmax(dim=-1)
    return -(q.flip(0) * log_p).sum(dim=-1).mean()


def teacher_temperature(epoch: int, start: float = 0.07, end: float = 0.04, warmup: int = 3) -> float:
    """Return tau_t of `epoch` (from 0): `warmup` evenly spaced values from `start` to `end`, then `end`.

    >>> [round(teacher_temperature(epoch), 3) for epoch in range(5)]
    [0.07, 0.055, 0.04, 0.04, 0.04]
    """
    if epoch < 0 or warmup < 0:
        raise ValueError(f"Epoch and warm-up must not be negative, but are {epoch} and {warmup}.")
    if epoch >= warmup:
        return end
    return start + (end - start) * epoch / max(warmup - 1, 1)


def rampup(epoch: float, length: float) -> float:
    """Return exp(-5 (1 - epoch / length)^2), and 1 from `length` on (Laine and Aila, 2017).

    >>> [round(rampup(epoch, 4), 3) for epoch in range(6)]
    [0.007, 0.06, 0.287, 0.732, 1.0, 1.0]
    """
    if epoch < 0 or length < 0:
        raise ValueError(f"Epoch and length must not be negative, but are {epoch} and {length}.")
    return 1.0 if epoch >= length else math.exp(-5 * (1 - epoch / length) ** 2)


def mean_entropy(logits: Tensor, temperature: float = 0.1) -> Tensor:
    """Compute L = log K - H(p_mean) with p_mean = 1/2B sum_i (p_i + p_i') and p = softmax(logits / tau_s).

    It is the -H of the paper (Assran et al., 2022) plus a constant: 0 if the mean prediction is
    uniform, at most log K.
    """
    check_views("logits", logits)
    check_temperature(temperature)
    views, images, prototypes = logits.shape
    if images == 0:
        return logits.sum()
    log_p = (logits / temperature).log_softmax(dim=-1).flatten(0, 1)  # (2B, K)
    # In log space, so that an unused prototype gives 0 * (a large number) and not 0 * inf.
    log_mean = log_p.logsumexp(dim=0) - math.log(views * images)
    return math.log(prototypes) + (log_mean.exp() * log_mean).sum()


def mutual_neighbours(z: Tensor, count: int) -> Tensor:
    """Return s (B, B): whether i and j are mutual `count` nearest neighbours by the cosine of z (B, D).

    Every image is its own neighbour. In a batch of up to `count` + 1 images all are neighbours.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    >>> mutual_neighbours(z, 1).int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, but is {count}.")
    unit = F.normalize(z, dim=-1)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    similarity = (unit @ unit.T).masked_fill(itself, torch.inf)
    nearest = similarity.topk(min(count + 1, len(z)), dim=1).indices  # itself first
    near = torch.zeros_like(itself).scatter_(1, nearest, True)
    return near & near.T


def pairwise(logits: Tensor, alike: Tensor, temperature: float = 0.1) -> Tensor:
    """Compute L = -1/B^2 sum_ij ( s_ij log p_i.p_j' + (1 - s_ij) log(1 - p_i.p_j') ).

    p_i of the first view and p_j' of the second are softmax(logits / tau); p_i.p_j' is the
    probability that both images have the same category, and s_ij (`alike`, (B, B)) whether they are
    assumed to have it (AutoNovel, Han et al., 2020).
    """
    check_views("logits", logits)
    check_temperature(temperature)
    images = logits.shape[1]
    if alike.shape != (images, images):
        raise ValueError(f"alike must have shape ({images}, {images}), but has {tuple(alike.shape)}.")
    if images == 0:
        return logits.sum()
    p, p_other = (logits / temperature).softmax(dim=-1)  # (B, K) each
    together = p @ p_other.T  # (B, B)
    right = torch.where(alike, together, 1 - together)
    return -(right.clamp(min=0) + _TINY).log().mean()  # rounding may bring `together` above 1


def semantic_augmentation(
    means: Tensor,
    covariances: Tensor,
    labels: Tensor,
    weight: Tensor,
    bias: Tensor,
    strength: float = 2.5,
    temperature: float = 0.1,
) -> Tensor:
    """Compute an upper bound of the cross-entropy of Gaussian features (Wang et al., NeurIPS 2019).

        L = -1/n sum_i log softmax_y( a_i / tau )
        a_ik = w_k.mu_i + b_k + lambda/2 (w_k - w_y)^T Sigma_i (w_k - w_y)

    with y the label of i. By Jensen's inequality L is at least the expected cross-entropy of (w_k.z
    + b_k) / tau for z drawn from N(mu_i, lambda tau Sigma_i). Shapes: mu (n, D) and Sigma (n, D, D)
    of n classes or samples, labels (n,), w (K, D), b (K,); lambda is the `strength`.
    """
    check_temperature(temperature)
    difference = weight - weight[labels][:, None]  # (n, K, D)
    variance = ((difference @ covariances) * difference).sum(dim=2)  # (n, K)
    logits = F.linear(means, weight, bias) + strength / 2 * variance
    return F.cross_entropy(logits / temperature, labels)
