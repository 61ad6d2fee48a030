"""Soft nearest neighbour classifier."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK = 8192


@dataclass(frozen=True)
class SoftNearestNeighbour:
    """Classify by a softmax over similarities to images j whose category y_j is known.

    p(x) = sum_j softmax_j( h(x).h_j / tau ) y_j,      h: features at unit length
    """

    support: Tensor
    """(m, D) features of the images."""
    categories: Tensor
    """(m,) category of each, 0 .. K - 1."""
    count: int
    """K, number of categories."""
    temperature: float = 0.1
    """tau"""

    def probabilities(self, z: Tensor) -> Tensor:
        """Probabilities (..., K) of features z (..., D); 0 for a category without images."""
        if not len(self.support):
            raise ValueError("there is no image to be a neighbour")
        similarity = F.normalize(z, dim=-1) @ F.normalize(self.support, dim=1).T  # (..., m)
        members = F.one_hot(self.categories, self.count).to(z.dtype)
        return (similarity / self.temperature).softmax(dim=-1) @ members

    def predict(self, z: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Most probable category (n,) of features z (n, D), among `allowed` if given."""
        allowed = torch.arange(self.count) if allowed is None else allowed
        nearest = [self.probabilities(part)[:, allowed].argmax(dim=1) for part in z.split(_CHUNK)]
        return allowed.to(z.device)[torch.cat(nearest)]
