"""Pairwise pseudo-labels (AutoNovel, Han et al., 2020)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_temperature, check_views

_TINY = 1e-7
"""Keeps the logarithm and its gradient finite for pairs with probability 0."""


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
    probability that both images have the same category.

    Args:
        logits: Logits (2, B, K) of two views; the loss is 0 for B = 0.
        alike: s (B, B), whether two images are assumed to have the same category.
        temperature: tau.
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
