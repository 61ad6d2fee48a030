"""Density of images in feature space, and representatives of categories (Zhao and Mac Aodha 2023).

    d_i = 1/k sum_{j in N_i} cos(z_i, z_j)      N_i: the k nearest neighbours of image i by cosine similarity

Image i is a density peak if d_i > d_j for all j in N_i.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK = 1024
"""Number of images whose similarities to all others are in memory at once."""


@dataclass(frozen=True)
class Density:
    """Densities of n images."""

    values: Tensor
    """(n,) d_i; 0 for an image without neighbours."""
    peaks: Tensor
    """(n,) bool: whether the image is a density peak."""


def density(features: Tensor, neighbours: int = 10) -> Density:
    """Densities of `features` (n, D) over `neighbours` others, or all others if they are fewer.

    >>> density(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), 2).peaks.tolist()
    [False, True, False]
    """
    h = F.normalize(features, dim=1)
    k = min(neighbours, len(h) - 1)
    if k < 1:
        return Density(h.new_zeros(len(h)), torch.ones(len(h), dtype=torch.bool))
    nearest = []
    for rows in torch.arange(len(h)).split(_CHUNK):
        similarity = h[rows] @ h.T
        similarity[torch.arange(len(rows)), rows] = -torch.inf  # an image is not its own neighbour
        nearest.append(similarity.topk(k, dim=1))
    values = torch.cat([top.values for top in nearest]).mean(dim=1)
    around = torch.cat([top.indices for top in nearest])  # (n, k)
    return Density(values, (values[:, None] > values[around]).all(dim=1))


def densest(found: Density, categories: Tensor, count: int) -> Tensor:
    """Choose representatives of each category: density peaks, then images of high density.

    Returns the rows (m,) of at most `count` images of each category, by category; `categories` (n,)
    are -1 for images that are not eligible.

    >>> found = Density(torch.tensor([0.9, 0.5, 0.7, 0.6]), torch.tensor([False, True, False, False]))
    >>> densest(found, torch.tensor([3, 3, 3, 1]), 2).tolist()
    [3, 1, 0]
    """
    order = found.values.argsort(descending=True, stable=True)
    order = order[(~found.peaks[order]).to(torch.uint8).argsort(stable=True)]
    order = order[categories[order] >= 0]
    chosen = [order[categories[order] == c][:count] for c in categories[order].unique().tolist()]
    return torch.cat(chosen) if chosen else order
