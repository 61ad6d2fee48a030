"""Pairwise pseudo-labels (AutoNovel, Han et al. 2020): pictures that look alike should be put together."""

import torch
import torch.nn.functional as F
from torch import Tensor

from camp.nn.losses.checks import check_temperature, check_views

_TINY = 1e-7
"""Keeps the logarithm and its gradient finite where a pair is judged with full confidence, and wrongly."""


def mutual_neighbours(z: Tensor, count: int) -> Tensor:
    """s (B, B): whether i and j of the features z (B, D) are each among the other's `count` nearest.

    Nearness is the cosine, and every picture is its own neighbour. In a batch of up to `count` + 1
    pictures all are neighbours.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    >>> mutual_neighbours(z, 1).int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    if count < 1:
        raise ValueError(f"A picture needs at least one neighbour, not {count}.")
    unit = F.normalize(z, dim=-1)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    similarity = (unit @ unit.T).masked_fill(itself, torch.inf)
    nearest = similarity.topk(min(count + 1, len(z)), dim=1).indices  # itself first
    near = torch.zeros_like(itself).scatter_(1, nearest, True)
    return near & near.T


def pairwise(logits: Tensor, alike: Tensor, temperature: float = 0.1) -> Tensor:
    """L = -1/B^2 sum_ij ( s_ij log p_i.p_j' + (1 - s_ij) log(1 - p_i.p_j') ) with p = softmax(logits / tau)

    logits (2, B, K); p_i of the first view and p_j' of the second; s = `alike` (B, B). The product p_i.p_j'
    is the probability that both are put into the same of K categories. Exactly 0 for B = 0.
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
